"""Keys of Kafka's own quorum (KRaft): accepted, so that its files load, and without effect."""

from __future__ import annotations

from typing import Final

from ottla.base.config import ConfigKey, ValueType, at_least, each_of
from ottla.broker.configs.keys.rules import addresses, voters

_BOOLEAN, _INT, _LONG, _STRING = ValueType.BOOLEAN, ValueType.INT, ValueType.LONG, ValueType.STRING

KRAFT_DORMANT: Final = [
    ConfigKey("broker.heartbeat.interval.ms", _INT, 2000, "How often a broker tells the quorum that it lives."),
    ConfigKey("broker.session.timeout.ms", _INT, 9000, "How long a silent broker counts as alive."),
    ConfigKey("controller.listener.names", _STRING, None, "Listeners of the quorum; they are not opened."),
    ConfigKey("controller.quorum.append.linger.ms", _INT, 25, "How long the quorum's leader gathers writes."),
    ConfigKey("controller.quorum.bootstrap.servers", ValueType.LIST, (), "Where the quorum is found.", addresses),
    ConfigKey("controller.quorum.election.backoff.max.ms", _INT, 1000, "The longest rest between two elections."),
    ConfigKey("controller.quorum.election.timeout.ms", _INT, 1000, "How long an election may take."),
    ConfigKey("controller.quorum.fetch.timeout.ms", _INT, 2000, "How long a silent leader of the quorum is followed."),
    ConfigKey("controller.quorum.request.timeout.ms", _INT, 2000, "How long the quorum waits for an answer."),
    ConfigKey("controller.quorum.retry.backoff.ms", _INT, 20, "How long the quorum waits between two tries."),
    ConfigKey("controller.quorum.voters", ValueType.LIST, (), "The quorum's members, as id@host:port.", voters),
    ConfigKey("eligible.leader.replicas.enable", _BOOLEAN, False, "Whether replicas that may lead are remembered."),
    ConfigKey("initial.broker.registration.timeout.ms", _INT, 60_000, "How long the first registration may take."),
    ConfigKey("metadata.log.dir", _STRING, None, "Where the quorum's log lies."),
    ConfigKey(
        "metadata.log.max.record.bytes.between.snapshots",
        _LONG,
        20 * 2**20,
        "Bytes of the quorum's log between two snapshots.",
        at_least(1),
    ),
    ConfigKey(
        "metadata.log.max.snapshot.interval.ms", _LONG, 3_600_000, "The time between two snapshots.", at_least(0)
    ),
    ConfigKey("metadata.log.segment.bytes", _INT, 2**30, "The size of a segment of the quorum's log.", at_least(12)),
    ConfigKey("metadata.log.segment.min.bytes", _INT, 8 * 2**20, "The smallest such size that is taken.", at_least(12)),
    ConfigKey("metadata.log.segment.ms", _LONG, 604_800_000, "The age at which such a segment is closed."),
    ConfigKey(
        "metadata.max.idle.interval.ms", _INT, 500, "How often an idle quorum writes, to be seen alive.", at_least(0)
    ),
    ConfigKey("metadata.max.retention.bytes", _LONG, 100 * 2**20, "Bytes of the quorum's log that are kept."),
    ConfigKey("metadata.max.retention.ms", _LONG, 604_800_000, "The time that the quorum's log is kept."),
    ConfigKey(
        "process.roles",
        ValueType.LIST,
        (),
        "What a process is in a quorum; here it is always both.",
        each_of("broker", "controller"),
    ),
    ConfigKey("sasl.mechanism.controller.protocol", _STRING, "GSSAPI", "How brokers log in at the quorum."),
    ConfigKey(
        "server.max.startup.time.ms", _LONG, 2**63 - 1, "How long a start may take before it is given up.", at_least(0)
    ),
]
