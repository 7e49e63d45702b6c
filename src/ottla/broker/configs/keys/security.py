"""Keys about TLS, SASL and who may do what: accepted, and without effect until security is there."""

from __future__ import annotations

from typing import Final

from ottla.base.config import ConfigKey, ValueType, at_least, one_of

_BOOLEAN, _SHORT, _INT, _LONG, _DOUBLE, _STRING, _LIST, _PASSWORD, _CLASS = (
    ValueType.BOOLEAN,
    ValueType.SHORT,
    ValueType.INT,
    ValueType.LONG,
    ValueType.DOUBLE,
    ValueType.STRING,
    ValueType.LIST,
    ValueType.PASSWORD,
    ValueType.CLASS,
)

SECURITY_DORMANT: Final = [
    ConfigKey("authorizer.class.name", _STRING, "", "A class that says who may do what."),
    ConfigKey(
        "connection.failed.authentication.delay.ms",
        _INT,
        100,
        "How long the answer to a failed login is held back.",
        at_least(0),
    ),
    ConfigKey("connections.max.reauth.ms", _LONG, 0, "How long a login lasts; 0 for as long as the connection."),
    ConfigKey(
        "delegation.token.expiry.check.interval.ms",
        _LONG,
        3_600_000,
        "How often expired tokens are looked for.",
        at_least(1),
    ),
    ConfigKey(
        "delegation.token.expiry.time.ms", _LONG, 86_400_000, "How long a token lasts without renewal.", at_least(1)
    ),
    ConfigKey("delegation.token.master.key", _PASSWORD, None, "The older name of delegation.token.secret.key."),
    ConfigKey(
        "delegation.token.max.lifetime.ms", _LONG, 604_800_000, "How long a token lasts with renewals.", at_least(1)
    ),
    ConfigKey("delegation.token.secret.key", _PASSWORD, None, "The secret that tokens are made and checked with."),
    ConfigKey(
        "password.encoder.cipher.algorithm", _STRING, "AES/CBC/PKCS5Padding", "How passwords in the tree are encrypted."
    ),
    ConfigKey("password.encoder.iterations", _INT, 4096, "Rounds that the secret is hashed for it.", at_least(1024)),
    ConfigKey("password.encoder.key.length", _INT, 128, "Bits of the key for it.", at_least(8)),
    ConfigKey("password.encoder.keyfactory.algorithm", _STRING, None, "How the key is made of the secret."),
    ConfigKey("password.encoder.old.secret", _PASSWORD, None, "The secret before this one."),
    ConfigKey("password.encoder.secret", _PASSWORD, None, "The secret that passwords in the tree are encrypted with."),
    ConfigKey(
        "principal.builder.class",
        _CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "A class that says who a connection belongs to.",
    ),
    ConfigKey("security.providers", _STRING, None, "Classes that add algorithms."),
]

SASL_DORMANT: Final = [
    ConfigKey("sasl.client.callback.handler.class", _CLASS, None, "A class that knows this broker's own credentials."),
    ConfigKey("sasl.enabled.mechanisms", _LIST, ("GSSAPI",), "The ways to log in that are offered."),
    ConfigKey("sasl.jaas.config", _PASSWORD, None, "Users, passwords and options, as JAAS writes them."),
    ConfigKey("sasl.kerberos.kinit.cmd", _STRING, "/usr/bin/kinit", "The command that fetches a ticket."),
    ConfigKey(
        "sasl.kerberos.min.time.before.relogin",
        _LONG,
        60_000,
        "The shortest time between two tickets, in milliseconds.",
    ),
    ConfigKey("sasl.kerberos.principal.to.local.rules", _LIST, ("DEFAULT",), "How a principal becomes a short name."),
    ConfigKey("sasl.kerberos.service.name", _STRING, None, "The name that brokers run under."),
    ConfigKey("sasl.kerberos.ticket.renew.jitter", _DOUBLE, 0.05, "The share of chance in the time of renewal."),
    ConfigKey("sasl.kerberos.ticket.renew.window.factor", _DOUBLE, 0.8, "The share of a ticket's life before renewal."),
    ConfigKey("sasl.login.callback.handler.class", _CLASS, None, "A class that is asked for credentials at login."),
    ConfigKey("sasl.login.class", _CLASS, None, "A class that logs in."),
    ConfigKey("sasl.login.connect.timeout.ms", _INT, None, "How long a connection to an identity provider may take."),
    ConfigKey("sasl.login.read.timeout.ms", _INT, None, "How long an answer of an identity provider may take."),
    ConfigKey("sasl.login.refresh.buffer.seconds", _SHORT, 300, "Time left of a credential when it is renewed."),
    ConfigKey("sasl.login.refresh.min.period.seconds", _SHORT, 60, "The shortest time between two renewals."),
    ConfigKey("sasl.login.refresh.window.factor", _DOUBLE, 0.8, "The share of a credential's life before renewal."),
    ConfigKey("sasl.login.refresh.window.jitter", _DOUBLE, 0.05, "The share of chance in it."),
    ConfigKey("sasl.login.retry.backoff.max.ms", _LONG, 10_000, "The longest rest between two tries to log in."),
    ConfigKey("sasl.login.retry.backoff.ms", _LONG, 100, "The first rest between two tries to log in."),
    ConfigKey("sasl.mechanism.inter.broker.protocol", _STRING, "GSSAPI", "How brokers log in at each other."),
    ConfigKey("sasl.oauthbearer.clock.skew.seconds", _INT, 30, "How far clocks may be apart."),
    ConfigKey("sasl.oauthbearer.expected.audience", _LIST, None, "Audiences that a token may be for."),
    ConfigKey("sasl.oauthbearer.expected.issuer", _STRING, None, "Who must have issued a token."),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", _LONG, 3_600_000, "How often the keys of the issuer are fetched."
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        _LONG,
        10_000,
        "The longest rest between two tries of it.",
    ),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", _LONG, 100, "The first rest between two tries of it."),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.url", _STRING, None, "Where the keys of the issuer are."),
    ConfigKey("sasl.oauthbearer.scope.claim.name", _STRING, "scope", "The claim that holds a token's scope."),
    ConfigKey("sasl.oauthbearer.sub.claim.name", _STRING, "sub", "The claim that holds a token's subject."),
    ConfigKey("sasl.oauthbearer.token.endpoint.url", _STRING, None, "Where tokens are to be had."),
    ConfigKey("sasl.server.callback.handler.class", _CLASS, None, "A class that checks the credentials of clients."),
    ConfigKey("sasl.server.max.receive.size", _INT, 512 * 2**10, "The largest message of a login."),
]

SSL_DORMANT: Final = [
    ConfigKey("ssl.allow.dn.changes", _BOOLEAN, False, "Whether a new certificate may have another name."),
    ConfigKey("ssl.allow.san.changes", _BOOLEAN, False, "Whether a new certificate may have other host names."),
    ConfigKey("ssl.cipher.suites", _LIST, (), "Cipher suites that are offered; empty for all that are safe."),
    ConfigKey(
        "ssl.client.auth",
        _STRING,
        "none",
        "Whether clients must show a certificate, may, or need not.",
        one_of("required", "requested", "none"),
    ),
    ConfigKey("ssl.enabled.protocols", _LIST, ("TLSv1.2", "TLSv1.3"), "Versions of TLS that are spoken."),
    ConfigKey(
        "ssl.endpoint.identification.algorithm",
        _STRING,
        "https",
        "How a server's name is checked; empty for not at all.",
    ),
    ConfigKey("ssl.engine.factory.class", _CLASS, None, "A class that makes TLS engines."),
    ConfigKey("ssl.key.password", _PASSWORD, None, "The password of the private key."),
    ConfigKey("ssl.keymanager.algorithm", _STRING, "SunX509", "How Java reads keys."),
    ConfigKey("ssl.keystore.certificate.chain", _PASSWORD, None, "The certificates of the private key, as PEM."),
    ConfigKey("ssl.keystore.key", _PASSWORD, None, "The private key, as PEM."),
    ConfigKey("ssl.keystore.location", _STRING, None, "The file of the private key and its certificates."),
    ConfigKey("ssl.keystore.password", _PASSWORD, None, "The password of that file."),
    ConfigKey("ssl.keystore.type", _STRING, "JKS", "The format of that file: JKS, PKCS12 or PEM."),
    ConfigKey("ssl.principal.mapping.rules", _STRING, "DEFAULT", "How a certificate's name becomes a user's."),
    ConfigKey("ssl.protocol", _STRING, "TLSv1.3", "The version of TLS that contexts are made for."),
    ConfigKey("ssl.provider", _STRING, None, "Whose TLS Java uses."),
    ConfigKey("ssl.secure.random.implementation", _STRING, None, "Whose random numbers Java uses."),
    ConfigKey("ssl.trustmanager.algorithm", _STRING, "PKIX", "How Java checks certificates."),
    ConfigKey("ssl.truststore.certificates", _PASSWORD, None, "Certificates that are trusted, as PEM."),
    ConfigKey("ssl.truststore.location", _STRING, None, "The file of certificates that are trusted."),
    ConfigKey("ssl.truststore.password", _PASSWORD, None, "The password of that file."),
    ConfigKey("ssl.truststore.type", _STRING, "JKS", "The format of that file: JKS, PKCS12 or PEM."),
]
