"""Configs of Kafka's clients that Ottla does not support: why they are rejected, or accepted without effect.

A config that a program may rely on is rejected: for example, nothing may be sent unencrypted because a config was
ignored. Configs about internals of the Java client are accepted, so that its configs can be used here.
"""

from __future__ import annotations

from typing import Final

_NOT_SECURE_YET: Final = "TLS and SASL are not supported yet"
_NO_SHARE_GROUPS_YET: Final = "share groups are not supported yet"
_NO_REPORTERS: Final = "it configures the metrics of the Java client"

REFUSED: Final[dict[str, str]] = {
    "bootstrap.controllers": "connecting to controllers is not supported: use bootstrap.servers",
    "config.providers": "Java classes cannot be loaded: set the values directly",
    "share.acknowledgement.mode": _NO_SHARE_GROUPS_YET,
    "share.acquire.mode": _NO_SHARE_GROUPS_YET,
    **dict.fromkeys(
        (
            "sasl.client.callback.handler.class",
            "sasl.jaas.config",
            "sasl.kerberos.kinit.cmd",
            "sasl.kerberos.min.time.before.relogin",
            "sasl.kerberos.service.name",
            "sasl.kerberos.ticket.renew.jitter",
            "sasl.kerberos.ticket.renew.window.factor",
            "sasl.login.callback.handler.class",
            "sasl.login.class",
            "sasl.login.connect.timeout.ms",
            "sasl.login.read.timeout.ms",
            "sasl.login.refresh.buffer.seconds",
            "sasl.login.refresh.min.period.seconds",
            "sasl.login.refresh.window.factor",
            "sasl.login.refresh.window.jitter",
            "sasl.login.retry.backoff.max.ms",
            "sasl.login.retry.backoff.ms",
            "sasl.mechanism",
            "sasl.oauthbearer.assertion.algorithm",
            "sasl.oauthbearer.assertion.claim.aud",
            "sasl.oauthbearer.assertion.claim.exp.seconds",
            "sasl.oauthbearer.assertion.claim.iss",
            "sasl.oauthbearer.assertion.claim.jti.include",
            "sasl.oauthbearer.assertion.claim.nbf.seconds",
            "sasl.oauthbearer.assertion.claim.sub",
            "sasl.oauthbearer.assertion.file",
            "sasl.oauthbearer.assertion.private.key.file",
            "sasl.oauthbearer.assertion.private.key.passphrase",
            "sasl.oauthbearer.assertion.template.file",
            "sasl.oauthbearer.client.credentials.client.id",
            "sasl.oauthbearer.client.credentials.client.secret",
            "sasl.oauthbearer.clock.skew.seconds",
            "sasl.oauthbearer.expected.audience",
            "sasl.oauthbearer.expected.issuer",
            "sasl.oauthbearer.header.urlencode",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            "sasl.oauthbearer.jwks.endpoint.url",
            "sasl.oauthbearer.jwt.retriever.class",
            "sasl.oauthbearer.jwt.validator.class",
            "sasl.oauthbearer.scope",
            "sasl.oauthbearer.scope.claim.name",
            "sasl.oauthbearer.sub.claim.name",
            "sasl.oauthbearer.token.endpoint.url",
            "security.providers",
            "ssl.cipher.suites",
            "ssl.enabled.protocols",
            "ssl.endpoint.identification.algorithm",
            "ssl.engine.factory.class",
            "ssl.key.password",
            "ssl.keymanager.algorithm",
            "ssl.keystore.certificate.chain",
            "ssl.keystore.key",
            "ssl.keystore.location",
            "ssl.keystore.password",
            "ssl.keystore.type",
            "ssl.protocol",
            "ssl.provider",
            "ssl.secure.random.implementation",
            "ssl.trustmanager.algorithm",
            "ssl.truststore.certificates",
            "ssl.truststore.location",
            "ssl.truststore.password",
            "ssl.truststore.type",
        ),
        _NOT_SECURE_YET,
    ),
}

HARMLESS_VALUES: Final[dict[str, tuple[str, str]]] = {
    "client.dns.lookup": ("use_all_dns_ips", "the client always tries all addresses of a host name"),
    "security.protocol": ("plaintext", _NOT_SECURE_YET),
}
"""Configs that may be set to the only value that is supported, and why there is no other."""

WITHOUT_EFFECT: Final[dict[str, str]] = {
    "enable.metrics.push": "metrics are not pushed to brokers",
    "internal.throw.on.fetch.stable.offset.unsupported": "it is internal to Kafka",
    "metadata.recovery.rebootstrap.trigger.ms": "the client uses bootstrap.servers as soon as no known broker answers",
    "metric.reporters": _NO_REPORTERS,
    "metrics.num.samples": _NO_REPORTERS,
    "metrics.recording.level": _NO_REPORTERS,
    "metrics.sample.window.ms": _NO_REPORTERS,
    "partitioner.availability.timeout.ms": "partitions of slow brokers are chosen less often, but never excluded",
}

_EVERYONE: Final = frozenset({"producer", "consumer", "admin"})
OWNERS: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys((*REFUSED, *HARMLESS_VALUES, *WITHOUT_EFFECT), _EVERYONE),
    "partitioner.availability.timeout.ms": frozenset({"producer"}),
    **dict.fromkeys(
        (
            "share.acknowledgement.mode",
            "share.acquire.mode",
            "internal.throw.on.fetch.stable.offset.unsupported",
        ),
        frozenset({"consumer"}),
    ),
    "bootstrap.controllers": frozenset({"admin"}),
}
"""Which of Kafka's clients have the config."""
