"""Keys about ZooKeeper. Without zookeeper.connect the tree is embedded, and none of them has an effect."""

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

ZOOKEEPER: Final = [
    ConfigKey(
        "zookeeper.connect",
        _STRING,
        None,
        "ZooKeeper servers of the cluster: HOST:PORT,HOST:PORT/CHROOT. If it is not set, the broker is alone and keeps "
        "the coordination tree itself.",
    ),
    ConfigKey(
        "zookeeper.connection.timeout.ms",
        _INT,
        None,
        "Timeout of the first connection to ZooKeeper; defaults to zookeeper.session.timeout.ms.",
    ),
    ConfigKey(
        "zookeeper.session.timeout.ms",
        _INT,
        18_000,
        "ZooKeeper session timeout: how long a broker that fell silent stays a member of the cluster.",
    ),
]

ZOOKEEPER_DORMANT: Final = [
    ConfigKey("zookeeper.clientCnxnSocket", _STRING, None, "Socket class of Java's ZooKeeper client."),
    ConfigKey(
        "zookeeper.max.in.flight.requests", _INT, 10, "Maximum number of requests in flight to ZooKeeper.", at_least(1)
    ),
    ConfigKey("zookeeper.metadata.migration.enable", _BOOLEAN, False, "Whether to migrate metadata to KRaft."),
    ConfigKey("zookeeper.metadata.migration.min.batch.size", _INT, 200, "Nodes that are moved at a time.", at_least(1)),
    ConfigKey("zookeeper.set.acl", _BOOLEAN, False, "Whether znodes are created with ACLs."),
    ConfigKey("zookeeper.ssl.cipher.suites", _LIST, None, "Cipher suites for ZooKeeper."),
    ConfigKey("zookeeper.ssl.client.enable", _BOOLEAN, False, "Whether to use TLS for ZooKeeper."),
    ConfigKey("zookeeper.ssl.crl.enable", _BOOLEAN, False, "Whether to check certificate revocation lists."),
    ConfigKey("zookeeper.ssl.enabled.protocols", _LIST, None, "TLS versions for ZooKeeper."),
    ConfigKey(
        "zookeeper.ssl.endpoint.identification.algorithm",
        _STRING,
        "HTTPS",
        "Algorithm that verifies ZooKeeper's host name.",
    ),
    ConfigKey("zookeeper.ssl.keystore.location", _STRING, None, "Path of the key store for ZooKeeper."),
    ConfigKey("zookeeper.ssl.keystore.password", _PASSWORD, None, "Password of the key store for ZooKeeper."),
    ConfigKey("zookeeper.ssl.keystore.type", _STRING, None, "Format of the key store for ZooKeeper."),
    ConfigKey("zookeeper.ssl.ocsp.enable", _BOOLEAN, False, "Whether to check certificates with OCSP."),
    ConfigKey("zookeeper.ssl.protocol", _STRING, "TLSv1.2", "TLS version of the SSL context for ZooKeeper."),
    ConfigKey("zookeeper.ssl.truststore.location", _STRING, None, "Path of the trust store for ZooKeeper."),
    ConfigKey("zookeeper.ssl.truststore.password", _PASSWORD, None, "Password of the trust store for ZooKeeper."),
    ConfigKey("zookeeper.ssl.truststore.type", _STRING, None, "Format of the trust store for ZooKeeper."),
]
