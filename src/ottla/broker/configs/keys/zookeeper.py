"""Keys about a ZooKeeper of one's own: accepted, and without effect while the tree is embedded."""

from __future__ import annotations

from typing import Final

from ottla.base.config import ConfigKey, ValueType, at_least

_BOOLEAN, _INT, _STRING, _LIST, _PASSWORD = (
    ValueType.BOOLEAN,
    ValueType.INT,
    ValueType.STRING,
    ValueType.LIST,
    ValueType.PASSWORD,
)

ZOOKEEPER_DORMANT: Final = [
    ConfigKey("zookeeper.clientCnxnSocket", _STRING, None, "The class of Java's ZooKeeper client that holds sockets."),
    ConfigKey(
        "zookeeper.connect",
        _STRING,
        None,
        "The servers of a ZooKeeper ensemble; empty for the tree that is embedded, and nothing else yet.",
    ),
    ConfigKey("zookeeper.connection.timeout.ms", _INT, None, "How long the first connection may take."),
    ConfigKey("zookeeper.max.in.flight.requests", _INT, 10, "Requests that do not wait for each other.", at_least(1)),
    ConfigKey("zookeeper.metadata.migration.enable", _BOOLEAN, False, "Whether the tree moves to Kafka's own quorum."),
    ConfigKey("zookeeper.metadata.migration.min.batch.size", _INT, 200, "Nodes that are moved at a time.", at_least(1)),
    ConfigKey("zookeeper.session.timeout.ms", _INT, 18_000, "How long a silent broker counts as alive."),
    ConfigKey("zookeeper.set.acl", _BOOLEAN, False, "Whether only brokers may write the tree."),
    ConfigKey("zookeeper.ssl.cipher.suites", _LIST, None, "Cipher suites that are offered."),
    ConfigKey("zookeeper.ssl.client.enable", _BOOLEAN, False, "Whether TLS is spoken with ZooKeeper."),
    ConfigKey("zookeeper.ssl.crl.enable", _BOOLEAN, False, "Whether lists of revoked certificates are asked."),
    ConfigKey("zookeeper.ssl.enabled.protocols", _LIST, None, "Versions of TLS that are spoken."),
    ConfigKey("zookeeper.ssl.endpoint.identification.algorithm", _STRING, "HTTPS", "How a server's name is checked."),
    ConfigKey("zookeeper.ssl.keystore.location", _STRING, None, "The file of the private key and its certificates."),
    ConfigKey("zookeeper.ssl.keystore.password", _PASSWORD, None, "The password of that file."),
    ConfigKey("zookeeper.ssl.keystore.type", _STRING, None, "The format of that file."),
    ConfigKey("zookeeper.ssl.ocsp.enable", _BOOLEAN, False, "Whether the issuer is asked if a certificate holds."),
    ConfigKey("zookeeper.ssl.protocol", _STRING, "TLSv1.2", "The version of TLS that contexts are made for."),
    ConfigKey("zookeeper.ssl.truststore.location", _STRING, None, "The file of certificates that are trusted."),
    ConfigKey("zookeeper.ssl.truststore.password", _PASSWORD, None, "The password of that file."),
    ConfigKey("zookeeper.ssl.truststore.type", _STRING, None, "The format of that file."),
]
