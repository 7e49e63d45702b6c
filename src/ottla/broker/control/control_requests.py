"""The controller's requests to this broker: LeaderAndIsr, StopReplica, UpdateMetadata. They come from the network, or
from the controller in this process by a call.

They are carried out one after the other. Whether a request is still valid is checked when its turn comes, not when it
arrives: a newer controller may have sent something meanwhile.

| request | answer |
| --- | --- |
| from a controller with a lower epoch than the highest one seen | STALE_CONTROLLER_EPOCH |
| from a controller with a higher epoch than ZooKeeper knows: forged | STALE_CONTROLLER_EPOCH |
| for an earlier registration of this broker | STALE_BROKER_EPOCH |
| without a broker epoch, although its version has one: forged | STALE_BROKER_EPOCH |

A broker epoch that is higher than the known one is valid: the controller may have seen a registration before this
broker knows that it succeeded.

Owned by the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.broker.control.request_forms import (
    LEADER_DURING_DELETE,
    TopicUpdate,
    broker_endpoints,
    fault_of_index,
    stopped_replicas,
    topic_updates,
    wanted_roles,
)
from ottla.broker.control.role_changes import RoleChanges
from ottla.broker.metadata.metadata_cache import MetadataCache, TopicChange
from ottla.controller.state import PartitionState
from ottla.controller.topic_names import fault_of_name
from ottla.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicResponse,
)
from ottla.wire.messages.stop_replica import StopReplicaPartitionResponse, StopReplicaRequest, StopReplicaResponse
from ottla.wire.messages.update_metadata import UpdateMetadataPartition, UpdateMetadataRequest, UpdateMetadataResponse

_logger = logging.getLogger(__name__)

R = TypeVar("R")
AnyControlRequest = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest

_NO_BROKER_EPOCH: Final = -1
_LEADER_AND_ISR_EPOCH_SINCE: Final = 2
_STOP_REPLICA_EPOCH_SINCE: Final = 1
_UPDATE_METADATA_EPOCH_SINCE: Final = 5
_TOPIC_IDS_SINCE: Final = 5
"""In LeaderAndIsr responses."""


class ControlRequests:
    """See the module.

    `is_elected(epoch)` asks ZooKeeper whether there has been a controller of that epoch; it does not raise.
    `on_metadata` is called after each UpdateMetadata with the topics that are named in it, and those that are gone.
    """

    def __init__(
        self,
        roles: RoleChanges,
        metadata: MetadataCache,
        broker_epoch: Callable[[], int],
        is_elected: Callable[[int], Awaitable[bool]],
        on_metadata: Callable[[Sequence[str], Sequence[str]], None] = lambda *_: None,
    ) -> None:
        self.controller_epoch = 0
        """The highest one seen."""
        self._roles = roles
        self._metadata = metadata
        self._broker_epoch = broker_epoch
        self._is_elected = is_elected
        self._on_metadata = on_metadata
        self._turn = asyncio.Lock()

    async def close(self) -> None:
        """Waits for the request that is being carried out."""
        async with self._turn:
            pass

    # --- the requests -------------------------------------------------------------------------------------------------

    async def leader_and_isr(self, request: LeaderAndIsrRequest, version: int) -> LeaderAndIsrResponse:
        has_epoch = version >= _LEADER_AND_ISR_EPOCH_SINCE
        return await self._in_turn(
            request,
            lambda: self._give_roles(request, version),
            lambda error: _roles_answered(request, version, dict.fromkeys(_names(request), error), error),
            has_broker_epoch=has_epoch,
        )

    async def _give_roles(self, request: LeaderAndIsrRequest, version: int) -> LeaderAndIsrResponse:
        return _roles_answered(request, version, await self._roles.give(wanted_roles(request)))

    async def stop_replica(self, request: StopReplicaRequest, version: int) -> StopReplicaResponse:
        return await self._in_turn(
            request,
            lambda: self._stop(request),
            lambda error: StopReplicaResponse(error_code=error),
            has_broker_epoch=version >= _STOP_REPLICA_EPOCH_SINCE,
        )

    async def _stop(self, request: StopReplicaRequest) -> StopReplicaResponse:
        outcomes = await self._roles.stop(stopped_replicas(request))
        return StopReplicaResponse(
            partition_errors=[
                StopReplicaPartitionResponse(topic_name=name.topic, partition_index=name.partition, error_code=error)
                for name, error in outcomes.items()
            ]
        )

    async def update_metadata(self, request: UpdateMetadataRequest, version: int) -> UpdateMetadataResponse:
        return await self._in_turn(
            request,
            lambda: self._update_metadata(request),
            lambda error: UpdateMetadataResponse(error_code=error),
            has_broker_epoch=version >= _UPDATE_METADATA_EPOCH_SINCE,
        )

    async def _update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        changes = [change for update in topic_updates(request) if (change := _change(update)).partitions]
        gone = self._metadata.update(request.controller_id, broker_endpoints(request), changes)
        self._on_metadata([change.name for change in changes], gone)
        return UpdateMetadataResponse()

    # --- fencing ------------------------------------------------------------------------------------------------------

    async def _in_turn(
        self,
        request: AnyControlRequest,
        carry_out: Callable[[], Awaitable[R]],
        refused: Callable[[ErrorCode], R],
        *,
        has_broker_epoch: bool,
    ) -> R:
        # Outside of the queue: a forged request must not hold up others. A controller waits for each answer, so this
        # does not change the order of its requests.
        if request.controller_epoch > self.controller_epoch and not await self._is_elected(request.controller_epoch):
            return refused(self._refusal(request, ErrorCode.STALE_CONTROLLER_EPOCH, "ZooKeeper knows no such epoch"))
        async with self._turn:
            error = self._fence(request, has_broker_epoch=has_broker_epoch)
            if error is not None:
                return refused(error)
            self.controller_epoch = request.controller_epoch
            return await carry_out()

    def _fence(self, request: AnyControlRequest, *, has_broker_epoch: bool) -> ErrorCode | None:
        own_epoch = self._broker_epoch()
        if has_broker_epoch and request.broker_epoch < own_epoch:
            return self._refusal(request, ErrorCode.STALE_BROKER_EPOCH, f"this broker has the epoch {own_epoch}")
        if request.controller_epoch < self.controller_epoch:
            why = f"there is a controller with the epoch {self.controller_epoch}"
            return self._refusal(request, ErrorCode.STALE_CONTROLLER_EPOCH, why)
        return None

    def _refusal(self, request: AnyControlRequest, error: ErrorCode, why: str) -> ErrorCode:
        _logger.warning(
            "refused %s of controller %d in epoch %d for broker epoch %d with %s: %s",
            type(request).__name__.removesuffix("Request"),
            *(request.controller_id, request.controller_epoch, request.broker_epoch, error.name, why),
        )
        return error


def _names(request: LeaderAndIsrRequest) -> list[TopicPartition]:
    return [each.name for each in wanted_roles(request)]


def _roles_answered(
    request: LeaderAndIsrRequest,
    version: int,
    outcomes: Mapping[TopicPartition, ErrorCode],
    error: ErrorCode = ErrorCode.NONE,
) -> LeaderAndIsrResponse:
    if version < _TOPIC_IDS_SINCE:
        return LeaderAndIsrResponse(
            error_code=error,
            partition_errors=[
                LeaderAndIsrPartitionResponse(topic_name=name.topic, partition_index=name.partition, error_code=code)
                for name, code in outcomes.items()
            ],
        )
    return LeaderAndIsrResponse(
        error_code=error,
        topics=[
            LeaderAndIsrTopicResponse(
                topic_id=topic.topic_id,
                partition_errors=[
                    LeaderAndIsrPartitionResponse(
                        partition_index=each.partition_index,
                        error_code=outcomes[TopicPartition(topic.topic_name, each.partition_index)],
                    )
                    for each in topic.partition_states
                ],
            )
            for topic in request.topic_states
        ],
    )


def _change(update: TopicUpdate) -> TopicChange:
    """Without partitions that cannot be."""
    partitions: dict[int, PartitionState | None] = {}
    fault_of_topic = fault_of_name(update.name)
    for each in update.partitions:
        fault = fault_of_topic or fault_of_index(each.partition_index)
        if fault is None:
            partitions[each.partition_index] = None if each.leader == LEADER_DURING_DELETE else _state(each)
        else:
            _logger.error("ignoring metadata of partition %d of a topic: %s", each.partition_index, fault)
    return TopicChange(update.name, update.topic_id, partitions)


def _state(told: UpdateMetadataPartition) -> PartitionState:
    return PartitionState(
        replicas=tuple(told.replicas),
        leader=told.leader,
        leader_epoch=told.leader_epoch,
        isr=tuple(told.isr),
        controller_epoch=told.controller_epoch,
        version=told.zk_version,
        offline_replicas=tuple(told.offline_replicas),
    )
