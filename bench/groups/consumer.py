"""A member of a group of the consumer protocol (KIP-848): the broker assigns, and the member follows step by step."""

from __future__ import annotations

import base64
import uuid
from typing import Final

from bench.broker.control import check
from bench.groups.member import REBALANCE_TIMEOUT_MS, Member

from ottla.base.ids import ZERO_UUID
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)

_LEAVES: Final = -1


class ConsumerMember(Member):
    _topic_id = ZERO_UUID

    async def run(self) -> None:
        self.member_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self.epoch = 0
        request = self._heartbeat()
        request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
        request.subscribed_topic_names = [self.plan.topic]
        request.topic_partitions = []
        answer = await self._ask(request)
        while True:
            while answer.assignment is not None and await self._follow(answer.assignment):
                # What has been done about it is told at once.
                request = self._heartbeat()
                request.topic_partitions = self._owned_by_topic()
                answer = await self._ask(request)
            await self.until_heartbeat()
            answer = await self._ask(self._heartbeat())
            if answer.assignment is None:
                await self.heartbeat_answered()

    async def leave(self) -> None:
        self.epoch = _LEAVES
        await self._ask(self._heartbeat())

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.plan.group, member_id=self.member_id, member_epoch=self.epoch
        )

    async def _ask(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        answer = await self.connection.send(request, ConsumerGroupHeartbeatResponse, version=1)
        check(answer.error_code, f"ConsumerGroupHeartbeat of {self.name} ({answer.error_message})")
        self.epoch = answer.member_epoch
        return answer

    async def _follow(self, assignment: HeartbeatAssignment) -> bool:
        """Lets go of what is not assigned any more, and takes what is new; whether there was anything."""
        assigned = {index for topic in assignment.topic_partitions for index in topic.partitions}
        for topic in assignment.topic_partitions:
            self._topic_id = topic.topic_id
        gone, new = self.owned - assigned, assigned - self.owned
        if gone:
            await self.give_up(gone)
        if new:
            await self.take(new)
        return bool(gone or new)

    def _owned_by_topic(self) -> list[HeartbeatTopicPartitions]:
        return [HeartbeatTopicPartitions(topic_id=self._topic_id, partitions=sorted(self.owned))] if self.owned else []

    def _fetching_id(self) -> str | None:
        return self.member_id

    def _fetching_epoch(self) -> int:
        return self.epoch
