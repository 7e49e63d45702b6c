"""Our admin and configs."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.client.administer import (
    Admin,
    Append,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigType,
    NewTopic,
    ResourceType,
    SomeRefusedError,
    Subtract,
)
from ottla.client.errors import ClientError
from support.clients.peers import WITH_ZOOKEEPER, Peer
from support.waiting import wait_until

PEER = os.environ.get("OTTLA_TEST_PEER")


@pytest.fixture
def admin(strict_broker: Peer) -> Iterator[Admin]:
    with Admin(bootstrap_servers=strict_broker.bootstrap) as admin:
        yield admin


@pytest.fixture
def resource(admin: Admin, topic: str) -> ConfigResource:
    admin.create_topics([NewTopic(topic)])
    return ConfigResource.topic(topic)


def entry(admin: Admin, resource: ConfigResource, name: str) -> ConfigEntry:
    return admin.describe_configs([resource])[resource][name]


def reads(admin: Admin, resource: ConfigResource, name: str, value: str, source: ConfigSource) -> None:
    """Brokers learn of changes a moment later."""

    def seen() -> bool:
        found = admin.describe_configs([resource])[resource].get(name)
        return found is not None and (found.value, found.source) == (value, source)

    wait_until(seen, f"{name} of {resource} is not {value} from {source.name}")


def test_single_configs_are_changed_and_the_others_left_alone(admin: Admin, resource: ConfigResource) -> None:
    admin.incremental_alter_configs({resource: {"retention.ms": "5000", "cleanup.policy": "compact"}})
    reads(admin, resource, "retention.ms", "5000", ConfigSource.TOPIC)
    admin.incremental_alter_configs({resource: {"cleanup.policy": Append("delete")}})
    reads(admin, resource, "cleanup.policy", "compact,delete", ConfigSource.TOPIC)
    admin.incremental_alter_configs({resource: {"cleanup.policy": Subtract("compact"), "retention.ms": None}})
    reads(admin, resource, "cleanup.policy", "delete", ConfigSource.TOPIC)
    wait_until(
        lambda: entry(admin, resource, "retention.ms").source is not ConfigSource.TOPIC, "retention.ms is still set"
    )


def test_requested_configs_are_returned(admin: Admin, resource: ConfigResource) -> None:
    admin.incremental_alter_configs({resource: {"segment.bytes": "2097152"}})
    reads(admin, resource, "segment.bytes", "2097152", ConfigSource.TOPIC)
    keys = ["segment.bytes", "cleanup.policy"]
    plain = admin.describe_configs([resource], keys=keys)[resource]
    assert list(plain) == sorted(keys)
    assert plain["segment.bytes"].synonyms == ()
    assert not plain["segment.bytes"].documentation
    found = admin.describe_configs([resource], keys=keys, include_synonyms=True, include_documentation=True)[resource]
    size = found["segment.bytes"]
    assert (size.type, size.is_read_only, size.is_sensitive, size.is_default) == (ConfigType.INT, False, False, False)
    assert size.documentation
    assert size.synonyms[0].source is ConfigSource.TOPIC
    assert [(one.name, one.value) for one in size.synonyms][-1] == ("log.segment.bytes", "1073741824")
    assert found["cleanup.policy"].type is ConfigType.LIST
    assert found["cleanup.policy"].is_default


def test_what_cannot_be_is_refused_and_named(admin: Admin, resource: ConfigResource) -> None:
    absent = ConfigResource.topic("absent")
    with pytest.raises(SomeRefusedError) as refused:
        admin.incremental_alter_configs({resource: {"retention.ms": "soon"}, absent: {"retention.ms": "1"}})
    assert {one: error.code for one, error in refused.value.errors.items()} == {
        resource: ErrorCode.INVALID_CONFIG,
        absent: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    with pytest.raises(SomeRefusedError) as refused:
        admin.describe_configs([absent, resource])
    assert list(refused.value.results) == [resource]
    admin.incremental_alter_configs({resource: {"retention.ms": "6000"}}, validate_only=True)
    assert entry(admin, resource, "retention.ms").source is not ConfigSource.TOPIC
    with pytest.raises(ClientError, match="there is no broker 77 in the cluster; its brokers are"):
        admin.describe_configs([ConfigResource.broker(77)])
    with pytest.raises(ClientError, match="the name of a broker resource must be its id"):
        admin.describe_configs([ConfigResource(ResourceType.BROKER, "mine")])
    with pytest.raises(TypeError, match=r"mapping of str to str.*contains \{'retention.ms': 5\}"):
        admin.incremental_alter_configs({resource: {"retention.ms": 5}})  # type: ignore[dict-item]


def test_configs_are_replaced_as_a_whole(admin: Admin, resource: ConfigResource) -> None:
    admin.incremental_alter_configs({resource: {"retention.ms": "5000", "cleanup.policy": "compact"}})
    reads(admin, resource, "cleanup.policy", "compact", ConfigSource.TOPIC)
    admin.replace_configs({resource: {"retention.ms": "7000"}})
    reads(admin, resource, "retention.ms", "7000", ConfigSource.TOPIC)
    wait_until(
        lambda: entry(admin, resource, "cleanup.policy").source is ConfigSource.DEFAULT, "cleanup.policy is still set"
    )


def test_brokers_and_their_loggers(admin: Admin) -> None:
    (me,) = (broker.broker_id for broker in admin.describe_cluster().brokers)
    one, everyone = ConfigResource.broker(me), ConfigResource.broker(None)
    key = "log.segment.delete.delay.ms"
    admin.incremental_alter_configs({one: {key: "50000"}, everyone: {key: "40000"}})
    try:
        reads(admin, one, key, "50000", ConfigSource.DYNAMIC_BROKER)
        reads(admin, everyone, key, "40000", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    finally:
        admin.incremental_alter_configs({one: {key: None}, everyone: {key: None}})
    loggers = ConfigResource(ResourceType.BROKER_LOGGER, str(me))
    found = admin.describe_configs([loggers])[loggers]
    name, logger = next(iter(found.items()))
    admin.incremental_alter_configs({loggers: {name: "ERROR"}})
    assert entry(admin, loggers, name).value == "ERROR"
    assert logger.value is not None
    admin.incremental_alter_configs({loggers: {name: logger.value}})
    assert entry(admin, loggers, name).value == logger.value


@pytest.mark.skipif(PEER == WITH_ZOOKEEPER, reason="Kafka with ZooKeeper does not list what has configs")
def test_everything_that_has_configs(admin: Admin, resource: ConfigResource) -> None:
    (me,) = (broker.broker_id for broker in admin.describe_cluster().brokers)
    assert resource in admin.list_config_resources([ResourceType.TOPIC])
    assert ConfigResource.broker(me) in admin.list_config_resources()
    assert {one.kind for one in admin.list_config_resources([ResourceType.TOPIC])} == {ResourceType.TOPIC}
    assert admin.list_config_resources([ResourceType.CLIENT_METRICS]) == []
