"""Offsets of many groups: written, and asked for while a broker that was started again still reads them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from bench.broker.control import Control, connect
from bench.groups.commits import commit_frames, exchange, group_names

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.partitioning import partition_for
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchGroupTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

PREFIX: Final = "load"
OFFSETS_PARTITIONS: Final = 50
"""Of the topic of groups, on both brokers, by default."""
_CONNECTIONS: Final = 10
_FETCH_VERSION: Final = 8
_FIND_VERSION: Final = 4
_RETRY_PAUSE_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class Loaded:
    """When it came, by `time.perf_counter`."""

    listening_s: float
    all_answered_s: float


def write_offsets(address: str, topic: str, groups: int, partitions: int) -> dict[str, float]:
    """One commit of all partitions for each group."""
    begun_s = time.perf_counter()
    with ExitStack() as stack:
        sockets = [stack.enter_context(connect(address)) for _ in range(_CONNECTIONS)]
        answered = exchange(sockets, iter(commit_frames(PREFIX, groups, topic, partitions)))
    return {"offsets": answered * partitions, "seconds": time.perf_counter() - begun_s}


def await_coordinators(control: Control, topic: str, *, deadline_s: float = 60.0) -> None:
    """Until groups can be served, wherever they belong; who first asks where that is makes the topic of groups."""
    give_up_s = time.monotonic() + deadline_s
    waiting = _one_on_each_partition(group_names("any", 100 * OFFSETS_PARTITIONS))
    while waiting := waiting - _offsets(control, topic, range(1), waiting).keys():
        if time.monotonic() > give_up_s:
            raise RuntimeError(f"{len(waiting)} coordinators have not answered within {deadline_s} s")
        time.sleep(_RETRY_PAUSE_S)


def await_offsets(
    address: str, topic: str, groups: int, partitions: int, alive: Callable[[], None], *, deadline_s: float = 120.0
) -> Loaded:
    """Asks, like clients that come back to their broker, for the offsets of a group on each partition of the topic of
    groups, until all have answered. What they answer must be what `write_offsets` wrote."""
    give_up_s = time.monotonic() + deadline_s
    names = _one_on_each_partition(group_names(PREFIX, groups))
    listening_s, waiting = 0.0, set(names)
    while True:
        alive()
        if time.monotonic() > give_up_s:
            raise RuntimeError(f"groups on {len(waiting)} partitions have not answered within {deadline_s} s")
        try:
            with Control(address) as control:
                listening_s = listening_s or time.perf_counter()
                while waiting := waiting - _offsets(control, topic, range(1), waiting).keys():
                    time.sleep(_RETRY_PAUSE_S)
                loaded = Loaded(listening_s, time.perf_counter())
                _check(_offsets(control, topic, range(partitions), names), names, partitions)
                return loaded
        except ConnectionError:
            time.sleep(_RETRY_PAUSE_S)


def _check(found: Mapping[str, list[int]], names: set[str], partitions: int) -> None:
    """All offsets must be what `commit_frames` made them."""
    expected = list(range(1, partitions + 1))
    wrong = {name: found.get(name) for name in names if found.get(name) != expected}
    if wrong:
        raise RuntimeError(f"offsets from 1 to {partitions} were committed, and these are known: {wrong}")


def _one_on_each_partition(names: Iterable[str]) -> set[str]:
    """The last of those that belong to it."""
    return set({partition_for(name, OFFSETS_PARTITIONS): name for name in names}.values())


def _offsets(control: Control, topic: str, partitions: range, names: Iterable[str]) -> dict[str, list[int]]:
    """The offsets of those partitions, of those groups that have a coordinator which tells them."""
    find = FindCoordinatorRequest(coordinator_keys=list(names))
    found = control.ask(find, _FIND_VERSION, FindCoordinatorResponse).coordinators
    known = [each.key for each in found if each.error_code == ErrorCode.NONE]
    if not known:
        return {}
    wanted = [OffsetFetchGroupTopic(name=topic, partition_indexes=list(partitions))]
    request = OffsetFetchRequest(groups=[OffsetFetchGroup(group_id=name, topics=wanted) for name in known])
    answer = control.ask(request, _FETCH_VERSION, OffsetFetchResponse)
    return {
        group.group_id: [partition.committed_offset for partition in group.topics[0].partitions]
        for group in answer.groups
        if group.error_code == ErrorCode.NONE
    }
