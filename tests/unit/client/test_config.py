"""What clients are set up with: spellings, values, what does not go together, and words for all that is wrong."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import pytest

from ottla.base.config import ConfigError as BaseConfigError
from ottla.client.config import AdminConfig, CommonConfig, ConsumerConfig, ProducerConfig
from ottla.client.config_keys.elsewhere import HARMLESS_VALUES, OWNERS, REFUSED, WITHOUT_EFFECT
from ottla.client.config_keys.rules import duration_ms
from ottla.client.errors import ClientError, ConfigError
from ottla.net.client_connection import Address
from ottla.records import Compression

CONFIGS: list[type[CommonConfig]] = [CommonConfig, ProducerConfig, ConsumerConfig, AdminConfig]

BY_KIND = {config.SCHEMA.kind: config for config in CONFIGS}


def producer(settings: dict[str, object] | None = None, /, **keywords: object) -> ProducerConfig:
    return ProducerConfig.parse({"bootstrap.servers": "localhost:9092", **(settings or {})}, keywords)


def consumer(settings: dict[str, object] | None = None, /, **keywords: object) -> ConsumerConfig:
    return ConsumerConfig.parse({"bootstrap.servers": "localhost:9092", **(settings or {})}, keywords)


@pytest.mark.parametrize("config", CONFIGS)
def test_each_key_has_its_attribute(config: type[CommonConfig]) -> None:
    short = {"interceptor_classes": "interceptors", "partitioner_class": "partitioner"}
    names = [key.name.replace(".", "_") for key in config.SCHEMA]
    assert sorted(short.get(name, name) for name in names) == sorted(one.name for one in dataclasses.fields(config))
    for key in config.SCHEMA:
        assert key.doc.endswith("."), key.name
        if key.default not in (None, ()):
            assert key.rule(key.default) is None, key.name


def test_defaults_are_in_the_units_of_the_attributes() -> None:
    config = producer()
    assert (config.acks, config.compression_type, config.enable_idempotence) == (-1, Compression.NONE, True)
    assert (config.linger_ms, config.batch_size, config.retries) == (5, 16384, 2**31 - 1)
    assert config.bootstrap_servers == (Address("localhost", 9092),)
    assert (config.key_serializer, config.partitioner, config.interceptors) == (None, None, ())
    assert AdminConfig.parse({"bootstrap.servers": "a:1"}).connections_max_idle_ms == 300_000
    assert consumer().connections_max_idle_ms == 540_000
    assert consumer().partition_assignment_strategy == ("range", "cooperative-sticky")


def test_names_of_kafka_and_of_python_are_the_same_keys() -> None:
    expected = producer({"linger.ms": 7, "max.in.flight.requests.per.connection": 2})
    assert producer(linger_ms=7, max_in_flight_requests_per_connection=2) == expected
    assert producer({"linger_ms": 7, "max_in_flight_requests_per_connection": 2}) == expected
    assert producer(**{"linger.ms": 7, "max.in.flight.requests.per.connection": 2}) == expected
    assert expected.linger_ms == 7


def test_keywords_win_over_the_mapping() -> None:
    assert producer({"linger.ms": 7}, linger_ms=8).linger_ms == 8


def test_a_key_in_both_spellings_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"linger_ms: is set twice, also as linger\.ms"):
        producer({"linger.ms": 7, "linger_ms": 7})


def test_none_leaves_the_default() -> None:
    assert producer(linger_ms=None, transactional_id=None).linger_ms == 5


def test_values_are_python_s_or_texts() -> None:
    assert producer(linger_ms="7").linger_ms == 7
    assert producer(enable_idempotence="FALSE").enable_idempotence is False
    assert producer(acks="all").acks == producer(acks=-1).acks == producer(acks="-1").acks == -1
    assert producer(acks=0).acks == 0
    assert producer(compression_type="zstd").compression_type is Compression.ZSTD
    assert consumer(group_protocol="CONSUMER").group_protocol == "consumer"
    assert consumer(auto_offset_reset="Earliest").auto_offset_reset == "earliest"


def test_levels_are_those_of_the_codec() -> None:
    levels: dict[str, object] = {"compression_gzip_level": 6, "compression_zstd_level": 9}
    assert producer(compression_type="gzip", **levels).compression_level == 6
    assert producer(compression_type="zstd", **levels).compression_level == 9
    assert producer(compression_type="lz4", **levels).compression_level is None
    assert producer(compression_type="snappy", **levels).compression_level is None


def test_addresses_come_as_text_list_or_pairs() -> None:
    expected = (Address("a", 1), Address("::1", 2))
    for given in ("a:1, [::1]:2", ["a:1", "[::1]:2"], ("a:1,[::1]:2", "a:1"), [Address("a", 1), Address("::1", 2)]):
        assert CommonConfig.parse({}, {"bootstrap_servers": given}).bootstrap_servers == expected


def test_clients_have_a_name() -> None:
    names = [config.parse({"bootstrap.servers": "a:1"}).client_id for config in CONFIGS]
    assert names == ["ottla", "ottla-producer", "ottla-consumer", "ottla-admin"]
    assert producer(client_id="mine").client_id == "mine"


def test_objects_are_kept_as_they_are() -> None:
    def function(topic: str, value: Any) -> bytes:
        return f"{topic}{value}".encode()

    class Assignor:
        name = "mine"

    mine, interceptor = Assignor(), object()
    config = producer(key_serializer=function, value_serializer="json", interceptors=[interceptor], partitioner=max)
    assert (config.key_serializer, config.value_serializer) == (function, "json")
    assert (config.interceptors, config.partitioner) == ((interceptor,), max)
    assert consumer(partition_assignment_strategy=mine).partition_assignment_strategy == (mine,)
    assert consumer(partition_assignment_strategy=["sticky", mine]).partition_assignment_strategy == ("sticky", mine)


def test_names_of_java_s_classes_stand_for_what_is_here() -> None:
    home = "org.apache.kafka.clients"
    strategy = f"{home}.consumer.CooperativeStickyAssignor,{home}.consumer.RoundRobinAssignor"
    config = consumer({"partition.assignment.strategy": strategy})
    assert config.partition_assignment_strategy == ("cooperative-sticky", "roundrobin")
    assert producer({"partitioner.class": f"{home}.producer.RoundRobinPartitioner"}).partitioner == "roundrobin"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("linger.mss", "linger.mss: unknown producer config; did you mean linger.ms?"),
        ("lingerms", "lingerms: unknown producer config; did you mean linger.ms?"),
        ("bufer_memory", "bufer_memory: unknown producer config; did you mean buffer_memory?"),
        ("group.id", "group.id: unknown producer config; only consumers have it"),
        (
            "default_api_timeout_ms",
            "default_api_timeout_ms: unknown producer config; only consumers and admins",
        ),
        ("share.acquire.mode", "share.acquire.mode: unknown producer config; only consumers have it"),
        ("qwertz", "qwertz: unknown producer config; see docs/reference/client-config.md for all of them"),
    ],
)
def test_an_unknown_key_names_the_right_one(name: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        producer({name: "1"})
    assert str(caught.value).startswith(sentence)
    assert caught.value.key == name
    assert isinstance(caught.value, ClientError)
    assert isinstance(caught.value, BaseConfigError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("acks", 2, "'2' is not one of all, -1, 0, 1"),
        ("acks", True, "True is not a text"),
        ("linger_ms", -1, "-1 is less than 0"),
        ("linger.ms", "soon", "'soon' is not a whole number"),
        ("linger_ms", 0.5, "0.5 is not a whole number"),
        ("linger_ms", True, "True is not a whole number"),
        ("batch_size", 2**31, f"{2**31} does not fit a int"),
        ("enable_idempotence", "yes", "'yes' is neither true nor false"),
        ("enable_idempotence", 1, "1 is not a boolean"),
        ("client_id", b"x", "b'x' is not a text"),
        ("compression_type", "brotli", "'brotli' is not one of none, gzip, snappy, lz4, zstd"),
        ("compression_gzip_level", 0, "0 is neither between 1 and 9 nor -1"),
        ("bootstrap_servers", "localhost", "'localhost' is not the address of a broker"),
        ("bootstrap_servers", "", "is empty: use host:port"),
        ("bootstrap_servers", 9092, "'9092' is not the address of a broker"),
        ("key_serializer", 5, "5 is neither a function nor the name of a built-in one"),
        ("key_serializer", dict, "dict is a class: pass an instance"),
        ("interceptors", "com.example.Mine", "'com.example.Mine' is a str: Java classes cannot be loaded"),
        ("interceptors", [dict], "dict is a class: pass an instance"),
        ("partitioner", "murmur2_random", "'murmur2_random' is not a partitioner"),
        ("metadata_max_idle_ms", 1, "1 is less than 5000"),
    ],
)
def test_a_wrong_value_is_reported_with_its_key(key: str, value: object, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.parse({"client.id": "x"} if key != "client_id" else {}, {"bootstrap_servers": "a:1", key: value})
    assert str(caught.value).startswith(f"{key}: {reason}")


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("auto_offset_reset", "by_duration:1h", "'1h' is not an ISO 8601 duration such as PT1H"),
        ("auto_offset_reset", "by_duration:PT", "'PT' is not an ISO 8601 duration"),
        ("auto_offset_reset", "by_duration:-PT1S", "'by_duration:-PT1S' must not be negative"),
        ("auto_offset_reset", "smallest", "'smallest' is not one of earliest, latest, none"),
        ("group_instance_id", "", "is empty"),
        ("group_protocol", "share", "'share' is not one of classic, consumer, zookeeper"),
        ("isolation_level", "READ_COMMITTED", "'READ_COMMITTED' is not one of read_committed, read_uncommitted"),
        ("max_poll_records", 0, "0 is less than 1"),
        (
            "partition_assignment_strategy",
            "fair",
            "'fair' is neither one of range, roundrobin, sticky, cooperative-sticky",
        ),
        ("partition_assignment_strategy", [dict], "dict is a class: pass an instance"),
        ("partition_assignment_strategy", [], "is empty: use one or more of range"),
    ],
)
def test_a_wrong_value_of_a_consumer(key: str, value: object, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        consumer(**{key: value})
    assert str(caught.value).startswith(f"{key}: {reason}")


@pytest.mark.parametrize("settings", [{}, {"bootstrap.servers": None}])
def test_without_an_address_there_is_no_client(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers: is required: set the address of a broker"):
        AdminConfig.parse(settings)


def test_a_name_that_is_no_text() -> None:
    with pytest.raises(ConfigError, match="5: the name of a config must be a str"):
        AdminConfig.parse({5: 6})  # type: ignore[dict-item]


# What Kafka's clients have and these do not.


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_keys_that_are_not_possible_say_why(name: str) -> None:
    config = BY_KIND[min(OWNERS[name])]
    with pytest.raises(ConfigError) as caught:
        config.parse({"bootstrap.servers": "a:1", name: "x"})
    assert str(caught.value) == f"{name}: cannot be set: {REFUSED[name]}"


def test_a_transactional_producer_is_idempotent_and_waits_for_all_replicas() -> None:
    config = producer(transactional_id="t")
    assert (config.enable_idempotence, config.acks) == (True, -1)
    assert (config.transaction_timeout_ms, config.transaction_two_phase_commit_enable) == (60_000, False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"transactional.id": ""}, "transactional.id: is empty"),
        ({"transactional.id": "t", "acks": 1}, "transactional.id: cannot be combined with acks=1: it needs acks=all"),
        (
            {"transactional.id": "t", "enable.idempotence": False},
            "transactional.id: cannot be combined with enable.idempotence=false: leave that out",
        ),
        (
            {"transactional.id": "t", "retries": 0},
            "transactional.id: cannot be combined with retries=0: it needs at least one",
        ),
        (
            {"transactional.id": "t", "max.in.flight.requests.per.connection": 6},
            "transactional.id: cannot be combined with max.in.flight.requests.per.connection=6: the maximum is 5",
        ),
        (
            {"transaction.two.phase.commit.enable": True},
            "transaction.two.phase.commit.enable: true needs a transactional.id",
        ),
        (
            {
                "transactional.id": "t",
                "transaction.two.phase.commit.enable": True,
                "transaction.timeout.ms": 5,
            },
            "transaction.timeout.ms: cannot be combined with transaction.two.phase.commit.enable=true: these "
            "transactions have no timeout",
        ),
    ],
)
def test_configs_that_contradict_transactions(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        producer(settings)
    assert str(caught.value) == message


@pytest.mark.parametrize("value", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_nothing_is_sent_in_the_open_that_was_meant_to_be_secret(value: str) -> None:
    assert producer({"security.protocol": "PLAINTEXT"}) == producer()
    with pytest.raises(ConfigError, match="TLS and SASL are not supported yet"):
        producer({"security.protocol": value})


@pytest.mark.parametrize("name", sorted(WITHOUT_EFFECT))
def test_keys_without_effect_are_taken_with_a_word(name: str, caplog: pytest.LogCaptureFixture) -> None:
    config = BY_KIND[max(OWNERS[name])]
    with caplog.at_level(logging.WARNING):
        config.parse({"bootstrap.servers": "a:1", name: "x"})
    assert caplog.messages == [f"{name} has no effect here: {WITHOUT_EFFECT[name]}"]


def test_no_key_is_in_two_lists() -> None:
    lists = [set(REFUSED), set(WITHOUT_EFFECT), set(HARMLESS_VALUES), {key.name for c in CONFIGS for key in c.SCHEMA}]
    assert sum(map(len, lists)) == len(set().union(*lists))


# What does not go together.


def test_idempotence_yields_where_it_was_not_asked_for() -> None:
    assert producer(acks=1).enable_idempotence is False
    assert producer(retries=0).enable_idempotence is False
    assert producer(max_in_flight_requests_per_connection=6).enable_idempotence is False


@pytest.mark.parametrize(
    ("keywords", "reason"),
    [
        ({"acks": 1}, "acks=1: it needs acks=all"),
        ({"retries": 0}, "retries=0: it needs at least one"),
        ({"max_in_flight_requests_per_connection": 6}, "max.in.flight.requests.per.connection=6"),
    ],
)
def test_idempotence_that_was_asked_for_does_not_yield(keywords: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=f"enable.idempotence: true cannot be combined with {reason}"):
        producer(enable_idempotence=True, **keywords)


def test_a_delivery_has_time_for_one_request() -> None:
    assert producer(request_timeout_ms=200_000).delivery_timeout_ms == 200_005
    with pytest.raises(ConfigError, match=r"delivery\.timeout\.ms: 100 is less than .*, which is 30005"):
        producer(delivery_timeout_ms=100)


def test_commits_need_a_group() -> None:
    assert consumer().enable_auto_commit is False
    assert consumer(group_id="g").enable_auto_commit is True
    assert consumer(group_id="g", enable_auto_commit=False).enable_auto_commit is False
    with pytest.raises(ConfigError, match=r"enable\.auto\.commit: true needs a group\.id"):
        consumer(enable_auto_commit=True)


def test_a_heartbeat_fits_into_a_session() -> None:
    with pytest.raises(ConfigError, match=r"heartbeat\.interval\.ms: 3000 must be less than session\.timeout\.ms"):
        consumer(group_id="g", session_timeout_ms=3000)


def test_in_the_newer_protocol_the_broker_decides() -> None:
    assert consumer(group_protocol="consumer", group_remote_assignor="range").group_remote_assignor == "range"
    for name, value in (("session_timeout_ms", 10_000), ("partition_assignment_strategy", "range")):
        with pytest.raises(ConfigError, match=r"cannot be set with group.protocol=consumer"):
            consumer(group_protocol="consumer", **{name: value})
    with pytest.raises(ConfigError, match=r"group\.remote\.assignor: needs group\.protocol=consumer"):
        consumer(group_remote_assignor="range")


ZOOKEEPER = {"group_id": "g", "group_protocol": "zookeeper", "zookeeper_connect": "localhost:2181/kafka"}


def test_the_protocol_of_kafka_0_8() -> None:
    config = consumer(**ZOOKEEPER)
    assert (config.zookeeper_connect, config.zookeeper_session_timeout_ms) == ("localhost:2181/kafka", 6000)
    assert (config.partition_assignment_strategy, config.offsets_storage) == (("range",), "zookeeper")
    assert (config.rebalance_max_retries, config.rebalance_backoff_ms) == (4, 2000)
    assert config.dual_commit_enabled is False
    assert consumer(**ZOOKEEPER, zookeeper_session_timeout_ms=9000).zookeeper_connection_timeout_ms == 9000
    assert consumer(**ZOOKEEPER, partition_assignment_strategy="roundrobin").partition_assignment_strategy == (
        "roundrobin",
    )
    in_kafka = consumer(**ZOOKEEPER, offsets_storage="KAFKA")
    assert (in_kafka.offsets_storage, in_kafka.dual_commit_enabled) == ("kafka", True)
    assert consumer(**ZOOKEEPER, offsets_storage="kafka", dual_commit_enabled=False).dual_commit_enabled is False


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"zookeeper_connect": None}, r"zookeeper\.connect: is required with group\.protocol=zookeeper"),
        ({"zookeeper_connect": ""}, r"zookeeper_connect: is empty"),
        ({"group_id": "a/b"}, r"group\.id: 'a/b' cannot be used with group\.protocol=zookeeper: use letters"),
        ({"group_id": ".."}, r"group\.id: '\.\.' cannot be used"),
        ({"session_timeout_ms": 9000}, r"session\.timeout\.ms: cannot .*: set zookeeper\.session\.timeout\.ms"),
        ({"heartbeat_interval_ms": 9}, r"heartbeat\.interval\.ms: cannot be set with group\.protocol=zookeeper"),
        ({"group_instance_id": "i"}, r"group\.instance\.id: cannot be set .*: ZooKeeper groups have no static members"),
        (
            {"group_remote_assignor": "range"},
            r"group\.remote\.assignor: cannot be set .* needs group\.protocol=consumer",
        ),
        (
            {"partition_assignment_strategy": "sticky"},
            r"must be one of range, roundrobin with group\.protocol=zookeeper",
        ),
        ({"partition_assignment_strategy": "range,roundrobin"}, r"must be one of range, roundrobin"),
        ({"dual_commit_enabled": True}, r"dual\.commit\.enabled: true needs offsets\.storage=kafka"),
        ({"offsets_storage": "file"}, r"offsets_storage: 'file' is not one of zookeeper, kafka"),
        ({"rebalance_max_retries": 0}, r"rebalance_max_retries: 0 is less than 1"),
    ],
)
def test_what_contradicts_the_protocol_of_kafka_0_8(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        consumer(**{**ZOOKEEPER, **settings})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("zookeeper_connect", "h:1"),
        ("offsets_storage", "kafka"),
        ("rebalance_backoff_ms", 1),
        ("dual_commit_enabled", True),
    ],
)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_other_protocols_need_no_zookeeper(name: str, value: object, protocol: str) -> None:
    with pytest.raises(ConfigError, match=f"{name.replace('_', '.')}: needs group.protocol=zookeeper"):
        consumer(group_protocol=protocol, **{name: value})


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("PT1H", 3_600_000),
        ("pt0s", 0),
        ("P7D", 7 * 86_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("PT-1H90M", 1_800_000),
        ("-PT1.25S", -1250),
        ("PT-0.5S", -500),
    ],
)
def test_durations_are_those_of_iso_8601(text: str, expected_ms: int) -> None:
    assert duration_ms(text) == expected_ms
