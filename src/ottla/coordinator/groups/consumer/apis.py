"""Passes requests of the consumer protocol to their shards.

Every method takes a request and returns the response, errors included.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Generic, Protocol, TypeVar

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.groups.consumer.protocol import ConsumerProtocol
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.seams import Caller
from ottla.coordinator.shards import Shard
from ottla.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse


class ConsumerShard(Shard, Protocol):
    """A shard with the consumer protocol."""

    consumer: ConsumerProtocol


S = TypeVar("S", bound=ConsumerShard)


class ConsumerApis(Generic[S]):
    """See the module. Owned by the loop."""

    def __init__(self, runtime: CoordinatorRuntime[S]) -> None:
        self._runtime = runtime

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> ConsumerGroupHeartbeatResponse | Coroutine[Any, Any, ConsumerGroupHeartbeatResponse]:
        """Returns the response itself if it need not wait: always, in a stable group."""
        try:
            answer = self._runtime.write_now(request.group_id, lambda shard: shard.consumer.heartbeat(request, caller))
        except CoordinatorError as error:
            return _refused(error)
        return _later(answer) if isinstance(answer, Coroutine) else answer

    async def describe(self, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
        return ConsumerGroupDescribeResponse(groups=[await self._describe(each) for each in request.group_ids])

    async def _describe(self, group_id: str) -> DescribedConsumerGroup:
        try:
            if not group_id:
                raise CoordinatorError(ErrorCode.INVALID_GROUP_ID, "The group id must not be empty.")
            return await self._runtime.read(group_id, lambda shard: shard.consumer.describe(group_id))
        except CoordinatorError as error:
            return DescribedConsumerGroup(group_id=group_id, error_code=error.code, error_message=str(error))


async def _later(answer: Coroutine[Any, Any, ConsumerGroupHeartbeatResponse]) -> ConsumerGroupHeartbeatResponse:
    try:
        return await answer
    except CoordinatorError as error:
        return _refused(error)


def _refused(error: CoordinatorError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=str(error))
