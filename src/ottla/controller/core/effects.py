"""What the core of the controller asks of its driver.

A transition is a generator (`Step`): it yields effects, gets the result of each sent back, and returns its own result.
So it reads like a procedure, and still does no I/O: the driver runs it against a real tree, a model test stops it
between two effects as a crash would, or lets another program write to the tree in between.

Every write is made under one check of `/controller_epoch`: a controller that has been replaced changes nothing. Then
the driver ends the step (`ControllerMovedError`). Requests are sent after the writes that they tell of.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ottla.base.coordination import Operation
from ottla.base.ids import TopicPartition
from ottla.controller.core.leadership import Leadership
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.wire.messages.stop_replica import StopReplicaRequest
from ottla.wire.messages.update_metadata import UpdateMetadataRequest
from ottla.zookeeper.znodes import TopicAssignment

T = TypeVar("T")

AnyControlRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


class ControllerMovedError(Exception):
    """Another broker is the controller by now, or the session that made this one the controller is over."""


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """A request for one broker. It is dropped if that broker is gone."""

    broker_id: int
    body: AnyControlRequest


@dataclass(frozen=True, slots=True)
class ReadStates:
    """The state nodes of partitions; those without one are missing in the result."""

    names: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class WriteStates:
    """Writes state nodes whose version is still that of the given leadership. The result has what was written, with
    the new versions; partitions that are missing there were written by others meanwhile."""

    states: Mapping[TopicPartition, Leadership]


@dataclass(frozen=True, slots=True)
class CreateStates:
    """Creates the state nodes of new partitions. Partitions missing in the result have a state already, or no topic."""

    states: Mapping[TopicPartition, Leadership]


@dataclass(frozen=True, slots=True)
class Write:
    """Writes nodes, in order; if they are many, in several transactions. The result is the failure, or None."""

    operations: Sequence[Operation]


@dataclass(frozen=True, slots=True)
class ReadTopicConfigs:
    """The configs of topics by name, without defaults."""

    topics: Sequence[str]


@dataclass(frozen=True, slots=True)
class WriteAssignment:
    """Writes a topic's node."""

    topic: str
    assignment: TopicAssignment


@dataclass(frozen=True, slots=True)
class RemoveTopicNodes:
    """Removes all nodes of a topic: its partitions, its configs, and last the marker that asked for its deletion."""

    topic: str


@dataclass(frozen=True, slots=True)
class ReadAdminNode:
    """The content of a node, None if it does not exist. It is watched from now on."""

    path: str


@dataclass(frozen=True, slots=True)
class WriteAdminNode:
    """Writes or creates a node; None removes it."""

    path: str
    data: bytes | None


@dataclass(frozen=True, slots=True)
class Send:
    """Queues requests, in order."""

    requests: Sequence[ControlRequest]


Effect = (
    ReadStates
    | WriteStates
    | CreateStates
    | Write
    | ReadTopicConfigs
    | WriteAssignment
    | RemoveTopicNodes
    | ReadAdminNode
    | WriteAdminNode
    | Send
)

Step = Generator[Effect, Any, T]


AT_ONCE: Final = 1000
"""Partitions or replicas of one batch of requests. Brokers can begin with the first batch while the next is made, and
the loop that the controller shares with its broker does other things in between."""


def in_batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + AT_ONCE] for start in range(0, len(items), AT_ONCE))


def read_states(names: Sequence[TopicPartition]) -> Step[dict[TopicPartition, Leadership]]:
    found: dict[TopicPartition, Leadership] = yield ReadStates(names)
    return found


def write_states(states: Mapping[TopicPartition, Leadership]) -> Step[dict[TopicPartition, Leadership]]:
    if not states:
        return {}
    written: dict[TopicPartition, Leadership] = yield WriteStates(states)
    return written


def create_states(states: Mapping[TopicPartition, Leadership]) -> Step[dict[TopicPartition, Leadership]]:
    if not states:
        return {}
    created: dict[TopicPartition, Leadership] = yield CreateStates(states)
    return created
