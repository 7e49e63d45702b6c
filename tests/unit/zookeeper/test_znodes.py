"""What nodes hold: as a Kafka 3.9.1 wrote them, in older versions, through any values, and when they make no sense."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import Uuid, parse_uuid
from ottla.log.names import TopicPartition
from ottla.zookeeper import znodes
from ottla.zookeeper.node_json import ZnodeError
from ottla.zookeeper.znodes import (
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
    FeatureLevels,
    PartitionLeader,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
)

PATH = "/some/node"
TOPIC_ID = "1ybv0NdtSzmZD7o_SGFBYA"

Decode = Callable[[str, bytes], Any]

WRITTEN_BY_KAFKA: list[tuple[Decode, Any, bytes]] = [
    (
        znodes.decode_cluster_id,
        "AhoO-OlbTHaHwKboORGt0Q",
        b'{"version":"1","id":"AhoO-OlbTHaHwKboORGt0Q"}',
    ),
    (
        ControllerRegistration.decode,
        ControllerRegistration(1, 1794784599985),
        b'{"version":2,"brokerid":1,"timestamp":"1794784599985","kraftControllerEpoch":-1}',
    ),
    (znodes.decode_controller_epoch, 12, b"12"),
    (FeatureLevels.decode, FeatureLevels(), b'{"features":{},"version":2,"status":1}'),
    (
        FeatureLevels.decode,
        FeatureLevels({"x": 3}, is_enabled=False),
        b'{"features":{"x":{"max_version_level":3}},"version":2,"status":0}',
    ),
    (
        BrokerRegistration.decode,
        BrokerRegistration((Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 59601),), 1794784599901, "r1"),
        b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
        b'"endpoints":["PLAINTEXT://127.0.0.1:59601"],"rack":"r1","jmx_port":-1,"port":59601,"host":"127.0.0.1",'
        b'"version":5,"timestamp":"1794784599901"}',
    ),
    (
        BrokerRegistration.decode,
        BrokerRegistration(
            (Endpoint("A", "SSL", "::1", 9), Endpoint("B", "PLAINTEXT", "h", 10), Endpoint("C", "PLAINTEXT", "i", 11)),
            5,
            jmx_port=99,
            features={"f": (1, 2)},
        ),
        b'{"features":{"f":{"min_version":1,"max_version":2}},'
        b'"listener_security_protocol_map":{"A":"SSL","B":"PLAINTEXT","C":"PLAINTEXT"},'
        b'"endpoints":["A://[::1]:9","B://h:10","C://i:11"],"jmx_port":99,"port":10,"host":"h","version":5,'
        b'"timestamp":"5"}',
    ),
    (
        BrokerRegistration.decode,
        BrokerRegistration((Endpoint("B", "SSL", "h", 10),), 5),
        b'{"features":{},"listener_security_protocol_map":{"B":"SSL"},"endpoints":["B://h:10"],"jmx_port":-1,'
        b'"port":-1,"host":null,"version":5,"timestamp":"5"}',
    ),
    (
        ProducerIdBlock.decode,
        ProducerIdBlock(1, 0, 999),
        b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}',
    ),
    (
        TopicAssignment.decode,
        TopicAssignment(parse_uuid(TOPIC_ID), {index: ReplicaAssignment((1,)) for index in range(40)}),
        b'{"partitions":{"22":[1],"23":[1],"24":[1],"25":[1],"26":[1],"27":[1],"28":[1],"29":[1],"30":[1],"31":[1],'
        b'"10":[1],"32":[1],"11":[1],"33":[1],"12":[1],"34":[1],"13":[1],"35":[1],"14":[1],"36":[1],"15":[1],'
        b'"37":[1],"16":[1],"38":[1],"17":[1],"39":[1],"18":[1],"19":[1],"0":[1],"1":[1],"2":[1],"3":[1],"4":[1],'
        b'"5":[1],"6":[1],"7":[1],"8":[1],"9":[1],"20":[1],"21":[1]},"topic_id":"1ybv0NdtSzmZD7o_SGFBYA",'
        b'"adding_replicas":{},"removing_replicas":{},"version":3}',
    ),
    (
        TopicAssignment.decode,
        TopicAssignment(
            None, {0: ReplicaAssignment((1, 2, 3), adding=(3,), removing=(1,)), 1: ReplicaAssignment((2,))}
        ),
        b'{"partitions":{"0":[1,2,3],"1":[2]},"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]},"version":3}',
    ),
    (
        PartitionLeader.decode,
        PartitionLeader(leader=1, leader_epoch=2, isr=(1, 5), controller_epoch=4),
        b'{"controller_epoch":4,"leader":1,"version":1,"leader_epoch":2,"isr":[1,5]}',
    ),
    (
        PartitionLeader.decode,
        PartitionLeader(-1, 2, (1, 5), 4, is_recovering=True),
        b'{"controller_epoch":4,"leader":-1,"version":1,"leader_recovery_state":1,"leader_epoch":2,"isr":[1,5]}',
    ),
    (
        znodes.decode_config,
        {"retention.ms": "1000", "segment.bytes": "1000000", "cleanup.policy": "compact"},
        b'{"version":1,"config":{"cleanup.policy":"compact","retention.ms":"1000","segment.bytes":"1000000"}}',
    ),
    (znodes.decode_config, {}, b'{"version":1,"config":{}}'),
    (znodes.decode_config_change, "topics/t1", b'{"version":2,"entity_path":"topics/t1"}'),
    (
        znodes.decode_partitions,
        (TopicPartition("a", 1), TopicPartition("b", 2)),
        b'{"version":1,"partitions":[{"topic":"a","partition":1},{"topic":"b","partition":2}]}',
    ),
    (
        znodes.decode_reassignment,
        {TopicPartition("a", 1): (1, 2)},
        b'{"version":1,"partitions":[{"topic":"a","partition":1,"replicas":[1,2]}]}',
    ),
    (znodes.decode_log_dir_failure, 3, b'{"version":1,"broker":3,"event":1}'),
]

ENCODERS: dict[Decode, Callable[[Any], bytes]] = {
    znodes.decode_cluster_id: znodes.encode_cluster_id,
    znodes.decode_controller_epoch: znodes.encode_controller_epoch,
    znodes.decode_config: znodes.encode_config,
    znodes.decode_config_change: znodes.encode_config_change,
    znodes.decode_partitions: znodes.encode_partitions,
    znodes.decode_reassignment: znodes.encode_reassignment,
    znodes.decode_log_dir_failure: znodes.encode_log_dir_failure,
}


def encode(decode: Decode, value: Any) -> bytes:
    return ENCODERS[decode](value) if decode in ENCODERS else value.encode()


@pytest.mark.parametrize(("decode", "value", "data"), WRITTEN_BY_KAFKA)
def test_nodes_are_read_and_written_as_kafka_writes_them(decode: Decode, value: Any, data: bytes) -> None:
    assert decode(PATH, data) == value
    assert encode(decode, value) == data


# --- older versions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"version":1,"partitions":{"1":[2],"0":[1]}}', {0: ReplicaAssignment((1,)), 1: ReplicaAssignment((2,))}),
        (
            b'{"version":2,"partitions":{"0":[1,2]},"adding_replicas":{"0":[2]},"removing_replicas":{}}',
            {0: ReplicaAssignment((1, 2), adding=(2,))},
        ),
    ],
)
def test_topics_older_than_their_ids(data: bytes, expected: dict[int, ReplicaAssignment]) -> None:
    found = TopicAssignment.decode(PATH, data)
    assert found == TopicAssignment(None, expected)
    assert list(found.partitions) == sorted(found.partitions)


OLD_BROKER = {"version": 1, "host": "h", "port": 9092, "jmx_port": 9999, "timestamp": "2233345666"}
WITH_ENDPOINTS = {**OLD_BROKER, "version": 2, "port": 1, "endpoints": ["PLAINTEXT://h:9092"]}
WITH_RACK = {**WITH_ENDPOINTS, "version": 3, "rack": "r"}
WITH_NAMES = {**WITH_RACK, "version": 4, "rack": None, "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"}}


@pytest.mark.parametrize("values", [OLD_BROKER, WITH_ENDPOINTS, WITH_RACK, WITH_NAMES])
def test_registrations_of_older_brokers(values: dict[str, Any]) -> None:
    found = BrokerRegistration.decode(PATH, json.dumps(values).encode())
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092)
    assert found == BrokerRegistration((endpoint,), 2233345666, rack=values.get("rack"), jmx_port=9999)


def test_other_old_versions() -> None:
    controller = ControllerRegistration.decode(PATH, b'{"version":1,"brokerid":3,"timestamp":"5"}')
    assert controller == ControllerRegistration(3, 5)
    change = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert znodes.decode_config_change(PATH, change) == "topics/t"
    features = b'{"features":{"x":{"max_version_level":3,"min_version_level":1}},"version":1,"status":1}'
    assert FeatureLevels.decode(PATH, features) == FeatureLevels({"x": 3})
    assert znodes.decode_config(PATH, b"") == {}
    assert znodes.decode_config(PATH, b'{"version":1}') == {}


# --- any values -----------------------------------------------------------------------------------------------------

INT32 = st.integers(-(2**31), 2**31 - 1)
IDS = st.integers(0, 2**31 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)
BROKERS = st.lists(IDS, max_size=5).map(tuple)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAMES = st.text("abcXYZ019._-", min_size=1, max_size=20)
PARTITIONS = st.builds(TopicPartition, NAMES, IDS)
ENDPOINTS = st.builds(
    Endpoint,
    NAMES,
    st.sampled_from(["PLAINTEXT", "SSL", "SASL_SSL"]),
    st.sampled_from(["", "h", "127.0.0.1", "::1", "fe80::1%eth0"]),
    st.integers(-1, 65535),
)
VALUES: dict[Decode, st.SearchStrategy[Any]] = {
    znodes.decode_cluster_id: TEXT,
    ControllerRegistration.decode: st.builds(ControllerRegistration, INT32, LONGS, INT32),
    znodes.decode_controller_epoch: INT32,
    FeatureLevels.decode: st.builds(FeatureLevels, st.dictionaries(NAMES, INT32), st.booleans()),
    BrokerRegistration.decode: st.builds(
        BrokerRegistration,
        st.lists(ENDPOINTS, unique_by=lambda each: each.listener).map(tuple),
        LONGS,
        st.none() | TEXT,
        INT32,
        st.dictionaries(NAMES, st.tuples(INT32, INT32), max_size=3),
    ),
    ProducerIdBlock.decode: st.builds(ProducerIdBlock, INT32, LONGS, LONGS),
    TopicAssignment.decode: st.builds(
        TopicAssignment,
        st.none() | st.binary(min_size=16, max_size=16).map(Uuid),
        st.dictionaries(IDS, st.builds(ReplicaAssignment, BROKERS, BROKERS, BROKERS)),
    ),
    PartitionLeader.decode: st.builds(PartitionLeader, INT32, INT32, BROKERS, INT32, st.booleans()),
    znodes.decode_config: st.dictionaries(TEXT, TEXT, max_size=40),
    znodes.decode_config_change: TEXT,
    znodes.decode_partitions: st.lists(PARTITIONS, max_size=5).map(tuple),
    znodes.decode_reassignment: st.dictionaries(PARTITIONS, BROKERS, max_size=5),
    znodes.decode_log_dir_failure: INT32,
}


@given(st.data())
@pytest.mark.parametrize("decode", VALUES)
def test_any_value_comes_back(decode: Decode, data: st.DataObject) -> None:
    value = data.draw(VALUES[decode])
    written = encode(decode, value)
    assert decode(PATH, written) == value
    assert encode(decode, decode(PATH, written)) == written


@given(st.dictionaries(TEXT, TEXT, max_size=60))
def test_a_config_keeps_the_order_in_which_it_was_written(config: dict[str, str]) -> None:
    """Who changes one value changes nothing else of the text."""
    written = znodes.encode_config(config)
    found = znodes.decode_config(PATH, written)
    assert znodes.encode_config(found) == written
    assert json.loads(written) == {"version": 1, "config": config}


# --- what makes no sense --------------------------------------------------------------------------------------------

BAD: list[tuple[Decode, bytes, str]] = [
    (PartitionLeader.decode, b"", "must hold JSON, and it holds b''"),
    (PartitionLeader.decode, b"{", "must hold JSON"),
    (PartitionLeader.decode, b"\xff\xfe\xfd", "must hold JSON"),
    (PartitionLeader.decode, b"[" * 200_000, "must hold JSON"),
    (PartitionLeader.decode, b"[]", r"must hold a JSON object, and it holds b'\[\]'"),
    (PartitionLeader.decode, b'{"leader_epoch":1}', "field leader is missing; it must hold an integer"),
    (
        PartitionLeader.decode,
        b'{"leader":"1","leader_epoch":1,"isr":[],"controller_epoch":1}',
        "leader must hold an integer, and it holds '1'",
    ),
    (PartitionLeader.decode, b'{"leader":true}', "leader must hold an integer, and it holds True"),
    (PartitionLeader.decode, b'{"leader":1.0}', "leader must hold an integer, and it holds 1.0"),
    (PartitionLeader.decode, b'{"leader":2147483648}', "leader must hold an integer, and it holds 2147483648"),
    (PartitionLeader.decode, b'{"leader":1,"leader_epoch":1,"isr":[null]}', "isr must hold a list of integers"),
    (PartitionLeader.decode, b'{"leader":1,"leader_epoch":1,"isr":3}', "isr must hold a list of integers"),
    (PartitionLeader.decode, b'{"leader_recovery_state":2}', "leader_recovery_state must hold 0 or 1, and it holds 2"),
    (TopicAssignment.decode, b'{"version":3}', "field partitions is missing; it must hold an object"),
    (TopicAssignment.decode, b'{"partitions":[]}', "partitions must hold an object"),
    (TopicAssignment.decode, b'{"partitions":{"x":[1]}}', "'x' is no number of a partition"),
    (TopicAssignment.decode, b'{"partitions":{"2147483648":[1]}}', "'2147483648' is no number of a partition"),
    (TopicAssignment.decode, b'{"partitions":{"0":["1"]}}', "field partitions.0 must hold a list of integers"),
    (TopicAssignment.decode, b'{"partitions":{"0":[1]},"adding_replicas":{"0":1}}', "adding_replicas.0 must hold"),
    (TopicAssignment.decode, b'{"partitions":{},"topic_id":"x"}', "topic_id: 'x' is no id"),
    (TopicAssignment.decode, b'{"partitions":{},"topic_id":7}', "topic_id must hold a string, and it holds 7"),
    (BrokerRegistration.decode, b'{"version":0}', "version must hold 1 or more, and it holds 0"),
    (BrokerRegistration.decode, b'{"version":5,"endpoints":["h:9092"]}', "endpoint 'h:9092' is not of the form"),
    (
        BrokerRegistration.decode,
        b'{"version":5,"endpoints":["A://h:1"],"listener_security_protocol_map":{"B":"SSL"}}',
        "listener_security_protocol_map.A is missing",
    ),
    (ControllerRegistration.decode, b'{"brokerid":1,"timestamp":"1x"}', "timestamp must hold a number in a string"),
    (
        ControllerRegistration.decode,
        b'{"brokerid":1,"timestamp":"9223372036854775808"}',
        "timestamp must hold a number",
    ),
    (znodes.decode_controller_epoch, b"", "must hold an integer, and it holds b''"),
    (znodes.decode_controller_epoch, b"1 ", "must hold an integer"),
    (znodes.decode_controller_epoch, b"2147483648", "must hold an integer"),
    (FeatureLevels.decode, b'{"version":3,"status":1}', "version must hold 1 or 2, and it holds 3"),
    (FeatureLevels.decode, b'{"version":2,"status":2}', "status must hold 0 or 1, and it holds 2"),
    (znodes.decode_config, b'{"version":1,"config":{"retention.ms":1}}', "config.retention.ms must hold a string"),
    (znodes.decode_config, b'{"version":1,"config":[]}', "config must hold an object"),
    (znodes.decode_config_change, b'{"version":3}', "version must hold 1 or 2, and it holds 3"),
    (znodes.decode_partitions, b'{"partitions":[{"topic":"t"}]}', r"partitions\[0\].partition is missing"),
    (znodes.decode_partitions, b'{"partitions":[1]}', "partitions must hold a list of objects"),
    (znodes.decode_cluster_id, b'{"version":"1"}', "field id is missing; it must hold a string"),
]


@pytest.mark.parametrize(("decode", "data", "reason"), BAD)
def test_bad_content_is_told_with_its_path(decode: Decode, data: bytes, reason: str) -> None:
    with pytest.raises(ZnodeError, match=reason) as caught:
        decode(PATH, data)
    assert str(caught.value).startswith(f"{PATH}: ")
    assert len(str(caught.value)) < 500


FIELDS = st.sampled_from(["version", "partitions", "0", "isr", "leader", "config", "features", "endpoints", "x"])
JSON = st.recursive(
    st.none() | st.booleans() | INT32 | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner),
    max_leaves=8,
)


@given(st.binary(max_size=50) | JSON.map(lambda value: json.dumps(value).encode()))
@pytest.mark.parametrize("decode", VALUES)
def test_whatever_a_node_holds_it_is_read_or_refused(decode: Decode, data: bytes) -> None:
    with suppress(ZnodeError):
        decode(PATH, data)
