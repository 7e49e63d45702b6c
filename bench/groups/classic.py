"""A member of a classic group that rebalances eagerly: it lets go of everything, joins again, and the leader assigns by
ranges, as Kafka's RangeAssignor does with one topic."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from bench.broker.control import check
from bench.groups.member import REBALANCE_TIMEOUT_MS, Member

from ottla.base.error_codes import ErrorCode
from ottla.wire.codec import decode_versioned, encode_versioned
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolPartitions,
    ConsumerProtocolSubscription,
)
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupProtocol, JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupMember, LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.messages.sync_group import SyncGroupAssignment, SyncGroupRequest, SyncGroupResponse

_SUBSCRIPTION_VERSION: Final = 1
_PROTOCOL: Final = "range"
_TYPE: Final = "consumer"


class ClassicMember(Member):
    async def run(self) -> None:
        while True:
            joined = await self._join()
            assigned = await self._sync(joined)
            if assigned is None:
                continue
            await self.take(assigned)
            while not await self._rebalance_is_due():
                pass
            await self.give_up(self.owned.copy())

    async def leave(self) -> None:
        members = [LeaveGroupMember(member_id=self.member_id)]
        await self.connection.send(
            LeaveGroupRequest(group_id=self.plan.group, members=members), LeaveGroupResponse, version=5
        )

    async def _join(self) -> JoinGroupResponse:
        subscription = ConsumerProtocolSubscription(topics=[self.plan.topic])
        metadata = encode_versioned(subscription, _SUBSCRIPTION_VERSION)
        while True:
            request = JoinGroupRequest(
                group_id=self.plan.group,
                session_timeout_ms=self.plan.session_timeout_ms,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                member_id=self.member_id,
                protocol_type=_TYPE,
                protocols=[JoinGroupProtocol(name=_PROTOCOL, metadata=metadata)],
            )
            answer = await self.connection.send(request, JoinGroupResponse, version=9)
            self.member_id = answer.member_id
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                continue
            check(answer.error_code, f"JoinGroup of {self.name}")
            self.epoch = answer.generation_id
            return answer

    async def _sync(self, joined: JoinGroupResponse) -> set[int] | None:
        """What is its own, or None where others have come to join meanwhile."""
        request = SyncGroupRequest(
            group_id=self.plan.group,
            generation_id=self.epoch,
            member_id=self.member_id,
            protocol_type=_TYPE,
            protocol_name=_PROTOCOL,
            assignments=self._assign([each.member_id for each in joined.members]),
        )
        answer = await self.connection.send(request, SyncGroupResponse, version=5)
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return None
        check(answer.error_code, f"SyncGroup of {self.name}")
        assignment, _ = decode_versioned(ConsumerProtocolAssignment, answer.assignment)
        return {index for topic in assignment.assigned_partitions for index in topic.partitions}

    def _assign(self, member_ids: list[str]) -> list[SyncGroupAssignment]:
        """Nothing, unless it is the leader, who alone is told of the members."""
        assignments = []
        for member_id, indexes in zip(sorted(member_ids), ranges(self.ownership.size, len(member_ids)), strict=True):
            own = ConsumerProtocolPartitions(topic=self.plan.topic, partitions=list(indexes))
            assignment = encode_versioned(ConsumerProtocolAssignment(assigned_partitions=[own]), _SUBSCRIPTION_VERSION)
            assignments.append(SyncGroupAssignment(member_id=member_id, assignment=assignment))
        return assignments

    async def _rebalance_is_due(self) -> bool:
        await self.until_heartbeat()
        request = HeartbeatRequest(group_id=self.plan.group, generation_id=self.epoch, member_id=self.member_id)
        answer = await self.connection.send(request, HeartbeatResponse, version=4)
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return True
        check(answer.error_code, f"Heartbeat of {self.name}")
        await self.heartbeat_answered()
        return False


def ranges(partitions: int, members: int) -> list[range]:
    """Parts of equal size, the first ones a partition larger where that does not divide."""
    if not members:
        return []
    size, larger = divmod(partitions, members)
    starts = [number * size + min(number, larger) for number in range(members + 1)]
    return [range(start, end) for start, end in pairwise(starts)]
