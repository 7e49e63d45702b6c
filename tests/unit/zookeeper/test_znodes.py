"""What nodes hold: as a Kafka 3.9.1 wrote them, in older versions, through any values, and when they make no sense."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.ids import TopicPartition, parse_uuid
from ottla.zookeeper import znodes
from ottla.zookeeper.node_json import ZnodeError
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
from support.strategies.znodes import INT32, KINDS, TEXT

PATH = "/some/node"
TOPIC_ID = "1ybv0NdtSzmZD7o_SGFBYA"

WRITTEN_BY_KAFKA: list[tuple[str, Any, bytes]] = [
    (
        "cluster-id",
        "AhoO-OlbTHaHwKboORGt0Q",
        b'{"version":"1","id":"AhoO-OlbTHaHwKboORGt0Q"}',
    ),
    (
        "controller",
        ControllerRegistration(1, 1794784599985),
        b'{"version":2,"brokerid":1,"timestamp":"1794784599985","kraftControllerEpoch":-1}',
    ),
    ("controller-epoch", 12, b"12"),
    ("features", FeatureLevels(), b'{"features":{},"version":2,"status":1}'),
    (
        "features",
        FeatureLevels({"x": 3}, is_enabled=False),
        b'{"features":{"x":{"max_version_level":3}},"version":2,"status":0}',
    ),
    (
        "broker",
        BrokerRegistration((Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 59601),), 1794784599901, "r1"),
        b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
        b'"endpoints":["PLAINTEXT://127.0.0.1:59601"],"rack":"r1","jmx_port":-1,"port":59601,"host":"127.0.0.1",'
        b'"version":5,"timestamp":"1794784599901"}',
    ),
    (
        "broker",
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
        "broker",
        BrokerRegistration((Endpoint("B", "SSL", "h", 10),), 5),
        b'{"features":{},"listener_security_protocol_map":{"B":"SSL"},"endpoints":["B://h:10"],"jmx_port":-1,'
        b'"port":-1,"host":null,"version":5,"timestamp":"5"}',
    ),
    (
        "producer-ids",
        ProducerIdBlock(1, 0, 999),
        b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}',
    ),
    (
        "topic",
        TopicAssignment(parse_uuid(TOPIC_ID), {index: ReplicaAssignment((1,)) for index in range(40)}),
        b'{"partitions":{"22":[1],"23":[1],"24":[1],"25":[1],"26":[1],"27":[1],"28":[1],"29":[1],"30":[1],"31":[1],'
        b'"10":[1],"32":[1],"11":[1],"33":[1],"12":[1],"34":[1],"13":[1],"35":[1],"14":[1],"36":[1],"15":[1],'
        b'"37":[1],"16":[1],"38":[1],"17":[1],"39":[1],"18":[1],"19":[1],"0":[1],"1":[1],"2":[1],"3":[1],"4":[1],'
        b'"5":[1],"6":[1],"7":[1],"8":[1],"9":[1],"20":[1],"21":[1]},"topic_id":"1ybv0NdtSzmZD7o_SGFBYA",'
        b'"adding_replicas":{},"removing_replicas":{},"version":3}',
    ),
    (
        "topic",
        TopicAssignment(None, {index: ReplicaAssignment((index,)) for index in range(12)}),
        b'{"partitions":{"11":[11],"0":[0],"1":[1],"2":[2],"3":[3],"4":[4],"5":[5],"6":[6],"7":[7],"8":[8],"9":[9],'
        b'"10":[10]},"adding_replicas":{},"removing_replicas":{},"version":3}',
    ),
    (
        "topic",
        TopicAssignment(
            None, {0: ReplicaAssignment((1, 2, 3), adding=(3,), removing=(1,)), 1: ReplicaAssignment((2,))}
        ),
        b'{"partitions":{"0":[1,2,3],"1":[2]},"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]},"version":3}',
    ),
    (
        "state",
        PartitionLeader(leader=1, leader_epoch=2, isr=(1, 5), controller_epoch=4),
        b'{"controller_epoch":4,"leader":1,"version":1,"leader_epoch":2,"isr":[1,5]}',
    ),
    (
        "state",
        PartitionLeader(-1, 2, (1, 5), 4, is_recovering=True),
        b'{"controller_epoch":4,"leader":-1,"version":1,"leader_recovery_state":1,"leader_epoch":2,"isr":[1,5]}',
    ),
    (
        "config",
        {"retention.ms": "1000", "segment.bytes": "1000000", "cleanup.policy": "compact"},
        b'{"version":1,"config":{"cleanup.policy":"compact","retention.ms":"1000","segment.bytes":"1000000"}}',
    ),
    (
        "config",
        {"key": '\x01\x1f\x7f"\\/é\u2028\U00010000\\u00ff\n'},
        b'{"version":1,"config":{"key":"\\u0001\\u001F\x7f\\"\\\\/\xc3\xa9\xe2\x80\xa8\\uD800\\uDC00\\\\u00ff\\n"}}',
    ),
    ("config", {}, b'{"version":1,"config":{}}'),
    ("config-change", "topics/t1", b'{"version":2,"entity_path":"topics/t1"}'),
    (
        "isr-change",
        (TopicPartition("a", 1), TopicPartition("b", 2)),
        b'{"version":1,"partitions":[{"topic":"a","partition":1},{"topic":"b","partition":2}]}',
    ),
    (
        "reassignment",
        {TopicPartition("a", 1): (1, 2)},
        b'{"version":1,"partitions":[{"topic":"a","partition":1,"replicas":[1,2]}]}',
    ),
    ("log-dir-failure", 3, b'{"version":1,"broker":3,"event":1}'),
    (
        "consumer",
        ConsumerRegistration({"visits": 1, "orders": 2}, ConsumerPattern.STATIC, 1417964160024),
        b'{"version":1,"subscription":{"visits":1,"orders":2},"pattern":"static","timestamp":"1417964160024"}',
    ),
    (
        "consumer",
        ConsumerRegistration({r"visits-\d+|orders": 3}, ConsumerPattern.WHITE_LIST, 1417964160024),
        b'{"version":1,"subscription":{"visits-\\\\d+|orders":3},"pattern":"white_list","timestamp":"1417964160024"}',
    ),
    ("consumer-owner", "g_host-1417964160024-1a2b3c4d-0", b"g_host-1417964160024-1a2b3c4d-0"),
    ("consumer-offset", 1234567890123, b"1234567890123"),
]


@pytest.mark.parametrize(("kind", "value", "data"), WRITTEN_BY_KAFKA)
def test_nodes_are_read_and_written_as_kafka_writes_them(kind: str, value: Any, data: bytes) -> None:
    assert KINDS[kind].decode(PATH, data) == value
    assert KINDS[kind].encode(value) == data


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
    consumer = b'{"pattern":"other","subscription":{"t":1},"version":1}'
    assert ConsumerRegistration.decode(PATH, consumer) == ConsumerRegistration({"t": 1}, ConsumerPattern.STATIC, -1)


# --- any values -----------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.data())
@pytest.mark.parametrize("kind", KINDS)
def test_any_value_comes_back(kind: str, data: st.DataObject) -> None:
    value = data.draw(KINDS[kind].values)
    written = KINDS[kind].encode(value)
    found = KINDS[kind].decode(PATH, written)
    assert found == value
    assert KINDS[kind].encode(found) == written


@settings(deadline=None)
@given(st.dictionaries(TEXT, TEXT, max_size=60))
def test_a_config_keeps_the_order_in_which_it_was_written(config: dict[str, str]) -> None:
    """Who changes one value changes nothing else of the text."""
    written = znodes.encode_config(config)
    found = znodes.decode_config(PATH, written)
    assert znodes.encode_config(found) == written
    assert json.loads(written) == {"version": 1, "config": config}


# --- what makes no sense --------------------------------------------------------------------------------------------

BAD: list[tuple[str, bytes, str]] = [
    ("state", b"", "must hold JSON, and it holds b''"),
    ("state", b"{", "must hold JSON"),
    ("state", b"\xff\xfe\xfd", "must hold JSON"),
    ("state", b"[" * 200_000, "must hold JSON"),
    ("state", b"[]", r"must hold a JSON object, and it holds b'\[\]'"),
    ("state", b'{"leader_epoch":1}', "field leader is missing; it must hold an integer"),
    (
        "state",
        b'{"leader":"1","leader_epoch":1,"isr":[],"controller_epoch":1}',
        "leader must hold an integer, and it holds '1'",
    ),
    ("state", b'{"leader":true}', "leader must hold an integer, and it holds True"),
    ("state", b'{"leader":1.0}', "leader must hold an integer, and it holds 1.0"),
    ("state", b'{"leader":2147483648}', "leader must hold an integer, and it holds 2147483648"),
    ("state", b'{"leader":1,"leader_epoch":1,"isr":[null]}', "isr must hold a list of integers"),
    ("state", b'{"leader":1,"leader_epoch":1,"isr":3}', "isr must hold a list of integers"),
    ("state", b'{"leader_recovery_state":2}', "leader_recovery_state must hold 0 or 1, and it holds 2"),
    ("topic", b'{"version":3}', "field partitions is missing; it must hold an object"),
    ("topic", b'{"partitions":[]}', "partitions must hold an object"),
    ("topic", b'{"partitions":{"x":[1]}}', "'x' is not the number of a partition"),
    ("topic", b'{"partitions":{"2147483648":[1]}}', "'2147483648' is not the number of a partition"),
    ("topic", b'{"partitions":{"0":["1"]}}', "field partitions.0 must hold a list of integers"),
    ("topic", b'{"partitions":{"0":[1]},"adding_replicas":{"0":1}}', "adding_replicas.0 must hold"),
    ("topic", b'{"partitions":{},"topic_id":"x"}', "topic_id: 'x' is not a valid id"),
    ("topic", b'{"partitions":{},"topic_id":7}', "topic_id must hold a string, and it holds 7"),
    ("broker", b'{"version":0}', "version must hold 1 or more, and it holds 0"),
    ("broker", b'{"version":5,"endpoints":["h:9092"]}', "endpoint 'h:9092' is not of the form"),
    (
        "broker",
        b'{"version":5,"endpoints":["A://h:1"],"listener_security_protocol_map":{"B":"SSL"}}',
        "listener_security_protocol_map.A is missing",
    ),
    ("controller", b'{"brokerid":1,"timestamp":"1x"}', "timestamp must hold a number in a string"),
    (
        "controller",
        b'{"brokerid":1,"timestamp":"9223372036854775808"}',
        "timestamp must hold a number",
    ),
    ("controller-epoch", b"", "must hold an integer, and it holds b''"),
    ("controller-epoch", b"1 ", "must hold an integer"),
    ("controller-epoch", b"2147483648", "must hold an integer"),
    ("features", b'{"version":3,"status":1}', "version must hold 1 or 2, and it holds 3"),
    ("features", b'{"version":2,"status":2}', "status must hold 0 or 1, and it holds 2"),
    ("config", b'{"version":1,"config":{"retention.ms":1}}', "config.retention.ms must hold a string"),
    ("config", b'{"version":1,"config":[]}', "config must hold an object"),
    ("config-change", b'{"version":3}', "version must hold 1 or 2, and it holds 3"),
    ("isr-change", b'{"partitions":[{"topic":"t"}]}', r"partitions\[0\].partition is missing"),
    ("isr-change", b'{"partitions":[1]}', "partitions must hold a list of objects"),
    ("cluster-id", b'{"version":"1"}', "field id is missing; it must hold a string"),
    ("consumer", b'{"subscription":{"t":1}}', "field pattern is missing; it must hold a string"),
    ("consumer", b'{"pattern":"static","subscription":{"t":"1"}}', "subscription.t must hold an integer"),
    ("consumer-owner", b"\xff", "must hold the id of a consumer's thread"),
    ("consumer-offset", b"", "must hold an offset, and it holds b''"),
    ("consumer-offset", b"1 ", "must hold an offset"),
    ("consumer-offset", b"9223372036854775808", "must hold an offset"),
]


@pytest.mark.parametrize(("kind", "data", "reason"), BAD)
def test_bad_content_is_reported_with_its_path(kind: str, data: bytes, reason: str) -> None:
    with pytest.raises(ZnodeError, match=reason) as caught:
        KINDS[kind].decode(PATH, data)
    assert str(caught.value).startswith(f"{PATH}: ")
    assert len(str(caught.value)) < 500


FIELDS = st.sampled_from(["version", "partitions", "0", "isr", "leader", "config", "features", "endpoints", "x"])
JSON = st.recursive(
    st.none() | st.booleans() | INT32 | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.binary(max_size=50) | JSON.map(lambda value: json.dumps(value).encode()))
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_node_holds_it_is_read_or_refused(kind: str, data: bytes) -> None:
    with suppress(ZnodeError):
        KINDS[kind].decode(PATH, data)
