"""Keys that only producers have."""

from __future__ import annotations

from typing import Final

from ottla.base.config import ConfigKey, ValueType, at_least, between, one_of
from ottla.client.config_keys.rules import function_or_name, gzip_level, not_empty, objects

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
        "Which replicas must have a record before it is acknowledged: all in-sync replicas (all or -1), the "
        "leader (1), or none (0).",
        one_of("all", "-1", "0", "1"),
    ),
    ConfigKey("batch.size", _INT, 16_384, "Maximum size of a batch of one partition, in bytes.", at_least(0)),
    ConfigKey(
        "buffer.memory",
        _LONG,
        33_554_432,
        "Memory for unsent records, in bytes; if it is full, send blocks.",
        at_least(0),
    ),
    ConfigKey(
        "compression.type",
        _STRING,
        "none",
        "Compression codec of batches.",
        one_of("none", "gzip", "snappy", "lz4", "zstd"),
    ),
    ConfigKey("compression.gzip.level", _INT, None, "Compression level of gzip; if unset, a fast one.", gzip_level),
    ConfigKey("compression.lz4.level", _INT, None, "Compression level of lz4; if unset, a fast one.", between(1, 17)),
    ConfigKey("compression.zstd.level", _INT, None, "Compression level of zstd; if unset, 3.", between(-131_072, 22)),
    ConfigKey(
        "delivery.timeout.ms",
        _INT,
        120_000,
        "Time limit from send to the acknowledgement, including retries.",
        at_least(0),
    ),
    ConfigKey(
        "enable.idempotence",
        _BOOLEAN,
        True,
        "Whether retries neither duplicate nor reorder records. Needs acks=all; disabled automatically if "
        "acks is lower.",
    ),
    ConfigKey(
        "interceptor.classes",
        _LIST,
        (),
        "Interceptors, called in this order for sent records and their acknowledgements. Also: interceptors.",
        objects,
    ),
    ConfigKey("key.serializer", _CLASS, None, "Serializer of keys; if unset, keys are bytes.", function_or_name),
    ConfigKey("value.serializer", _CLASS, None, "Serializer of values; if unset, values are bytes.", function_or_name),
    ConfigKey("linger.ms", _LONG, 5, "How long to wait for more records before sending a batch.", at_least(0)),
    ConfigKey(
        "max.block.ms",
        _LONG,
        60_000,
        "How long send blocks for space in the buffer or for metadata of the topic.",
        at_least(0),
    ),
    ConfigKey(
        "max.in.flight.requests.per.connection",
        _INT,
        5,
        "Maximum number of unacknowledged requests per connection; at most 5 with idempotence.",
        at_least(1),
    ),
    ConfigKey(
        "max.request.size", _INT, 1_048_576, "Maximum size of a request, and therefore of a record.", at_least(0)
    ),
    ConfigKey(
        "metadata.max.idle.ms",
        _LONG,
        300_000,
        "Drop the metadata of a topic that has not been used for this long.",
        at_least(5000),
    ),
    ConfigKey(
        "partitioner.class",
        _CLASS,
        None,
        "Partitioner: a function, or roundrobin. If unset, hashes keys as the Java client does, and "
        "distributes records without a key. Also: partitioner.",
        function_or_name,
    ),
    ConfigKey(
        "partitioner.adaptive.partitioning.enable",
        _BOOLEAN,
        True,
        "Whether records without a key prefer faster brokers.",
    ),
    ConfigKey("partitioner.ignore.keys", _BOOLEAN, False, "Whether to ignore keys when choosing partitions."),
    ConfigKey("retries", _INT, 2_147_483_647, "Maximum number of retries of a batch.", at_least(0)),
    ConfigKey(
        "transaction.timeout.ms",
        _INT,
        60_000,
        "The coordinator aborts a transaction that is open for longer; at most transaction.max.timeout.ms of the "
        "broker. Needs transactional.id.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.two.phase.commit.enable",
        _BOOLEAN,
        False,
        "Whether transactions have no timeout, so that a prepared one can be completed at any time (KIP-939). Needs "
        "transactional.id, and a broker that allows it.",
    ),
    ConfigKey(
        "transactional.id",
        _STRING,
        None,
        "Enables transactions. Identifies this producer across restarts: a new producer with the same id aborts the "
        "open transaction of the previous one, and fences it.",
        not_empty,
    ),
]
