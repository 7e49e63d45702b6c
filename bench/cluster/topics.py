"""What is asked of a cluster beside the load: topics, leaders, in-sync replicas, the controller."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from bench.broker.control import Control
from bench.cluster.sides import BenchCluster

from ottla.base.error_codes import ErrorCode
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataTopic

T = TypeVar("T")
REPLICAS: Final = 3
_WAIT_S: Final = 180.0
_AGAIN_S: Final = 0.01
_ANSWER_S: Final = 30
_AT_ONCE: Final = 500
"""Partitions of one topic: Kafka's controller creates larger ones in one ZooKeeper transaction, which has a limit."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    leader: int
    isr: frozenset[int]


def metadata(cluster: BenchCluster, topics: list[str] | None, *, ask: int | None = None) -> MetadataResponse:
    """From that broker, or from any that answers."""
    names = None if topics is None else [MetadataTopic(name=name) for name in topics]
    request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
    error: Exception = ConnectionError("no broker runs")
    for broker in cluster.running if ask is None else [ask]:
        try:
            with Control(cluster.address(broker), answer_timeout_s=_ANSWER_S) as control:
                return control.ask(request, 9, MetadataResponse)
        except (ConnectionError, TimeoutError) as failed:
            error = failed
    raise error


def partitions(cluster: BenchCluster, topic: str, *, ask: int | None = None) -> dict[int, PartitionView]:
    """Those that have a leader which is alive, as far as that broker knows."""
    found = metadata(cluster, [topic], ask=ask).topics[0]
    return {
        each.partition_index: PartitionView(each.leader_id, frozenset(each.isr_nodes))
        for each in found.partitions
        if each.leader_id >= 0 and not each.error_code
    }


def wait_for(what: str, look: Callable[[], T | None], *, timeout_s: float = _WAIT_S) -> T:
    give_up_s = time.monotonic() + timeout_s
    while True:
        try:
            found = look()
        except (ConnectionError, TimeoutError, IndexError):
            found = None
        if found is not None:
            return found
        if time.monotonic() > give_up_s:
            raise RuntimeError(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(_AGAIN_S)


def wait_for_isr(cluster: BenchCluster, topic: str, count: int) -> dict[int, PartitionView]:
    """Until every partition is in sync on all brokers, and each broker says so."""

    def look() -> dict[int, PartitionView] | None:
        seen = [partitions(cluster, topic, ask=broker) for broker in cluster.running]
        whole = all(len(each) == count and all(len(p.isr) == REPLICAS for p in each.values()) for each in seen)
        return seen[0] if whole and all(each == seen[0] for each in seen) else None

    return wait_for(f"{cluster.name}: all replicas of {topic} in sync", look)


def controller(cluster: BenchCluster) -> int:
    """The id of the controller, which runs."""

    def look() -> int | None:
        found = metadata(cluster, []).controller_id
        return found if found in cluster.running else None

    return wait_for(f"{cluster.name}: a controller", look)


def brokers(cluster: BenchCluster) -> list[int]:
    """Those that every running broker knows of."""
    known = [{each.node_id for each in metadata(cluster, [], ask=ask).brokers} for ask in cluster.running]
    return sorted(set.intersection(*known)) if known else []


def try_create(
    cluster: BenchCluster, name: str, count: int, configs: Mapping[str, str], *, replicas: int = REPLICAS
) -> bool:
    """Whether it is there now."""
    wanted = CreatableTopic(
        name=name,
        num_partitions=count,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    ask = metadata(cluster, []).controller_id
    if ask not in cluster.running:
        return False
    with Control(cluster.address(ask), answer_timeout_s=_ANSWER_S) as control:
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=_ANSWER_S * 1000)
        code = control.ask(request, 5, CreateTopicsResponse).topics[0].error_code
    return code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


def create(cluster: BenchCluster, name: str, count: int, configs: Mapping[str, str]) -> None:
    wait_for(f"{cluster.name}: creation of {name}", lambda: try_create(cluster, name, count, configs) or None)
    wait_for_isr(cluster, name, count)


def delete(cluster: BenchCluster, name: str) -> None:
    def look() -> bool | None:
        ask = metadata(cluster, []).controller_id
        if ask not in cluster.running:
            return None
        with Control(cluster.address(ask), answer_timeout_s=_ANSWER_S) as control:
            request = DeleteTopicsRequest(topic_names=[name], timeout_ms=_ANSWER_S * 1000)
            code = control.ask(request, 5, DeleteTopicsResponse).responses[0].error_code
        return True if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) else None

    wait_for(f"{cluster.name}: deletion of {name}", look)


@contextmanager
def topic(cluster: BenchCluster, name: str, count: int) -> Iterator[dict[int, PartitionView]]:
    """A topic with three replicas and `min.insync.replicas=2`, in sync everywhere."""
    create(cluster, name, count, {"min.insync.replicas": "2"})
    try:
        yield wait_for_isr(cluster, name, count)
    finally:
        delete(cluster, name)


def create_many(cluster: BenchCluster, prefix: str, count: int) -> dict[str, int]:
    """So many partitions, in topics of at most some hundreds; the number of each."""
    sizes = {f"{prefix}-{at}": min(count - at, _AT_ONCE) for at in range(0, count, _AT_ONCE)}
    for name, size in sizes.items():
        wait_for("a topic", partial(_try_create_small, cluster, name, size))
    for name, size in sizes.items():
        wait_for_isr(cluster, name, size)
    return sizes


def _try_create_small(cluster: BenchCluster, name: str, size: int) -> bool | None:
    return try_create(cluster, name, size, {}) or None
