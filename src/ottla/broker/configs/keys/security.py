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
    ConfigKey("authorizer.class.name", _STRING, "", "Class that authorizes requests."),
    ConfigKey(
        "connection.failed.authentication.delay.ms",
        _INT,
        100,
        "How long to delay the response to a failed authentication.",
        at_least(0),
    ),
    ConfigKey(
        "connections.max.reauth.ms", _LONG, 0, "How long an authentication is valid; 0 means as long as the connection."
    ),
    ConfigKey(
        "delegation.token.expiry.check.interval.ms",
        _LONG,
        3_600_000,
        "How often to check for expired delegation tokens.",
        at_least(1),
    ),
    ConfigKey(
        "delegation.token.expiry.time.ms",
        _LONG,
        86_400_000,
        "How long a delegation token is valid without renewal.",
        at_least(1),
    ),
    ConfigKey("delegation.token.master.key", _PASSWORD, None, "Deprecated synonym of delegation.token.secret.key."),
    ConfigKey(
        "delegation.token.max.lifetime.ms", _LONG, 604_800_000, "Maximum lifetime of a delegation token.", at_least(1)
    ),
    ConfigKey("delegation.token.secret.key", _PASSWORD, None, "Secret that signs delegation tokens."),
    ConfigKey(
        "password.encoder.cipher.algorithm", _STRING, "AES/CBC/PKCS5Padding", "Cipher for encrypting stored passwords."
    ),
    ConfigKey("password.encoder.iterations", _INT, 4096, "Iterations for deriving the encryption key.", at_least(1024)),
    ConfigKey("password.encoder.key.length", _INT, 128, "Length of the encryption key, in bits.", at_least(8)),
    ConfigKey("password.encoder.keyfactory.algorithm", _STRING, None, "Algorithm for deriving the encryption key."),
    ConfigKey("password.encoder.old.secret", _PASSWORD, None, "Previous secret for encrypting stored passwords."),
    ConfigKey("password.encoder.secret", _PASSWORD, None, "Secret for encrypting stored passwords."),
    ConfigKey(
        "principal.builder.class",
        _CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "Class that determines the principal of a connection.",
    ),
    ConfigKey("security.providers", _STRING, None, "Classes that provide security algorithms."),
]

SASL_DORMANT: Final = [
    ConfigKey("sasl.client.callback.handler.class", _CLASS, None, "Class that provides this broker's credentials."),
    ConfigKey("sasl.enabled.mechanisms", _LIST, ("GSSAPI",), "SASL mechanisms that are enabled."),
    ConfigKey("sasl.jaas.config", _PASSWORD, None, "JAAS login context: users, passwords and options."),
    ConfigKey("sasl.kerberos.kinit.cmd", _STRING, "/usr/bin/kinit", "Path of the kinit command."),
    ConfigKey(
        "sasl.kerberos.min.time.before.relogin",
        _LONG,
        60_000,
        "Minimum time between two Kerberos logins, in milliseconds.",
    ),
    ConfigKey(
        "sasl.kerberos.principal.to.local.rules", _LIST, ("DEFAULT",), "Rules that map principals to short names."
    ),
    ConfigKey("sasl.kerberos.service.name", _STRING, None, "Kerberos principal of brokers."),
    ConfigKey("sasl.kerberos.ticket.renew.jitter", _DOUBLE, 0.05, "Random jitter of the renewal time, as a fraction."),
    ConfigKey(
        "sasl.kerberos.ticket.renew.window.factor",
        _DOUBLE,
        0.8,
        "Fraction of a ticket's lifetime before it is renewed.",
    ),
    ConfigKey("sasl.login.callback.handler.class", _CLASS, None, "Class that provides credentials for the login."),
    ConfigKey("sasl.login.class", _CLASS, None, "Login class."),
    ConfigKey("sasl.login.connect.timeout.ms", _INT, None, "Timeout of connections to an identity provider."),
    ConfigKey("sasl.login.read.timeout.ms", _INT, None, "Timeout of responses of an identity provider."),
    ConfigKey(
        "sasl.login.refresh.buffer.seconds", _SHORT, 300, "Remaining lifetime of a credential when it is refreshed."
    ),
    ConfigKey("sasl.login.refresh.min.period.seconds", _SHORT, 60, "Minimum time between two refreshes."),
    ConfigKey(
        "sasl.login.refresh.window.factor", _DOUBLE, 0.8, "Fraction of a credential's lifetime before it is refreshed."
    ),
    ConfigKey("sasl.login.refresh.window.jitter", _DOUBLE, 0.05, "Random jitter of the refresh time, as a fraction."),
    ConfigKey("sasl.login.retry.backoff.max.ms", _LONG, 10_000, "Maximum wait between two login attempts."),
    ConfigKey("sasl.login.retry.backoff.ms", _LONG, 100, "First wait between two login attempts."),
    ConfigKey(
        "sasl.mechanism.inter.broker.protocol", _STRING, "GSSAPI", "SASL mechanism for connections between brokers."
    ),
    ConfigKey("sasl.oauthbearer.clock.skew.seconds", _INT, 30, "Allowed clock difference."),
    ConfigKey("sasl.oauthbearer.expected.audience", _LIST, None, "Accepted audiences of tokens."),
    ConfigKey("sasl.oauthbearer.expected.issuer", _STRING, None, "Accepted issuer of tokens."),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", _LONG, 3_600_000, "How often to refresh the keys of the issuer."
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        _LONG,
        10_000,
        "Maximum wait between two attempts to fetch the keys.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        _LONG,
        100,
        "First wait between two attempts to fetch the keys.",
    ),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.url", _STRING, None, "URL of the keys of the issuer."),
    ConfigKey("sasl.oauthbearer.scope.claim.name", _STRING, "scope", "Claim with the scope of a token."),
    ConfigKey("sasl.oauthbearer.sub.claim.name", _STRING, "sub", "Claim with the subject of a token."),
    ConfigKey("sasl.oauthbearer.token.endpoint.url", _STRING, None, "URL of the token endpoint."),
    ConfigKey("sasl.server.callback.handler.class", _CLASS, None, "Class that verifies the credentials of clients."),
    ConfigKey("sasl.server.max.receive.size", _INT, 512 * 2**10, "Maximum size of a SASL message."),
]

SSL_DORMANT: Final = [
    ConfigKey(
        "ssl.allow.dn.changes", _BOOLEAN, False, "Whether a new certificate may have another distinguished name."
    ),
    ConfigKey(
        "ssl.allow.san.changes", _BOOLEAN, False, "Whether a new certificate may have other subject alternative names."
    ),
    ConfigKey("ssl.cipher.suites", _LIST, (), "Cipher suites; empty means the defaults."),
    ConfigKey(
        "ssl.client.auth",
        _STRING,
        "none",
        "Client authentication: required, requested or none.",
        one_of("required", "requested", "none"),
    ),
    ConfigKey("ssl.enabled.protocols", _LIST, ("TLSv1.2", "TLSv1.3"), "TLS versions that are enabled."),
    ConfigKey(
        "ssl.endpoint.identification.algorithm",
        _STRING,
        "https",
        "Algorithm that verifies the server's host name; empty disables it.",
    ),
    ConfigKey("ssl.engine.factory.class", _CLASS, None, "Class that creates TLS engines."),
    ConfigKey("ssl.key.password", _PASSWORD, None, "Password of the private key."),
    ConfigKey("ssl.keymanager.algorithm", _STRING, "SunX509", "Algorithm of Java's key manager."),
    ConfigKey(
        "ssl.keystore.certificate.chain", _PASSWORD, None, "Certificate chain of the private key, in PEM format."
    ),
    ConfigKey("ssl.keystore.key", _PASSWORD, None, "Private key, in PEM format."),
    ConfigKey("ssl.keystore.location", _STRING, None, "Path of the key store."),
    ConfigKey("ssl.keystore.password", _PASSWORD, None, "Password of the key store."),
    ConfigKey("ssl.keystore.type", _STRING, "JKS", "Format of the key store: JKS, PKCS12 or PEM."),
    ConfigKey("ssl.principal.mapping.rules", _STRING, "DEFAULT", "Rules that map certificate names to principals."),
    ConfigKey("ssl.protocol", _STRING, "TLSv1.3", "TLS version of the SSL context."),
    ConfigKey("ssl.provider", _STRING, None, "Java's TLS provider."),
    ConfigKey("ssl.secure.random.implementation", _STRING, None, "Java's random number generator."),
    ConfigKey("ssl.trustmanager.algorithm", _STRING, "PKIX", "Algorithm of Java's trust manager."),
    ConfigKey("ssl.truststore.certificates", _PASSWORD, None, "Trusted certificates, in PEM format."),
    ConfigKey("ssl.truststore.location", _STRING, None, "Path of the trust store."),
    ConfigKey("ssl.truststore.password", _PASSWORD, None, "Password of the trust store."),
    ConfigKey("ssl.truststore.type", _STRING, "JKS", "Format of the trust store: JKS, PKCS12 or PEM."),
]
