"""Where Kafka 3.9 keeps what in ZooKeeper. What the nodes hold is in `znodes`."""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from typing import Final
from urllib.parse import quote, unquote

from ottla.base.coordination import Coordination, NodeExistsError

CLUSTER_ID: Final = "/cluster/id"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
FEATURE: Final = "/feature"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"

BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE: Final = "/brokers/seqid"
"""Empty: a broker without an id writes it, and takes the new version."""
TOPICS: Final = "/brokers/topics"

CONFIG: Final = "/config"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE_PREFIX: Final = f"{CONFIG_CHANGES}/config_change_"
"""The prefixes are for sequential nodes: each tells of one change, and is soon removed."""

ISR_CHANGES: Final = "/isr_change_notification"
ISR_CHANGE_PREFIX: Final = f"{ISR_CHANGES}/isr_change_"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX: Final = f"{LOG_DIR_EVENTS}/log_dir_event_"

DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION: Final = "/admin/preferred_replica_election"

CONSUMERS: Final = "/consumers"
"""Groups of Kafka 0.8's consumers, which need no coordinator."""

DEFAULT_ENTITY: Final = "<default>"
"""In place of a name: what holds for all of a kind that have nothing of their own."""


class ConfigKind(StrEnum):
    """What can have a config of its own."""

    TOPICS = "topics"
    CLIENTS = "clients"
    USERS = "users"
    BROKERS = "brokers"
    IPS = "ips"
    GROUPS = "groups"
    """Named as by Kafka 4, which has no ZooKeeper any more: 3.9 knows of none."""


def broker(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions(topic_name: str) -> str:
    return f"{TOPICS}/{topic_name}/partitions"


def partition(topic_name: str, index: int) -> str:
    return f"{TOPICS}/{topic_name}/partitions/{index}"


def partition_state(topic_name: str, index: int) -> str:
    return f"{TOPICS}/{topic_name}/partitions/{index}/state"


def deleted_topic(name: str) -> str:
    """There while the topic is being deleted."""
    return f"{DELETE_TOPICS}/{name}"


def config(kind: ConfigKind, entity: str) -> str:
    """`entity` as the node is named: names of users and clients go through `entity_name`."""
    return f"{CONFIG}/{kind}/{entity}"


def config_root(kind: ConfigKind) -> str:
    """Above all configs of that kind."""
    return f"{CONFIG}/{kind}"


def group_config(group_id: str) -> str:
    """A group may be called anything, also . or .., as no node can be."""
    name = entity_name(group_id)
    return config(ConfigKind.GROUPS, name if name.strip(".") else name.replace(".", "%2E"))


def user_client_config(user: str, client: str) -> str:
    """Of a client while it acts for a user; both as nodes are named."""
    return f"{CONFIG}/{ConfigKind.USERS}/{user}/{ConfigKind.CLIENTS}/{client}"


def entity_name(name: str) -> str:
    """The node's name for a user or a client, which may be called anything."""
    return quote(name, safe="").replace("~", "%7E")


def parse_entity_name(node_name: str) -> str:
    return unquote(node_name.replace("+", " "))


def consumer_ids(group_id: str) -> str:
    """Above the members of a group of Kafka 0.8's consumers."""
    return f"{CONSUMERS}/{group_id}/ids"


def consumer_id(group_id: str, member_id: str) -> str:
    """Ephemeral: there while the member lives."""
    return f"{CONSUMERS}/{group_id}/ids/{member_id}"


def consumer_owner(group_id: str, topic_name: str, index: int) -> str:
    """Ephemeral: which thread of which member has the partition."""
    return f"{CONSUMERS}/{group_id}/owners/{topic_name}/{index}"


def consumer_offset(group_id: str, topic_name: str, index: int) -> str:
    return f"{CONSUMERS}/{group_id}/offsets/{topic_name}/{index}"


def persistent_paths() -> tuple[str, ...]:
    """What every broker makes sure of when it starts; with their parents."""
    return (
        CONSUMERS,
        BROKER_IDS,
        TOPICS,
        CONFIG_CHANGES,
        DELETE_TOPICS,
        BROKER_SEQUENCE,
        ISR_CHANGES,
        PRODUCER_ID_BLOCK,
        LOG_DIR_EVENTS,
        *(config_root(kind) for kind in ConfigKind if kind is not ConfigKind.GROUPS),
    )


async def ensure_persistent_paths(tree: Coordination) -> None:
    """Makes those that are missing. Others may do the same at the same time. One by one: in a transaction an ensemble
    would be given empty data, which Kafka takes for a broken block of producer ids, instead of none."""
    paths = persistent_paths()
    for path, node in zip(paths, await tree.get_many(paths), strict=True):
        if node is None:
            with suppress(NodeExistsError):
                await tree.create(path, parents=True)
