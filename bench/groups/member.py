"""What the members of both protocols have in common: a connection, offsets fetched and committed, a time to say that
they are alive."""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from bench.broker.control import check
from bench.groups.ownership import Ownership

from ottla.base.error_codes import ErrorCode
from ottla.net.client_connection import BrokerConnectionError, ClientConnection, ConnectionOptions, parse_addresses
from ottla.wire.messages.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchGroupTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

COMMIT_VERSION: Final = 9
FETCH_VERSION: Final = 9
"""The last ones with topics' names, so that both brokers get the same bytes."""
REBALANCE_TIMEOUT_MS: Final = 60_000
_ANSWER_TIMEOUT_S: Final = 90.0
_GOLDEN: Final = (math.sqrt(5) - 1) / 2
_PHASES: Final = 0.8
_LATE_PHASE: Final = 0.95


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What all members of a group know."""

    address: str
    group: str
    topic: str
    heartbeat_s: float
    session_timeout_ms: int


class Member(ABC):
    """One that joins when it is started, and stays until it is told to die or to leave.

    Members say that they are alive at moments that are spread evenly over most of the interval, however many there are,
    and always the same: so equal events take equally long. One that comes later speaks at the end of the interval, when
    all others have heard of it.
    """

    def __init__(self, plan: GroupPlan, number: int, ownership: Ownership, *, is_late: bool) -> None:
        self.plan = plan
        self.name = f"{plan.group}/{number}"
        self.ownership = ownership
        self.owned: set[int] = set()
        self.member_id = ""
        self.epoch = -1
        """Or the generation, where the protocol has such."""
        phase = _LATE_PHASE if is_late else (number + 0.5) * _GOLDEN % 1 * _PHASES
        self._phase_s = phase * plan.heartbeat_s
        self._connection: ClientConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._last_words: asyncio.Future[None] | None = None

    @property
    def connection(self) -> ClientConnection:
        if self._connection is None:
            raise RuntimeError(f"{self.name} is not connected")
        return self._connection

    async def connect(self) -> None:
        options = ConnectionOptions(client_id="bench", request_timeout_s=_ANSWER_TIMEOUT_S)
        self._connection = await ClientConnection.open(parse_addresses(self.plan.address)[0], options)

    def start(self, failed: asyncio.Future[None]) -> None:
        """Joins; what goes wrong is told to `failed`."""
        self.ownership.enter(self.name)
        self._task = asyncio.get_running_loop().create_task(self._live(failed), name=self.name)

    async def _live(self, failed: asyncio.Future[None]) -> None:
        try:
            await self.run()
        except Exception as error:
            if not failed.done():
                failed.set_exception(error)

    @abstractmethod
    async def run(self) -> None:
        """Joins, and is a member for ever."""

    @abstractmethod
    async def leave(self) -> None:
        """Tells the coordinator that it goes."""

    async def die(self) -> None:
        """Returns when it is dead, which it is as soon as it has once more said that it is alive; so a broker notices
        after a whole session timeout. The event that this is begins at that moment."""
        self._last_words = asyncio.get_running_loop().create_future()
        await self._last_words
        self.ownership.begin()
        self.ownership.leave(self.name, self.owned)
        await self.stop()

    async def stop(self) -> None:
        """Without a word."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._connection is not None:
            await self._connection.close()

    async def until_heartbeat(self) -> None:
        await until(self.plan.heartbeat_s, self._phase_s)

    async def heartbeat_answered(self) -> None:
        if self._last_words is not None:
            self._last_words.set_result(None)
            await asyncio.Event().wait()  # for its end

    # Offsets.

    async def take(self, partitions: set[int]) -> None:
        """Begins to consume where the group has come to."""
        topics = [OffsetFetchGroupTopic(name=self.plan.topic, partition_indexes=sorted(partitions))]
        group = OffsetFetchGroup(
            group_id=self.plan.group, member_id=self._fetching_id(), member_epoch=self._fetching_epoch(), topics=topics
        )
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        found = (await self.connection.send(request, OffsetFetchResponse, version=FETCH_VERSION)).groups[0]
        check(found.error_code, f"OffsetFetch of {self.name}")
        if sum(len(topic.partitions) for topic in found.topics) != len(partitions):
            raise RuntimeError(f"{self.name} asked for the offsets of {len(partitions)} partitions and got others")
        self.owned |= partitions
        self.ownership.take(self.name, partitions)

    def _fetching_id(self) -> str | None:
        return None

    def _fetching_epoch(self) -> int:
        return -1

    async def give_up(self, partitions: set[int]) -> None:
        """Consumes no more of them, and says how far it has come."""
        self.ownership.release(self.name, partitions)
        self.owned -= partitions
        request = OffsetCommitRequest(
            group_id=self.plan.group,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            topics=[
                OffsetCommitTopic(
                    name=self.plan.topic,
                    partitions=[
                        OffsetCommitPartition(partition_index=index, committed_offset=100, committed_metadata="")
                        for index in sorted(partitions)
                    ],
                )
            ],
        )
        answer = await self.connection.send(request, OffsetCommitResponse, version=COMMIT_VERSION)
        for each in answer.topics[0].partitions:
            # A classic group that has just finished joining takes no offsets: they come too late.
            if each.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
                check(each.error_code, f"OffsetCommit of {self.name}")

    async def go(self) -> None:
        """Leaves in order, at the end."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        with suppress(BrokerConnectionError):
            await self.leave()
        await self.stop()


async def until(interval_s: float, phase_s: float = 0.0) -> None:
    """Sleeps until that moment of the interval comes next, by a clock that all share."""
    wait_s = (phase_s - asyncio.get_running_loop().time()) % interval_s
    await asyncio.sleep(wait_s)
