"""Finds the offset to continue from: the group's committed offset, a reset, or the end that a new leader still has.

Runs in the loop. Nothing here waits for a partition whose leader is unavailable: each round settles what it can, and
reports what is left.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

from ottla.base.ids import ZERO_UUID, TopicPartition
from ottla.client.cluster import Cluster, may_pass
from ottla.client.config import ConsumerConfig
from ottla.client.config_keys.rules import BY_DURATION, duration_ms
from ottla.client.consume.fetch_buffer import FetchBuffer, FetchedChunk
from ottla.client.errors import (
    BrokerConnectionError,
    ClientError,
    LogTruncatedError,
    NoOffsetError,
    OffsetOutOfRangeError,
    RefusedError,
    TopicRecreatedError,
)
from ottla.client.metadata import TopicInfo
from ottla.client.offsets import EARLIEST, LATEST, OffsetAndMetadata, Place, ask_leader, find_offsets
from ottla.client.subscriptions.subscription import NO_EPOCH, ConsumedPartition, Position, Subscription
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochPartition,
    OffsetForLeaderEpochPartitionResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochTopic,
)

_logger = logging.getLogger(__name__)

Committed = Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndMetadata | None]]]

_CONSUMER: Final = -1
_UNDEFINED: Final = -1
_EPOCHS_SINCE: Final = 3
"""From this version of OffsetForLeaderEpoch on, permission to read the topic is enough."""
_RESETS: Final = {"earliest": EARLIEST, "latest": LATEST, "none": None}


def reset_place(policy: str, now_ms: int) -> Place | None:
    """Where auto.offset.reset points at that time; None if it is "none"."""
    if policy in _RESETS:
        return _RESETS[policy]
    return Place.at_time(max(0, now_ms - duration_ms(policy.removeprefix(BY_DURATION))))


class Positions:
    """Finds positions for the partitions of a subscription. `committed` is None for a consumer without a group."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        subscription: Subscription,
        buffer: FetchBuffer,
        committed: Committed | None,
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._buffer = buffer
        self._committed = committed
        self._policy = config.auto_offset_reset
        self._committed_only = config.isolation_level == "read_committed"

    @property
    def _reset(self) -> Place | None:
        return reset_place(self._policy, time.time_ns() // 1_000_000)

    async def find(self) -> None:
        """One round for all partitions without a position whose leaders are known. Retriable errors are raised at the
        end, after everything else was done."""
        states = [
            state for state in self._subscription.partitions.values() if state.position is None and not state.is_held
        ]
        await self._find_committed([state for state in states if state.is_lost])
        by_leader: dict[int, list[ConsumedPartition]] = {}
        for state in states:
            leader_id = self._cluster.known_leader(state.partition)
            if state.reset is not None and leader_id is not None:
                by_leader.setdefault(leader_id, []).append(state)
        failure: Exception | None = None
        for outcome in await asyncio.gather(*(self._reset_at(*one) for one in by_leader.items())):
            failure = outcome or failure
        if failure is not None:
            raise failure

    async def _find_committed(self, states: Collection[ConsumedPartition]) -> None:
        if not states:
            return
        generations = {state: state.generation for state in states}
        committed: Mapping[TopicPartition, OffsetAndMetadata | None] = {}
        if self._committed is not None:
            committed = await self._committed([state.partition for state in states])
        for state, generation in generations.items():
            if state.generation != generation or state.position is not None:
                continue  # the user called seek meanwhile
            found = committed.get(state.partition)
            if found is not None:
                state.seek(Position(found.offset, NO_EPOCH if found.leader_epoch is None else found.leader_epoch))
            elif self._reset is not None:
                state.reset = self._reset
            else:
                failure = NoOffsetError(
                    f"partition {state.partition} has no committed offset, and auto.offset.reset is none: seek, or set "
                    "it to earliest or latest"
                )
                self.fail(state, failure)

    async def _reset_at(self, leader_id: int, states: list[ConsumedPartition]) -> Exception | None:
        """Asks one leader; returns a retriable error instead of raising it."""
        asked = {state.partition: state.reset for state in states if state.reset is not None}
        generations = {state.partition: (state, state.generation) for state in states}
        try:
            found = await ask_leader(self._cluster, leader_id, asked, committed_only=self._committed_only)
            beyond = {
                partition: LATEST
                for partition, one in found.items()
                if not isinstance(one, RefusedError) and one.offset < 0 and asked[partition] != LATEST
            }
            if beyond:
                found |= await ask_leader(self._cluster, leader_id, beyond, committed_only=self._committed_only)
        except BrokerConnectionError as error:
            for state in states:
                self._cluster.distrust(state.partition.topic)
            return error
        failure: Exception | None = None
        for partition, one in found.items():
            state, generation = generations[partition]
            if state.generation != generation:
                continue
            if isinstance(one, RefusedError):
                self._cluster.distrust(partition.topic)
                if may_pass(one):
                    failure = one
                else:
                    self.fail(state, one)
            else:
                state.seek(Position(one.offset, NO_EPOCH if one.leader_epoch is None else one.leader_epoch))
                known = self._cluster.known_topic(partition.topic)
                if known is not None:  # the response comes from the leader itself
                    state.leader_epoch = known.partitions[partition.partition].leader_epoch
        return failure

    # Topics that were deleted and created again.

    def is_of(self, topic: TopicInfo, state: ConsumedPartition) -> bool:
        """Whether the position belongs to this topic. If another topic had the name at the last fetch, the partition is
        reset. With brokers that do not know topic ids, this is always true."""
        if state.topic_id is None or topic.topic_id == state.topic_id or topic.topic_id == ZERO_UUID:
            return True
        offset = None if state.position is None else state.position.offset
        words = f"topic {topic.name} was deleted and created again: offset {offset} of partition {state.partition}"
        if self._reset is None:
            words += " belongs to the old topic, and auto.offset.reset is none: seek to continue"
            self.fail(state, TopicRecreatedError(words))
            return False
        _logger.warning("%s belongs to the old topic; resetting the position", words)
        with self._buffer.lock:
            self._subscription.drop_iterated_of([state])
            state.seek_to(self._reset)
        return False

    # Offsets that do not exist.

    async def out_of_range(self, state: ConsumedPartition) -> None:
        """Called when the partition does not have the offset, and everything before it was returned."""
        if state.position is None:
            return
        generation, offset = state.generation, state.position.offset
        if self._reset is not None:
            _logger.warning("partition %s does not have offset %d; resetting the position", state.partition, offset)
            with self._buffer.lock:
                state.seek_to(self._reset)
            return
        first = (await find_offsets(self._cluster, {state.partition: EARLIEST}))[state.partition].offset
        end = (await find_offsets(self._cluster, {state.partition: LATEST}))[state.partition].offset
        if state.generation == generation:
            has = f"has offsets {first} to {end - 1}" if end > first else f"is empty; its log end offset is {end}"
            failure = OffsetOutOfRangeError(
                f"offset {offset} is out of range: partition {state.partition} {has}, and auto.offset.reset is none"
            )
            self.fail(state, failure)

    # New leaders (KIP-320).

    async def validate(self, leader_id: int, states: list[ConsumedPartition]) -> None:
        """Asks a new leader whether it has the records that were read from the previous one."""
        try:
            await self._validate(leader_id, states)
        except BrokerConnectionError:
            # Nothing is fetched from it before it has answered, so nobody else would notice that it is gone.
            for state in states:
                self._cluster.distrust(state.partition.topic)
            raise

    async def _validate(self, leader_id: int, states: list[ConsumedPartition]) -> None:
        connection = await self._cluster.connection(leader_id)
        served = connection.served.get(OffsetForLeaderEpochRequest.api_key)
        # Only now: while the leader was away, the user may have sought an offset whose epoch is not known. A leader
        # answers that as if it had lost everything.
        asked = {
            state.partition: (state, state.generation, state.fetched)
            for state in states
            if state.fetched is not None and state.fetched.leader_epoch != NO_EPOCH
        }
        if not asked:
            return
        epochs = {partition: self._leader_epoch(partition) for partition in asked}
        if served is None or served.high < _EPOCHS_SINCE:
            for partition, (state, _, _) in asked.items():
                state.leader_epoch = epochs[partition]
            return
        topics: dict[str, OffsetForLeaderEpochTopic] = {}
        for partition, (_, _, fetched) in asked.items():
            topic = topics.setdefault(partition.topic, OffsetForLeaderEpochTopic(topic=partition.topic))
            topic.partitions.append(
                OffsetForLeaderEpochPartition(
                    partition=partition.partition,
                    current_leader_epoch=epochs[partition],
                    leader_epoch=fetched.leader_epoch,
                )
            )
        request = OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=list(topics.values()))
        answer = await self._cluster.send_to(leader_id, request, OffsetForLeaderEpochResponse)
        failure: RefusedError | None = None
        for found in answer.topics:
            for one in found.partitions:
                partition = TopicPartition(found.topic, one.partition)
                state, generation, fetched = asked[partition]
                if state.generation != generation:
                    continue
                if one.error_code:
                    self._cluster.distrust(partition.topic)
                    failure = RefusedError(one.error_code, f"partition {partition}")
                elif self._is_there(one, fetched):
                    state.leader_epoch = epochs[partition]
                else:
                    with self._buffer.lock:
                        failure_to_tell = self._diverged(state, one)
                    if failure_to_tell is not None:
                        self.fail(state, failure_to_tell)
        if failure is not None:
            raise failure

    @staticmethod
    def _is_there(answer: OffsetForLeaderEpochPartitionResponse, fetched: Position) -> bool:
        return (
            answer.end_offset != _UNDEFINED
            and answer.leader_epoch != _UNDEFINED
            and answer.end_offset >= fetched.offset
        )

    def _diverged(self, state: ConsumedPartition, answer: OffsetForLeaderEpochPartitionResponse) -> ClientError | None:
        """Handles a leader whose log diverges from the fetched records, at a known or an unknown offset."""
        position = state.position
        if position is None:
            return None
        if answer.end_offset >= position.offset and answer.leader_epoch != _UNDEFINED:
            state.fetch_again(position)  # only records that were not returned are affected
            return None
        if self._reset is None:
            words = f"partition {state.partition} was truncated before offset {position.offset}, which was already read"
            return LogTruncatedError(f"{words}; auto.offset.reset is none: seek to continue")
        if answer.end_offset == _UNDEFINED or answer.leader_epoch == _UNDEFINED:
            _logger.warning("partition %s was truncated at an unknown offset; resetting the position", state.partition)
            state.seek_to(self._reset)
        else:
            _logger.warning(
                "partition %s was truncated at offset %d, but %d was already read; continuing there",
                state.partition,
                answer.end_offset,
                position.offset,
            )
            state.seek(Position(answer.end_offset, answer.leader_epoch))
        return None

    def _leader_epoch(self, partition: TopicPartition) -> int:
        known = self._cluster.known_topic(partition.topic)
        return NO_EPOCH if known is None else known.partitions[partition.partition].leader_epoch

    def fail(self, state: ConsumedPartition, failure: ClientError) -> None:
        """Polls raise the error once everything fetched before it was returned, until the user seeks."""
        state.is_held = True
        self._buffer.put(FetchedChunk(state, state.generation, failure=failure))
