"""Metadata, DescribeCluster, DescribeTopicPartitions and FindCoordinator from what a cluster's controller has told."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import Uuid
from ottla.broker.handlers.describe_cluster import describe_cluster
from ottla.broker.handlers.describe_topic_partitions import describe_topic_partitions
from ottla.broker.handlers.find_coordinator import find_coordinator
from ottla.broker.handlers.metadata import metadata
from ottla.broker.metadata.metadata_cache import NO_CONTROLLER, BrokerEndpoint, MetadataCache, TopicChange
from ottla.broker.requests.api import RequestContext
from ottla.controller.state import PartitionState
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.metadata import MetadataPartitionResponse, MetadataRequest, MetadataResponse, MetadataTopic

TOPIC_ID = Uuid(bytes(range(16)))
OFFSETS_ID = Uuid(bytes(range(1, 17)))


def state(leader: int, replicas: tuple[int, ...] = (1, 2, 3), offline: tuple[int, ...] = ()) -> PartitionState:
    return PartitionState(replicas, leader, 5, replicas, 1, 7, offline_replicas=offline)


def coordinators_with(partition_count: int) -> dict[str, Any]:
    return {"__consumer_offsets": SimpleNamespace(log=SimpleNamespace(partition_count=partition_count))}


@dataclass
class ClusterBroker:
    """Brokers 1 and 2 have both listeners, 3 has only the internal one; 4 is gone."""

    metadata: MetadataCache = field(default_factory=lambda: MetadataCache("cluster", NO_CONTROLLER))
    config: dict[str, Any] = field(
        default_factory=lambda: {"auto.create.topics.enable": True, "max.request.partition.size.limit": 2000}
    )
    coordinators: Any = field(default_factory=lambda: coordinators_with(3))
    replicas: Any = field(default_factory=lambda: SimpleNamespace(get=lambda *_: None))

    def __post_init__(self) -> None:
        inside = [("INTERNAL", BrokerEndpoint(broker, "inside", broker)) for broker in (1, 2, 3)]
        outside = [("EXTERNAL", BrokerEndpoint(broker, "outside", broker)) for broker in (1, 2)]
        self.metadata.update(
            2,
            inside + outside,
            [
                TopicChange("orders", TOPIC_ID, {0: state(1), 2: state(3), 3: state(4, (4, 1), (4,)), 4: state(-1)}),
                TopicChange("__consumer_offsets", OFFSETS_ID, {0: state(1), 1: state(3)}),
            ],
        )


def context(version: int, listener: str = "EXTERNAL") -> RequestContext:
    return RequestContext(version, "client", "127.0.0.1", listener, 0)


def asked(version: int, listener: str = "EXTERNAL") -> MetadataResponse:
    request = MetadataRequest(topics=[MetadataTopic(name="orders")])
    response = metadata(ClusterBroker(), request, context(version, listener))  # type: ignore[arg-type]
    assert isinstance(response, MetadataResponse)
    return response


def leaders(partitions: list[MetadataPartitionResponse]) -> dict[int, tuple[int, int]]:
    return {each.partition_index: (each.leader_id, each.error_code) for each in partitions}


@pytest.mark.parametrize(
    ("version", "listener", "without_listener"),
    [
        (13, "EXTERNAL", ErrorCode.LISTENER_NOT_FOUND),
        (5, "EXTERNAL", ErrorCode.LEADER_NOT_AVAILABLE),
        (13, "INTERNAL", 0),
    ],
)
def test_leaders(version: int, listener: str, without_listener: int) -> None:
    response = asked(version, listener)
    assert response.controller_id == 2
    assert {each.node_id for each in response.brokers} == ({1, 2} if listener == "EXTERNAL" else {1, 2, 3})
    (topic,) = response.topics
    assert leaders(topic.partitions) == {  # 1 has never had a leader
        0: (1, 0),
        2: (3 if listener == "INTERNAL" else -1, without_listener),
        3: (-1, ErrorCode.LEADER_NOT_AVAILABLE),
        4: (-1, ErrorCode.LEADER_NOT_AVAILABLE),
    }
    assert [each.offline_replicas for each in topic.partitions][2] == [4]


def test_version_0_leaves_out_what_cannot_be_reached() -> None:
    (topic,) = asked(0).topics
    assert [(each.replica_nodes, each.error_code) for each in topic.partitions] == [
        ([1, 2], ErrorCode.REPLICA_NOT_AVAILABLE),
        ([1, 2], ErrorCode.LEADER_NOT_AVAILABLE),
        ([1], ErrorCode.LEADER_NOT_AVAILABLE),
        ([1, 2], ErrorCode.LEADER_NOT_AVAILABLE),
    ]


def test_answers_follow_brokers_that_come_and_go() -> None:
    broker = ClusterBroker()
    request = MetadataRequest(topics=[MetadataTopic(name="orders")])

    def leader() -> int:
        response = metadata(broker, request, context(13))  # type: ignore[arg-type]
        assert isinstance(response, MetadataResponse)
        return response.topics[0].partitions[0].leader_id

    assert leader() == 1
    broker.metadata.update(2, [("EXTERNAL", BrokerEndpoint(2, "outside", 2))], [])
    assert leader() == -1
    broker.metadata.update(2, [("EXTERNAL", BrokerEndpoint(each, "outside", 1)) for each in (1, 2)], [])
    assert leader() == 1


def test_describe_cluster() -> None:
    response = describe_cluster(ClusterBroker(), DescribeClusterRequest(), context(1))  # type: ignore[arg-type]
    assert {each.broker_id for each in response.brokers} == {1, 2}
    assert response.controller_id == 2


def test_describe_topic_partitions() -> None:
    request = DescribeTopicPartitionsRequest(response_partition_limit=100)
    response = describe_topic_partitions(ClusterBroker(), request, context(0))  # type: ignore[arg-type]
    (orders,) = [topic for topic in response.topics if topic.name == "orders"]
    assert [each.partition_index for each in orders.partitions] == [0, 2, 3, 4]


@pytest.mark.parametrize(
    ("count", "found"),
    [
        (3, {1: 0, -1: ErrorCode.COORDINATOR_NOT_AVAILABLE}),
        (0, {-1: ErrorCode.COORDINATOR_NOT_AVAILABLE}),
    ],
)
def test_coordinators(count: int, found: dict[int, int]) -> None:
    """Groups of partition 2, which the metadata lacks, are not assigned to others."""
    broker = ClusterBroker(coordinators=coordinators_with(count))
    request = FindCoordinatorRequest(coordinator_keys=[f"group {number}" for number in range(30)])
    response = find_coordinator(broker, request, context(4))  # type: ignore[arg-type]
    assert isinstance(response, FindCoordinatorResponse)
    assert {each.node_id: each.error_code for each in response.coordinators} == found
