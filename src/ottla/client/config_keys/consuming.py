"""Keys that only consumers have."""

from __future__ import annotations

from typing import Final

from ottla.base.config import ConfigKey, ValueType, at_least, one_of
from ottla.client.config_keys.rules import function_or_name, not_empty, objects, one_of_any_case, reset_strategy

_BOOLEAN, _INT, _LONG, _STRING, _CLASS, _LIST = (
    ValueType.BOOLEAN,
    ValueType.INT,
    ValueType.LONG,
    ValueType.STRING,
    ValueType.CLASS,
    ValueType.LIST,
)

CONSUMING: Final = [
    ConfigKey(
        "allow.auto.create.topics",
        _BOOLEAN,
        False,
        "Whether the broker may create a topic that the consumer names, if auto.create.topics.enable allows it. "
        "Patterns create none.",
    ),
    ConfigKey("auto.commit.interval.ms", _INT, 5000, "How often offsets are committed by themselves.", at_least(0)),
    ConfigKey(
        "auto.offset.reset",
        _STRING,
        "latest",
        "Where to begin without a committed offset, or when it is gone: at the first record, at the end, or at the "
        "first record that is not older than a duration, as in by_duration:PT1H (KIP-1106); none is an error.",
        reset_strategy,
    ),
    ConfigKey("check.crcs", _BOOLEAN, True, "Whether batches are checked against damage."),
    ConfigKey("client.rack", _STRING, "", "Where this client stands; brokers may let it read from a replica nearby."),
    ConfigKey(
        "default.api.timeout.ms", _INT, 60_000, "How long calls take at most that are given no timeout.", at_least(0)
    ),
    ConfigKey(
        "enable.auto.commit",
        _BOOLEAN,
        True,
        "Whether offsets of records that were handed out are committed by themselves; never without a group.id.",
    ),
    ConfigKey("exclude.internal.topics", _BOOLEAN, True, "Whether patterns pass over the cluster's own topics."),
    ConfigKey("fetch.max.bytes", _INT, 52_428_800, "How much a broker sends at a time.", at_least(0)),
    ConfigKey("fetch.max.wait.ms", _INT, 500, "How long a broker waits for fetch.min.bytes.", at_least(0)),
    ConfigKey("fetch.min.bytes", _INT, 1, "How much must be there for a broker to answer at once.", at_least(0)),
    ConfigKey("group.id", _STRING, None, "The group whose members share the partitions, and the committed offsets."),
    ConfigKey(
        "group.instance.id",
        _STRING,
        None,
        "This member's own name: it keeps its partitions over a restart that is quick enough.",
        not_empty,
    ),
    ConfigKey(
        "group.protocol",
        _STRING,
        "classic",
        "How the group shares partitions: members agree (classic), or the broker decides (consumer, KIP-848).",
        one_of_any_case("classic", "consumer"),
    ),
    ConfigKey(
        "group.remote.assignor", _STRING, None, "How the broker shares partitions out, in the consumer protocol."
    ),
    ConfigKey(
        "heartbeat.interval.ms",
        _INT,
        3000,
        "How often a member shows that it lives; less than session.timeout.ms. The broker's in the consumer protocol.",
        at_least(1),
    ),
    ConfigKey(
        "interceptor.classes",
        _LIST,
        (),
        "Objects that see records before they are handed out, and offsets when they are committed, in this order. "
        "Also: interceptors.",
        objects,
    ),
    ConfigKey(
        "isolation.level",
        _STRING,
        "read_uncommitted",
        "Whether records of transactions that are open or were given up are seen.",
        one_of("read_committed", "read_uncommitted"),
    ),
    ConfigKey(
        "key.deserializer", _CLASS, None, "Makes something of a key's bytes; unset leaves them.", function_or_name
    ),
    ConfigKey(
        "value.deserializer", _CLASS, None, "Makes something of a value's bytes; unset leaves them.", function_or_name
    ),
    ConfigKey(
        "max.partition.fetch.bytes", _INT, 1_048_576, "How much of one partition a broker sends at a time.", at_least(0)
    ),
    ConfigKey(
        "max.poll.interval.ms",
        _INT,
        300_000,
        "A member that does not poll for so long leaves its group.",
        at_least(1),
    ),
    ConfigKey("max.poll.records", _INT, 500, "How many records a poll gives at most.", at_least(1)),
    ConfigKey(
        "partition.assignment.strategy",
        _LIST,
        ("range", "cooperative-sticky"),
        "How members share partitions in the classic protocol, the best liked first: range, roundrobin, sticky, "
        "cooperative-sticky, or assignors of yours.",
    ),
    ConfigKey(
        "queued.max.bytes",
        _LONG,
        67_108_864,
        "How many bytes may be fetched ahead of poll. Ottla's own.",
        at_least(1),
    ),
    ConfigKey(
        "session.timeout.ms",
        _INT,
        45_000,
        "A member that is not heard of for so long is taken for dead. The broker's in the consumer protocol.",
        at_least(1),
    ),
]
