"""Configs of topics and brokers, described and changed while the broker runs."""

from __future__ import annotations

import pytest
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource
from confluent_kafka.admin._resource import ResourceType

from ottla.base.error_codes import ErrorCode
from support.clients.aiokafka_client import AiokafkaClient
from support.clients.confluent_client import ConfluentAdmin, ConfluentClient, only_result
from support.clients.dialect import Client, ConfigSeen, ProducerSettings, Record, refused
from support.clients.kafka_python_client import KafkaPythonClient
from support.waiting import wait_until

DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "retention.bytes": "-1",
    "segment.bytes": "1073741824",
    "unclean.leader.election.enable": "false",
}


def test_a_topic_tells_all_its_configs(client: Client, topic: str) -> None:
    with client.admin() as admin:
        admin.create_topic(topic, config={"retention.ms": "12345", "cleanup.policy": "compact,delete"})
        seen = admin.topic_config(topic)
    assert seen["retention.ms"] == ConfigSeen("12345", is_default=False, read_only=False)
    assert seen["cleanup.policy"] == ConfigSeen("compact,delete", is_default=False, read_only=False)
    for name in DEFAULTS.keys() - {"cleanup.policy"}:
        assert seen[name] == ConfigSeen(DEFAULTS[name], is_default=True, read_only=False), name


def test_a_broker_tells_its_configs(client: Client) -> None:
    with client.admin() as admin:
        seen = admin.broker_config(admin.cluster().controller)
    assert seen["log.retention.ms"].value == "-1"
    assert not seen["log.retention.ms"].is_default
    assert seen["num.partitions"] == ConfigSeen("1", is_default=True, read_only=True)
    assert seen["log.dirs"].read_only
    assert not seen["listeners"].read_only
    assert seen["message.max.bytes"] == ConfigSeen("1048588", is_default=True, read_only=False)


def test_configs_are_replaced_as_a_whole(client: Client, topic: str) -> None:
    with client.admin() as admin:
        admin.create_topic(topic, config={"retention.ms": "1000000", "segment.bytes": "2000000"})
        admin.replace_topic_config(topic, {"segment.bytes": "3000000", "max.message.bytes": "5000"})
        wait_until(lambda: admin.topic_config(topic)["segment.bytes"].value == "3000000", "no change is seen")
        seen = admin.topic_config(topic)
    assert seen["max.message.bytes"] == ConfigSeen("5000", is_default=False, read_only=False)
    # Reset to what the broker is started with.
    assert seen["retention.ms"].value == "-1"


def test_a_change_is_in_force_at_once(client: Client, topic: str) -> None:
    with client.admin() as admin, client.producer(ProducerSettings(max_bytes=10_000_000)) as producer:
        admin.create_topic(topic)
        producer.send(topic, [Record(b"x" * 20_000)])
        admin.replace_topic_config(topic, {"max.message.bytes": "10000"})
        wait_until(lambda: admin.topic_config(topic)["max.message.bytes"].value == "10000", "no change is seen")
        with refused(ErrorCode.MESSAGE_TOO_LARGE):
            producer.send(topic, [Record(b"x" * 20_000)])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.config", "1"),
        ("flush.ms", "soon"),
        ("cleanup.policy", "keep"),
        ("compression.type", "brotli"),
        ("max.message.bytes", "-1"),
        ("min.cleanable.dirty.ratio", "1.5"),
    ],
)
def test_a_config_that_cannot_be(name: str, value: str, client: Client, topic: str) -> None:
    with client.admin() as admin:
        with refused(ErrorCode.INVALID_CONFIG):
            admin.create_topic(f"{topic}-bad", config={name: value})
        assert f"{topic}-bad" not in admin.topics()
        admin.create_topic(topic)
        with refused(ErrorCode.INVALID_CONFIG):
            admin.replace_topic_config(topic, {name: value})
        seen = admin.topic_config(topic)
    assert name not in seen or seen[name].is_default


def test_a_record_that_breaks_a_config_of_its_topic(client: Client, topic: str) -> None:
    with client.admin() as admin:
        admin.create_topic(topic, config={"cleanup.policy": "compact"})
    # aiokafka does not know the code, and says so by -1.
    code = ErrorCode.UNKNOWN_SERVER_ERROR if isinstance(client, AiokafkaClient) else ErrorCode.INVALID_RECORD
    with client.producer() as producer:
        with refused(code):
            producer.send(topic, [Record(b"without a key")])
        assert producer.send(topic, [Record(b"with one", b"key")]) == [0]


def test_a_record_that_is_too_old_or_too_new(client: Client, topic: str) -> None:
    with client.admin() as admin:
        config = {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "1000"}
        admin.create_topic(topic, config=config)
    with client.producer() as producer:
        for timestamp_ms in (1_700_000_000_000, 4_000_000_000_000):
            with refused(ErrorCode.INVALID_TIMESTAMP):
                producer.send(topic, [Record(b"", timestamp_ms=timestamp_ms)])


def test_confluent_changes_configs_one_by_one(confluent: ConfluentClient, topic: str) -> None:
    set_, delete, append, subtract = (
        AlterConfigOpType.SET,
        AlterConfigOpType.DELETE,
        AlterConfigOpType.APPEND,
        AlterConfigOpType.SUBTRACT,
    )
    with confluent.admin() as admin:
        admin.create_topic(topic, config={"retention.bytes": "1000"})
        for operation, name, value, then in (
            (set_, "max.message.bytes", "5000", "5000"),
            (append, "cleanup.policy", "compact", "delete,compact"),
            (subtract, "cleanup.policy", "delete", "compact"),
            (delete, "cleanup.policy", "", "delete"),
            (delete, "max.message.bytes", "", "1048588"),
        ):
            _alter(admin, ResourceType.TOPIC, topic, ConfigEntry(name, value, incremental_operation=operation))
            wait_until(
                lambda name=name, then=then: admin.topic_config(topic)[name].value == then,  # type: ignore[misc]
                f"{operation} of {name} has not led to {then}",
            )
        # What was not named stays.
        assert admin.topic_config(topic)["retention.bytes"].value == "1000"
        with refused(ErrorCode.INVALID_CONFIG):
            bad = ConfigEntry("retention.bytes", "many", incremental_operation=set_)
            _alter(admin, ResourceType.TOPIC, topic, bad)


def test_confluent_changes_a_config_of_the_broker(confluent: ConfluentClient, topic: str) -> None:
    """A topic without a value of its own follows, and tells where its value comes from."""
    with confluent.admin() as admin:
        admin.create_topic(topic)
        me = str(admin.cluster().controller)
        resource = ConfigResource(ResourceType.TOPIC, topic)

        def segment_bytes() -> ConfigEntry:
            entry: ConfigEntry = only_result(admin.library.describe_configs([resource]))["segment.bytes"]
            return entry

        change = ConfigEntry("log.segment.bytes", "100000000", incremental_operation=AlterConfigOpType.SET)
        _alter(admin, ResourceType.BROKER, me, change)
        wait_until(lambda: segment_bytes().value == "100000000", "the topic does not follow the broker")
        assert ConfigSource(segment_bytes().source) is ConfigSource.DYNAMIC_BROKER_CONFIG
        reset = ConfigEntry("log.segment.bytes", "", incremental_operation=AlterConfigOpType.DELETE)
        _alter(admin, ResourceType.BROKER, me, reset)
        wait_until(lambda: segment_bytes().value == DEFAULTS["segment.bytes"], "the topic does not follow back")
        with refused(ErrorCode.INVALID_REQUEST):
            # It cannot change while the broker runs.
            fixed = ConfigEntry("num.partitions", "3", incremental_operation=AlterConfigOpType.SET)
            _alter(admin, ResourceType.BROKER, me, fixed)


def test_a_change_that_is_only_validated_changes_nothing(confluent: ConfluentClient, topic: str) -> None:
    change = ConfigEntry("max.message.bytes", "5000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    with confluent.admin() as admin:
        admin.create_topic(topic)
        only_result(admin.library.incremental_alter_configs([resource], validate_only=True))
        assert admin.topic_config(topic)["max.message.bytes"].is_default


def test_kafka_python_lists_what_has_configs(kafka_python: KafkaPythonClient, topic: str) -> None:
    with kafka_python.admin() as admin:
        admin.create_topic(topic)
        listed = admin.library.list_config_resources(["TOPIC", "BROKER"])
        assert topic in listed["topic"]
        assert listed["broker"] == [str(admin.cluster().controller)]


def test_kafka_python_sees_synonyms(kafka_python: KafkaPythonClient, topic: str) -> None:
    with kafka_python.admin() as admin:
        admin.create_topic(topic, config={"retention.ms": "5000"})
        synonyms = admin.synonyms(topic, "retention.ms")
    assert synonyms == [
        ("retention.ms", "5000", "DYNAMIC_TOPIC_CONFIG"),
        ("log.retention.ms", "-1", "STATIC_BROKER_CONFIG"),
        ("log.retention.hours", "168", "DEFAULT_CONFIG"),
    ]


def _alter(admin: ConfluentAdmin, kind: ResourceType, name: str, change: ConfigEntry) -> None:
    resource = ConfigResource(kind, name, incremental_configs=[change])
    only_result(admin.library.incremental_alter_configs([resource]))
