"""Admin work on many topics: each step is one request for all of them, timed from sending it to its answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from bench.broker.control import Control, check, connect, receive_frame
from bench.broker.frames import CLIENT_ID
from bench.broker.raw import keep_in_flight, measured
from bench.broker.usage import cpu_s

from ottla.wire.framing import request_frame
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.messages.delete_topics import DeletableTopic, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsEntry,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.messages.metadata import MetadataRequest

_TIMEOUT_MS: Final = 60_000
_TOPIC: Final = 2
"""The type of a resource."""
_LATEST: Final = -1
_METADATA_VERSION: Final = 12


def topics_live(
    address: str, pid: int, prefix: str, topics: int, partitions: int, settled_s: float = 1.0
) -> dict[str, float]:
    """Topics are created, looked at, changed, grown and deleted. After each step the broker is left alone for a while:
    some of its work is done after the answer, and its CPU counts."""
    names = [f"{prefix}-{number:04}" for number in range(topics)]
    found: dict[str, float] = {}
    before_s = cpu_s(pid)
    with Control(address) as control:
        steps: dict[str, Callable[[], None]] = {
            "create": lambda: create(control, names, partitions),
            "list_offsets": lambda: list_offsets(control, names, partitions),
            "describe": lambda: describe_configs(control, names),
            "alter": lambda: alter_configs(control, names),
            "grow": lambda: grow(control, names, 2 * partitions),
            "delete": lambda: delete(control, names),
        }
        for key, step in steps.items():
            if key == "list_offsets":
                for name in names:
                    control.wait_for_logs(name, partitions)
            with timed(found, f"{key}_ms"):
                step()
            time.sleep(settled_s)
    found["cpu_s"] = cpu_s(pid) - before_s
    return found


@contextmanager
def timed(found: dict[str, float], key: str) -> Iterator[None]:
    begun_s = time.perf_counter()
    yield
    found[key] = (time.perf_counter() - begun_s) * 1e3


def one_by_one(address: str, pid: int, prefix: str, seconds: float) -> dict[str, float]:
    """A topic of one partition is created, and then deleted, over and over."""
    done, until_s = 0, time.perf_counter() + seconds
    with Control(address) as control, measured(pid) as spent:
        while time.perf_counter() < until_s:
            create(control, [f"{prefix}-{done}"], 1)
            delete(control, [f"{prefix}-{done}"])
            done += 1
    return spent.of_requests(2 * done)


def all_metadata(address: str, pid: int, seconds: float) -> dict[str, float]:
    """The metadata of all topics that there are, one request at a time."""
    frame = b"".join(request_frame(MetadataRequest(topics=None), _METADATA_VERSION, 1, CLIENT_ID))
    with connect(address) as connection:
        connection.sendall(frame)
        answer_bytes = len(receive_frame(connection)) + 4
        with measured(pid) as spent:
            answered = keep_in_flight(connection, [frame], answer_bytes, 1, until_s=time.perf_counter() + seconds)
    return {**spent.of_requests(answered), "answer_bytes": answer_bytes}


def create(control: Control, names: Iterable[str], partitions: int) -> None:
    wanted = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    response = control.ask(CreateTopicsRequest(topics=wanted, timeout_ms=_TIMEOUT_MS), 7, CreateTopicsResponse)
    for topic in response.topics:
        check(topic.error_code, f"creation of {topic.name}")


def delete(control: Control, names: Iterable[str]) -> None:
    unwanted = [DeletableTopic(name=name) for name in names]
    response = control.ask(DeleteTopicsRequest(topics=unwanted, timeout_ms=_TIMEOUT_MS), 6, DeleteTopicsResponse)
    for topic in response.responses:
        check(topic.error_code, f"deletion of {topic.name}")


def list_offsets(control: Control, names: Iterable[str], partitions: int) -> None:
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=_LATEST) for index in range(partitions)]
    topics = [ListOffsetsTopic(name=name, partitions=wanted) for name in names]
    for topic in control.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 7, ListOffsetsResponse).topics:
        for partition in topic.partitions:
            check(partition.error_code, f"offset of {topic.name}-{partition.partition_index}")


def describe_configs(control: Control, names: Iterable[str]) -> None:
    resources = [
        DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=None) for name in names
    ]
    for result in control.ask(DescribeConfigsRequest(resources=resources), 4, DescribeConfigsResponse).results:
        check(result.error_code, f"configs of {result.resource_name}")


def alter_configs(control: Control, names: Iterable[str]) -> None:
    configs = [IncrementalAlterConfigsEntry(name="retention.ms", config_operation=0, value="3600000")]
    resources = [
        IncrementalAlterConfigsResource(resource_type=_TOPIC, resource_name=name, configs=configs) for name in names
    ]
    request = IncrementalAlterConfigsRequest(resources=resources)
    for result in control.ask(request, 1, IncrementalAlterConfigsResponse).responses:
        check(result.error_code, f"configs of {result.resource_name}")


def grow(control: Control, names: Iterable[str], total: int) -> None:
    topics = [CreatePartitionsTopic(name=name, count=total, assignments=None) for name in names]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=_TIMEOUT_MS)
    for result in control.ask(request, 3, CreatePartitionsResponse).results:
        check(result.error_code, f"partitions of {result.name}")
