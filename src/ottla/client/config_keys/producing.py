"""Keys that only producers have."""

from __future__ import annotations

from typing import Final

from ottla.base.config import ConfigKey, ValueType, at_least, between, one_of
from ottla.client.config_keys.rules import function_or_name, gzip_level, objects

_BOOLEAN, _INT, _LONG, _STRING, _CLASS, _LIST = (
    ValueType.BOOLEAN,
    ValueType.INT,
    ValueType.LONG,
    ValueType.STRING,
    ValueType.CLASS,
    ValueType.LIST,
)

PRODUCING: Final = [
    ConfigKey(
        "acks",
        _STRING,
        "all",
        "Who must have a record before it counts as delivered: all in-sync replicas (all or -1), the leader (1), or "
        "nobody (0).",
        one_of("all", "-1", "0", "1"),
    ),
    ConfigKey("batch.size", _INT, 16_384, "How many bytes of a partition's records travel together.", at_least(0)),
    ConfigKey(
        "buffer.memory", _LONG, 33_554_432, "How many bytes may wait to be sent; then send waits too.", at_least(0)
    ),
    ConfigKey(
        "compression.type",
        _STRING,
        "none",
        "How batches are compressed.",
        one_of("none", "gzip", "snappy", "lz4", "zstd"),
    ),
    ConfigKey("compression.gzip.level", _INT, None, "How hard gzip tries; unset is quick.", gzip_level),
    ConfigKey("compression.lz4.level", _INT, None, "How hard lz4 tries; unset is quick.", between(1, 17)),
    ConfigKey("compression.zstd.level", _INT, None, "How hard zstd tries; unset is 3.", between(-131_072, 22)),
    ConfigKey(
        "delivery.timeout.ms",
        _INT,
        120_000,
        "How long a record may take from send to its acknowledgement, all attempts included.",
        at_least(0),
    ),
    ConfigKey(
        "enable.idempotence",
        _BOOLEAN,
        True,
        "Whether a batch that is sent twice is kept once, in order. Needs acks=all; off by itself if acks is less.",
    ),
    ConfigKey(
        "interceptor.classes",
        _LIST,
        (),
        "Objects that see every record before it is sent, and what became of it, in this order. Also: interceptors.",
        objects,
    ),
    ConfigKey("key.serializer", _CLASS, None, "Makes bytes of keys; unset takes bytes as they are.", function_or_name),
    ConfigKey(
        "value.serializer", _CLASS, None, "Makes bytes of values; unset takes bytes as they are.", function_or_name
    ),
    ConfigKey("linger.ms", _LONG, 5, "How long a batch waits for more records.", at_least(0)),
    ConfigKey(
        "max.block.ms",
        _LONG,
        60_000,
        "How long send waits for room in the buffer, or for what it has to know of the topic.",
        at_least(0),
    ),
    ConfigKey(
        "max.in.flight.requests.per.connection",
        _INT,
        5,
        "How many requests may be on their way to a broker; at most 5 with idempotence.",
        at_least(1),
    ),
    ConfigKey("max.request.size", _INT, 1_048_576, "The largest request, and so the largest record.", at_least(0)),
    ConfigKey(
        "metadata.max.idle.ms",
        _LONG,
        300_000,
        "A topic that was not sent to for so long is forgotten, and asked for again when needed.",
        at_least(5000),
    ),
    ConfigKey(
        "partitioner.class",
        _CLASS,
        None,
        "Chooses a record's partition: a function of yours, or roundrobin. Unset hashes the key as Java does, and "
        "spreads records without one. Also: partitioner.",
        function_or_name,
    ),
    ConfigKey(
        "partitioner.adaptive.partitioning.enable",
        _BOOLEAN,
        True,
        "Whether records without a key go rather to brokers that are quick.",
    ),
    ConfigKey("partitioner.ignore.keys", _BOOLEAN, False, "Whether keys have no say in the choice of partitions."),
    ConfigKey("retries", _INT, 2_147_483_647, "How often a batch is sent again.", at_least(0)),
]
