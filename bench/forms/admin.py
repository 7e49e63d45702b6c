"""Admin work on many topics: each step is one request for all of them, timed from sending it to its answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

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
from ottla.wire.schema import Request, Response

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
        for key, step in {
            "create": creation(names, partitions),
            "list_offsets": listing(names, partitions),
            "describe": description(names),
            "alter": alteration(names),
            "grow": growth(names, 2 * partitions),
            "delete": deletion(names),
        }.items():
            if key == "list_offsets":
                for name in names:
                    control.wait_for_logs(name, partitions)
            found[f"{key}_ms"] = do(control, step)
            time.sleep(settled_s)
    found["cpu_s"] = cpu_s(pid) - before_s
    return found


@dataclass(frozen=True, slots=True)
class Step:
    """A request, and how to see from its answer that all of it was done: (code, what) for each part."""

    request: Request
    version: int
    answer: type[Response]
    parts: Callable[[Any], Iterable[tuple[int, str]]]


def do(control: Control, step: Step) -> float:
    """The milliseconds from sending the request to having its answer; what the answer says is looked at afterwards."""
    frame = b"".join(request_frame(step.request, step.version, 1, CLIENT_ID))
    begun_s = time.perf_counter()
    answer = control.exchange(frame)
    elapsed_ms = (time.perf_counter() - begun_s) * 1e3
    for code, what in step.parts(control.read(step.request, step.version, step.answer, answer)):
        check(code, what)
    return elapsed_ms


def one_by_one(address: str, pid: int, prefix: str, seconds: float) -> dict[str, float]:
    """A topic of one partition is created, and then deleted, over and over."""
    done, until_s = 0, time.perf_counter() + seconds
    with Control(address) as control, measured(pid) as spent:
        while time.perf_counter() < until_s:
            do(control, creation([f"{prefix}-{done}"], 1))
            do(control, deletion([f"{prefix}-{done}"]))
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


def creation(names: Iterable[str], partitions: int) -> Step:
    wanted = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]

    def parts(response: CreateTopicsResponse) -> Iterator[tuple[int, str]]:
        return ((topic.error_code, f"creation of {topic.name}") for topic in response.topics)

    return Step(CreateTopicsRequest(topics=wanted, timeout_ms=_TIMEOUT_MS), 7, CreateTopicsResponse, parts)


def deletion(names: Iterable[str]) -> Step:
    unwanted = [DeletableTopic(name=name) for name in names]

    def parts(response: DeleteTopicsResponse) -> Iterator[tuple[int, str]]:
        return ((topic.error_code, f"deletion of {topic.name}") for topic in response.responses)

    return Step(DeleteTopicsRequest(topics=unwanted, timeout_ms=_TIMEOUT_MS), 6, DeleteTopicsResponse, parts)


def listing(names: Iterable[str], partitions: int) -> Step:
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=_LATEST) for index in range(partitions)]
    topics = [ListOffsetsTopic(name=name, partitions=wanted) for name in names]

    def parts(response: ListOffsetsResponse) -> Iterator[tuple[int, str]]:
        for topic in response.topics:
            for partition in topic.partitions:
                yield partition.error_code, f"offset of {topic.name}-{partition.partition_index}"

    return Step(ListOffsetsRequest(replica_id=-1, topics=topics), 7, ListOffsetsResponse, parts)


def description(names: Iterable[str]) -> Step:
    resources = [
        DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=None) for name in names
    ]

    def parts(response: DescribeConfigsResponse) -> Iterator[tuple[int, str]]:
        return ((result.error_code, f"configs of {result.resource_name}") for result in response.results)

    return Step(DescribeConfigsRequest(resources=resources), 4, DescribeConfigsResponse, parts)


def alteration(names: Iterable[str]) -> Step:
    configs = [IncrementalAlterConfigsEntry(name="retention.ms", config_operation=0, value="3600000")]
    resources = [
        IncrementalAlterConfigsResource(resource_type=_TOPIC, resource_name=name, configs=configs) for name in names
    ]

    def parts(response: IncrementalAlterConfigsResponse) -> Iterator[tuple[int, str]]:
        return ((result.error_code, f"configs of {result.resource_name}") for result in response.responses)

    return Step(IncrementalAlterConfigsRequest(resources=resources), 1, IncrementalAlterConfigsResponse, parts)


def growth(names: Iterable[str], total: int) -> Step:
    topics = [CreatePartitionsTopic(name=name, count=total, assignments=None) for name in names]

    def parts(response: CreatePartitionsResponse) -> Iterator[tuple[int, str]]:
        return ((result.error_code, f"partitions of {result.name}") for result in response.results)

    request = CreatePartitionsRequest(topics=topics, timeout_ms=_TIMEOUT_MS)
    return Step(request, 3, CreatePartitionsResponse, parts)
