"""Every kind of node that Kafka writes: how ours reads and writes it, and values that Kafka could hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

from hypothesis import strategies as st

from ottla.base.ids import TopicPartition, Uuid
from ottla.zookeeper import znodes
from ottla.zookeeper.znodes import (
    BrokerRegistration,
    ConsumerPattern,
    ConsumerRegistration,
    ControllerRegistration,
    Endpoint,
    FeatureLevels,
    PartitionLeader,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
)


@dataclass(frozen=True, slots=True)
class Kind:
    decode: Callable[[str, bytes], Any]
    encode: Callable[[Any], bytes]
    values: st.SearchStrategy[Any]


INT32 = st.integers(-(2**31), 2**31 - 1)
IDS = st.integers(0, 2**31 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)
BROKERS = st.lists(IDS, max_size=5).map(tuple)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAMES = st.text("abcXYZ019._-", min_size=1, max_size=20)
PARTITIONS = st.builds(TopicPartition, NAMES, IDS)
ENDPOINTS = st.builds(
    Endpoint,
    st.text("ABCXYZ019_-", min_size=1, max_size=8),
    st.sampled_from(["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]),
    st.sampled_from(["h", "some-host.example", "127.0.0.1", "::1", "fe80::1%eth0"]),
    st.integers(1, 65535),
)
LEVELS = st.integers(1, 2**15 - 1)
VERSION_RANGES = st.tuples(LEVELS, LEVELS).map(sorted).map(tuple)
MOST_IN_ORDER = 4
"""Scala lists up to so many things as they were put in, and more by their hashes; ours stay as they were."""
MOST_CONFIGS = 11
"""Java lists more configs than those in an order that also depends on how they came there."""

_encode = methodcaller("encode")
_blocks = st.builds(
    lambda broker_id, first, size: ProducerIdBlock(broker_id, first, first + size - 1),
    INT32,
    st.integers(0, 2**63 - 2**31),
    st.integers(1, 2**31 - 1),
)
_few_partitions = st.lists(PARTITIONS, max_size=MOST_IN_ORDER, unique=True).map(tuple)

KINDS: dict[str, Kind] = {
    "cluster-id": Kind(znodes.decode_cluster_id, znodes.encode_cluster_id, TEXT),
    "controller": Kind(ControllerRegistration.decode, _encode, st.builds(ControllerRegistration, INT32, LONGS, INT32)),
    "controller-epoch": Kind(znodes.decode_controller_epoch, znodes.encode_controller_epoch, INT32),
    "features": Kind(
        FeatureLevels.decode,
        _encode,
        st.builds(FeatureLevels, st.dictionaries(NAMES, LEVELS, max_size=MOST_IN_ORDER), st.booleans()),
    ),
    "broker": Kind(
        BrokerRegistration.decode,
        _encode,
        st.builds(
            BrokerRegistration,
            st.lists(
                ENDPOINTS, min_size=1, max_size=MOST_IN_ORDER, unique_by=(lambda e: e.listener, lambda e: e.port)
            ).map(tuple),
            st.integers(0, 2**63 - 1),
            st.none() | TEXT,
            INT32,
            st.dictionaries(NAMES, VERSION_RANGES, max_size=1),
        ),
    ),
    "producer-ids": Kind(ProducerIdBlock.decode, _encode, _blocks),
    "topic": Kind(
        TopicAssignment.decode,
        _encode,
        st.builds(
            TopicAssignment,
            st.none() | st.binary(min_size=16, max_size=16).map(Uuid),
            st.dictionaries(IDS | st.integers(0, 50), st.builds(ReplicaAssignment, BROKERS, BROKERS, BROKERS)),
        ),
    ),
    "state": Kind(
        PartitionLeader.decode, _encode, st.builds(PartitionLeader, INT32, INT32, BROKERS, INT32, st.booleans())
    ),
    "config": Kind(znodes.decode_config, znodes.encode_config, st.dictionaries(TEXT, TEXT, max_size=MOST_CONFIGS)),
    "config-change": Kind(znodes.decode_config_change, znodes.encode_config_change, TEXT),
    "isr-change": Kind(znodes.decode_partitions, znodes.encode_partitions, _few_partitions),
    "election": Kind(znodes.decode_partitions, znodes.encode_partitions, _few_partitions),
    "reassignment": Kind(
        znodes.decode_reassignment,
        znodes.encode_reassignment,
        st.dictionaries(PARTITIONS, BROKERS, max_size=MOST_IN_ORDER),
    ),
    "log-dir-failure": Kind(znodes.decode_log_dir_failure, znodes.encode_log_dir_failure, INT32),
    "consumer": Kind(
        ConsumerRegistration.decode,
        _encode,
        st.builds(
            ConsumerRegistration,
            st.dictionaries(TEXT, st.integers(1, 100), max_size=MOST_IN_ORDER),
            st.sampled_from(ConsumerPattern),
            LONGS,
        ),
    ),
    "consumer-owner": Kind(znodes.decode_consumer_owner, znodes.encode_consumer_owner, TEXT),
    "consumer-offset": Kind(znodes.decode_consumer_offset, znodes.encode_consumer_offset, LONGS),
}
