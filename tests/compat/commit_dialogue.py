"""What members of consumer groups are told when they commit with epochs of all ages: a script that gives lines to
compare. Epochs and partitions are told by what they are to the member: no two brokers must agree on the numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID, Uuid
from ottla.net.client_connection import Address, ClientConnection, ConnectionOptions
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)
from ottla.wire.schema import Request, Response

R = TypeVar("R", bound=Response)
SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}
PATIENCE_S: Final = 60.0
_PARTITIONS: Final = 4
_NOT_YET: Final = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}


class Member:
    """Does as it is told, and says so, when it is asked to."""

    def __init__(self, dialogue: CommitDialogue, group_id: str, member_id: str, instance_id: str | None = None) -> None:
        self._dialogue = dialogue
        self.group_id = group_id
        self.member_id = member_id
        self._instance_id = instance_id
        self.epoch = 0
        self.owned: set[int] = set()

    async def beat(self, epoch: int | None = None) -> None:
        joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"]} if not self.epoch else {}
        owned = [HeartbeatTopicPartitions(topic_id=self._dialogue.topic_id, partitions=sorted(self.owned))]
        fields: dict[str, Any] = {"topic_partitions": owned if self.owned else [], **joins}
        answer = await self._dialogue.ask(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                member_epoch=self.epoch if epoch is None else epoch,
                instance_id=self._instance_id,
                **fields,
            ),
            ConsumerGroupHeartbeatResponse,
            1,
        )
        if answer.error_code in _NOT_YET:
            return
        assert answer.error_code == ErrorCode.NONE, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = {index for topic in answer.assignment.topic_partitions for index in topic.partitions}


class CommitDialogue:
    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._address = Address(host, int(port))
        self._connection: ClientConnection
        self.topic_id: Uuid = ZERO_UUID
        self.lines: list[str] = []

    async def run(self) -> list[str]:
        self._connection = await ClientConnection.open(self._address, ConnectionOptions(client_id="c"))
        try:
            topic = CreatableTopic(name="t", num_partitions=_PARTITIONS, replication_factor=1)
            made = await self.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, 7)
            self.topic_id = made.topics[0].topic_id
            # Makes the topic of groups.
            await self.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), FindCoordinatorResponse, 4)
            await asyncio.wait_for(self._grown(), PATIENCE_S)
            await asyncio.wait_for(self._static(), PATIENCE_S)
        finally:
            await self._connection.close()
        return self.lines

    async def ask(self, request: Request, response: type[R], version: int) -> R:
        return await self._connection.send(request, response, version=version, timeout_s=30)

    # --- scenes -----------------------------------------------------------------------------------------------------

    async def _grown(self) -> None:
        """A member that has kept partitions since its first epoch, and has got others in its third."""
        member, other = Member(self, "g", "a"), Member(self, "g", "b")
        await _until([member], [_PARTITIONS])
        first = member.epoch
        await _until([member, other], [2, 2])
        second, kept = member.epoch, sorted(member.owned)
        got = sorted(other.owned)
        await other.beat(-1)
        await _until([member], [_PARTITIONS])
        third = member.epoch
        assert first < second < third
        epochs = {"first": first, "second": second, "third": third, "before": first - 1, "none": -1, "next": third + 1}
        places = {"kept": kept, "got": got, "both": kept + got, "one there": [kept[0], 9], "none there": [got[0], 9]}
        for version in (9, 10):
            await self._commit_all(member, epochs, places, version)
            long = {got[0]: "m" * 5_000}
            await self._commit(f"too long v{version}", member, second, [kept[0], got[0]], version, metadata=long)

    async def _static(self) -> None:
        """A member that comes back under another id: its partitions have waited for it."""
        away, back = Member(self, "h", "s", "i"), Member(self, "h", "z", "i")
        await _until([away], [_PARTITIONS])
        epoch = away.epoch
        await away.beat(-2)
        await self._commit("away", away, epoch, [0], 9)
        await _until([back], [_PARTITIONS])
        await self._commit("back", back, back.epoch, [0], 9)
        await self._commit("back, as before", back, back.epoch - 1, [0, 1], 9)

    # --- commits ----------------------------------------------------------------------------------------------------

    async def _commit_all(
        self, member: Member, epochs: Mapping[str, int], places: Mapping[str, Sequence[int]], version: int
    ) -> None:
        for age, epoch in epochs.items():
            for what, indexes in places.items():
                await self._commit(f"{age}, {what} v{version}", member, epoch, indexes, version)

    async def _commit(
        self,
        name: str,
        member: Member,
        epoch: int,
        indexes: Sequence[int],
        version: int,
        metadata: Mapping[int, str] | None = None,
    ) -> None:
        partitions = [
            OffsetCommitPartition(
                partition_index=index, committed_offset=5, committed_metadata=(metadata or {}).get(index, "")
            )
            for index in indexes
        ]
        request = OffsetCommitRequest(
            group_id=member.group_id,
            generation_id_or_member_epoch=epoch,
            member_id=member.member_id,
            topics=[OffsetCommitTopic(name="t", topic_id=self.topic_id, partitions=partitions)],
        )
        answer = await self.ask(request, OffsetCommitResponse, version)
        # Kafka puts first what it refuses before its coordinator sees it.
        codes = {each.partition_index: each.error_code for topic in answer.topics for each in topic.partitions}
        self.lines.append(f"{name}: {[ErrorCode(codes[index]).name for index in indexes]}")


async def _until(members: Sequence[Member], counts: Sequence[int]) -> None:
    """Until each owns that many, and has said so."""
    is_told = False
    while not is_told:
        is_told = [len(each.owned) for each in members] == counts and len({each.epoch for each in members}) == 1
        for each in members:
            await each.beat()
        await asyncio.sleep(0.05)
