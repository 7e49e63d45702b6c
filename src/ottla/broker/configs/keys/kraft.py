"""Keys of Kafka's own quorum (KRaft): accepted, so that its files load, and without effect."""

from __future__ import annotations

from typing import Final

from ottla.base.config import ConfigKey, ValueType, at_least, each_of
from ottla.broker.configs.keys.rules import addresses, voters

_BOOLEAN, _INT, _LONG, _STRING = ValueType.BOOLEAN, ValueType.INT, ValueType.LONG, ValueType.STRING

KRAFT_DORMANT: Final = [
    ConfigKey("broker.heartbeat.interval.ms", _INT, 2000, "Heartbeat interval of brokers in KRaft mode."),
    ConfigKey("broker.session.timeout.ms", _INT, 9000, "Session timeout of brokers in KRaft mode."),
    ConfigKey("controller.listener.names", _STRING, None, "Listeners of the KRaft controller; they are not opened."),
    ConfigKey("controller.quorum.append.linger.ms", _INT, 25, "How long the KRaft leader collects writes."),
    ConfigKey("controller.quorum.bootstrap.servers", ValueType.LIST, (), "Addresses of the KRaft quorum.", addresses),
    ConfigKey("controller.quorum.election.backoff.max.ms", _INT, 1000, "Maximum wait between two KRaft elections."),
    ConfigKey("controller.quorum.election.timeout.ms", _INT, 1000, "Timeout of a KRaft election."),
    ConfigKey(
        "controller.quorum.fetch.timeout.ms",
        _INT,
        2000,
        "Timeout after which followers of the KRaft quorum start an election.",
    ),
    ConfigKey("controller.quorum.request.timeout.ms", _INT, 2000, "Request timeout in the KRaft quorum."),
    ConfigKey("controller.quorum.retry.backoff.ms", _INT, 20, "Wait between two attempts in the KRaft quorum."),
    ConfigKey("controller.quorum.voters", ValueType.LIST, (), "Voters of the KRaft quorum, as id@host:port.", voters),
    ConfigKey("eligible.leader.replicas.enable", _BOOLEAN, False, "Whether to keep eligible leader replicas."),
    ConfigKey("initial.broker.registration.timeout.ms", _INT, 60_000, "Timeout of the first broker registration."),
    ConfigKey("metadata.log.dir", _STRING, None, "Directory of the KRaft metadata log."),
    ConfigKey(
        "metadata.log.max.record.bytes.between.snapshots",
        _LONG,
        20 * 2**20,
        "Bytes of the metadata log between two snapshots.",
        at_least(1),
    ),
    ConfigKey(
        "metadata.log.max.snapshot.interval.ms", _LONG, 3_600_000, "Maximum time between two snapshots.", at_least(0)
    ),
    ConfigKey("metadata.log.segment.bytes", _INT, 2**30, "Segment size of the metadata log.", at_least(12)),
    ConfigKey("metadata.log.segment.min.bytes", _INT, 8 * 2**20, "The smallest such size that is taken.", at_least(12)),
    ConfigKey(
        "metadata.log.segment.ms", _LONG, 604_800_000, "Time after which a segment of the metadata log is closed."
    ),
    ConfigKey(
        "metadata.max.idle.interval.ms", _INT, 500, "How often an idle KRaft leader writes a no-op record.", at_least(0)
    ),
    ConfigKey("metadata.max.retention.bytes", _LONG, 100 * 2**20, "Maximum size of the metadata log."),
    ConfigKey("metadata.max.retention.ms", _LONG, 604_800_000, "How long to keep the metadata log."),
    ConfigKey(
        "process.roles",
        ValueType.LIST,
        (),
        "Roles of the process in KRaft mode.",
        each_of("broker", "controller"),
    ),
    ConfigKey(
        "sasl.mechanism.controller.protocol", _STRING, "GSSAPI", "SASL mechanism for connections to the controller."
    ),
    ConfigKey(
        "server.max.startup.time.ms", _LONG, 2**63 - 1, "How long a start may take before it is given up.", at_least(0)
    ),
]
