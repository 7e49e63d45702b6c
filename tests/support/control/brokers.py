"""Brokers that take control requests from controllers, and remember what they were told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import copy
from typing import Any

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition, Uuid
from ottla.controller.seams import LiveBroker
from ottla.wire.messages.leader_and_isr import (
    LeaderAndIsrPartition,
    LeaderAndIsrPartitionResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicResponse,
)
from ottla.wire.messages.stop_replica import StopReplicaPartitionResponse, StopReplicaRequest, StopReplicaResponse
from ottla.wire.messages.update_metadata import (
    UpdateMetadataPartition,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from ottla.wire.peer import PeerError
from ottla.wire.schema import Request


class FencedBroker:
    """Applies control requests as a broker does: fenced by controller epoch, broker epoch and leader epoch."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.epoch = -1
        """Of its present registration."""
        self.is_running = True
        self.requests: list[Request] = []
        self.roles: dict[TopicPartition, LeaderAndIsrPartition] = {}
        self.topic_ids: dict[str, Uuid] = {}
        self.metadata: dict[TopicPartition, UpdateMetadataPartition] = {}
        self.live: set[int] = set()
        self.deleted: list[TopicPartition] = []
        self.stopped: set[TopicPartition] = set()
        """Replicas that were stopped, and got no role since."""
        self.failed: set[TopicPartition] = set()
        """Replicas in failed log directories."""
        self.refuses_deletion: set[TopicPartition] = set()
        self.controller_epoch = 0

    def restart(self) -> None:
        self.is_running = True
        self.roles.clear()
        self.stopped.clear()
        self.metadata.clear()
        self.live.clear()

    def handle(self, request: Request) -> Any:
        self.requests.append(request)
        if isinstance(request, LeaderAndIsrRequest):
            return self._leader_and_isr(request)
        if isinstance(request, UpdateMetadataRequest):
            return self._update_metadata(request)
        assert isinstance(request, StopReplicaRequest)
        return self._stop_replica(request)

    def _fault(self, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        if broker_epoch < self.epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = controller_epoch
        return ErrorCode.NONE

    def _leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        if fault := self._fault(request.controller_epoch, request.broker_epoch):
            return LeaderAndIsrResponse(error_code=fault)
        topics = []
        for topic in request.topic_states:
            errors = []
            self.topic_ids[topic.topic_name] = topic.topic_id
            for state in topic.partition_states:
                name = TopicPartition(topic.topic_name, state.partition_index)
                known = self.roles.get(name)
                code = ErrorCode.NONE
                if name in self.failed:
                    code = ErrorCode.KAFKA_STORAGE_ERROR
                elif known is not None and (
                    state.leader_epoch < known.leader_epoch
                    or (state.leader_epoch == known.leader_epoch and not self._may_return(name, state))
                ):
                    code = ErrorCode.STALE_CONTROLLER_EPOCH
                else:
                    self.roles[name] = copy(state)
                    self.stopped.discard(name)
                errors.append(LeaderAndIsrPartitionResponse(partition_index=state.partition_index, error_code=code))
            topics.append(LeaderAndIsrTopicResponse(topic_id=topic.topic_id, partition_errors=errors))
        return LeaderAndIsrResponse(topics=topics)

    def _may_return(self, name: TopicPartition, state: LeaderAndIsrPartition) -> bool:
        return name in self.stopped and state.leader != self.broker_id

    def _update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        if fault := self._fault(request.controller_epoch, request.broker_epoch):
            return UpdateMetadataResponse(error_code=fault)
        self.live = {broker.id for broker in request.live_brokers}
        for topic in request.topic_states:
            for state in topic.partition_states:
                name = TopicPartition(topic.topic_name, state.partition_index)
                if state.leader == -2:
                    self.metadata.pop(name, None)
                else:
                    self.metadata[name] = state
        return UpdateMetadataResponse()

    def _stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        if fault := self._fault(request.controller_epoch, request.broker_epoch):
            return StopReplicaResponse(error_code=fault)
        errors = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                name = TopicPartition(topic.topic_name, state.partition_index)
                known = self.roles.get(name)
                code = ErrorCode.NONE
                if known is not None and -2 < state.leader_epoch < known.leader_epoch:
                    code = ErrorCode.FENCED_LEADER_EPOCH
                elif name in self.refuses_deletion and state.delete_partition:
                    code = ErrorCode.KAFKA_STORAGE_ERROR
                elif state.delete_partition:
                    self.roles.pop(name, None)
                    self.stopped.discard(name)
                    self.deleted.append(name)
                else:
                    self.stopped.add(name)
                errors.append(
                    StopReplicaPartitionResponse(topic_name=name.topic, partition_index=name.partition, error_code=code)
                )
        return StopReplicaResponse(partition_errors=errors)


class FakePeer:
    """A connection of one controller to one broker."""

    def __init__(self, links: FakeLinks, broker: LiveBroker) -> None:
        self._links = links
        self._broker = broker
        self.is_closed = False

    async def send(
        self,
        request: Request,
        response: type[Any],  # noqa: ARG002
        *,
        version: int | None = None,  # noqa: ARG002
        timeout_s: float | None = None,  # noqa: ARG002
    ) -> Any:
        while True:
            await asyncio.sleep(0)
            host = self._links.brokers[self._broker.broker_id]
            if self.is_closed:
                raise PeerError("closed")
            if host.is_running and self._broker.broker_id not in self._links.cut:
                break
            await self._links.changed.wait()
        answer = host.handle(request)
        if self._links.loses_answer(request):
            host.handle(request)  # the controller tries again
        await asyncio.sleep(0)
        if self.is_closed:
            raise PeerError("closed")
        return answer

    async def version_of(self, request: type[Request]) -> int:
        return list(request.versions)[-1]

    def close(self) -> None:
        self.is_closed = True


class FakeLinks:
    """The links of one controller; `brokers` are shared by all. A broker that is down, or `cut` off, does not answer
    until it is back."""

    def __init__(self, brokers: dict[int, FencedBroker]) -> None:
        self.brokers = brokers
        self.cut: set[int] = set()
        self.changed = asyncio.Event()
        self.loses_answer: Callable[[Request], bool] = lambda _: False
        self.silent: dict[int, Callable[[], None]] = {}
        self.heard: dict[int, Callable[[], None]] = {}
        self.controller_gone: Callable[[], None] = lambda: None
        self.watched: LiveBroker | None = None

    def open(self, broker: LiveBroker, on_silent: Callable[[], None], on_answer: Callable[[], None]) -> FakePeer:
        self.silent[broker.broker_id] = on_silent
        self.heard[broker.broker_id] = on_answer
        return FakePeer(self, broker)

    def watch_controller(self, broker: LiveBroker, on_gone: Callable[[], None]) -> FakePeer:
        self.controller_gone = on_gone
        self.watched = broker
        return FakePeer(self, broker)

    def wake(self) -> None:
        """Requests that wait for a broker look again."""
        self.changed.set()
        self.changed = asyncio.Event()
