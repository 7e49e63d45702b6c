"""Fetches ahead of the polls: one fetch request in flight to each broker that serves partitions with room.

Everything happens in steps. Each step looks at all assigned partitions, sends every idle broker a fetch for the
partitions it serves, and starts whatever else is missing (finding a leader or a position, validating a position with a
new leader). Whatever ends or changes triggers another step. Fetched data is surveyed and put into the buffer, which is
bounded: a broker is asked for no more than its share of `queued.max.bytes` has room for, and the queue of a partition
may take no more than its share of that. A response may end with an incomplete batch, because brokers cut responses at
their limits. If that is all that came for a partition, the next fetch asks for that partition alone, with limits that
the whole batch fits in, whatever the config says.

A fetch waits at the broker until there is data. Fetches have separate connections, so that nothing else waits after
them. If all partitions of a waiting fetch were given up or moved by a seek, it is abandoned, and the next fetch uses
another connection. Fetching never gives up: retriable errors are retried with increasing delays, other errors are put
into the buffer and raised by the poll. Belongs to one loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.client.cluster import Backoff, Cluster, is_wrong_address, may_pass
from ottla.client.config import ConsumerConfig
from ottla.client.consume.fetch_buffer import FetchBuffer, FetchedChunk
from ottla.client.consume.fetch_session import SESSION_ERRORS, ConsumerFetchSession, Wanted
from ottla.client.consume.positions import Positions
from ottla.client.consume.survey import survey
from ottla.client.errors import (
    BrokerConnectionError,
    ClientError,
    CorruptRecordError,
    RefusedError,
    UnknownPartitionError,
    UnknownTopicError,
)
from ottla.client.subscriptions.subscription import NO_EPOCH, ConsumedPartition, Position, ReadReplica, Subscription
from ottla.net.client_connection import MAX_RESPONSE_BYTES
from ottla.records import ByteBuffer
from ottla.records.layout import LENGTH_AT, LENGTH_PREFIX_SIZE
from ottla.wire.messages.fetch import FetchPartitionResponse, FetchRequest, FetchResponse

_logger = logging.getLogger(__name__)

LANE: Final = "fetch"
SPARE_LANE: Final = "fetch anew"
LAST_VERSION_BY_NAME: Final = 12
_TIMER_GRAIN_S: Final = 0.001
_UNKNOWN_TOPIC_PATIENCE_S: Final = 5.0
"""A new topic is not known to all brokers at once; one that is still unknown after this time is reported."""


class _Asked(NamedTuple):
    """A partition that a fetch asks for, and its state when the fetch was sent."""

    state: ConsumedPartition
    generation: int
    position: Position
    limit_bytes: int = 0
    """How large a batch may be to arrive complete, if only this partition is requested."""


class _BrokerFetches:
    """The state of one connection to a broker."""

    __slots__ = ("asked", "backoff", "is_failing", "lane", "not_before_s", "session", "task")

    def __init__(self, backoff: Backoff, lane: str) -> None:
        self.lane = lane
        self.session = ConsumerFetchSession()
        self.task: asyncio.Task[None] | None = None
        self.asked: dict[TopicPartition, _Asked] = {}
        """The partitions that the fetch in flight asks for."""
        self.backoff = backoff
        self.is_failing = False
        self.not_before_s = 0.0


class Fetcher:
    """Runs from the first `wake` to `close`. `on_news` is called when there is something to poll."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        subscription: Subscription,
        buffer: FetchBuffer,
        positions: Positions,
        on_news: Callable[[], None],
    ) -> None:
        self.counts = {"requests": 0, "bytes": 0}
        """The number of answered fetches, and of fetched bytes."""
        self._config = config
        self._cluster = cluster
        self._subscription = subscription
        self._buffer = buffer
        self._positions = positions
        self._on_news = on_news
        self._loop = asyncio.get_running_loop()
        self._brokers: dict[int, _BrokerFetches] = {}
        self._spares: dict[int, _BrokerFetches] = {}
        """The second connection to each broker, with an abandoned fetch or none."""
        self._chores: dict[str, asyncio.Task[None]] = {}
        self._chore_backoffs: dict[str, Backoff] = {}
        self._unknown_since_s: dict[str, float] = {}
        self._alone_since_s: float | None = None
        """Since when no broker at all could be reached."""
        self._is_woken = False
        self._is_closed = False
        self._isolation_level = int(config.isolation_level == "read_committed")
        self._timeout_s = (config.fetch_max_wait_ms + config.request_timeout_ms) / 1000

    def wake(self) -> None:
        """Takes a step soon, because something changed."""
        if not self._is_woken and not self._is_closed:
            self._is_woken = True
            self._loop.call_soon(self._step)

    async def close(self) -> None:
        """Cancels the fetches."""
        self._is_closed = True
        lanes = [*self._brokers.values(), *self._spares.values()]
        tasks = [*self._chores.values(), *(one.task for one in lanes if one.task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # A step.

    def _step(self) -> None:
        self._is_woken = False
        if self._is_closed:
            return
        self._buffer.is_wanted = True  # before looking, so that anything taken meanwhile wakes the fetcher
        without_leader: set[str] = set()
        to_validate: dict[int, list[ConsumedPartition]] = {}
        by_broker: dict[int, list[ConsumedPartition]] = {}
        is_lost = lacks_room = False
        for partition, state in self._subscription.partitions.items():
            if state.is_held:
                if state.waiting:
                    lacks_room = True
                    continue
                state.is_held = False
            if state.fetched is None and state.reset is None:
                is_lost = True
                continue
            leader_id = self._cluster.known_leader(partition)
            topic = self._cluster.known_topic(partition.topic)
            if leader_id is None or topic is None:
                without_leader.add(partition.topic)
                continue
            if state.fetched is None or not self._positions.is_of(topic, state):
                is_lost = True
                continue
            if state.is_paused or state.is_fetched:
                continue
            epoch = topic.partitions[partition.partition].leader_epoch
            if state.leader_epoch < epoch:
                if state.fetched.leader_epoch != NO_EPOCH:
                    to_validate.setdefault(leader_id, []).append(state)
                    continue
                state.leader_epoch = epoch
            by_broker.setdefault(self._broker_for(state, leader_id), []).append(state)
        for broker_id, states in by_broker.items():
            budget_bytes = self._config.queued_max_bytes // len(by_broker)
            lacks_room = self._fetch_from(broker_id, states, budget_bytes) or lacks_room
        if not lacks_room:
            self._buffer.is_wanted = False
        if without_leader:
            self._begin("leaders", partial(self._find_leaders, without_leader))
        if is_lost:
            self._begin("positions", self._positions.find)
        for leader_id, states in to_validate.items():
            self._begin(f"epochs of {leader_id}", partial(self._positions.validate, leader_id, states))

    def _broker_for(self, state: ConsumedPartition, leader_id: int) -> int:
        replica = state.read_replica
        if replica is None:
            return leader_id
        if replica.until_s < self._loop.time() or replica.broker_id not in self._cluster.brokers:
            state.read_replica = None
            return leader_id
        return replica.broker_id

    def _fetch_from(self, broker_id: int, states: list[ConsumedPartition], budget_bytes: int) -> bool:
        """Sends a fetch if none is in flight and there is room. Returns whether only room is missing."""
        broker = self._brokers.get(broker_id)
        if broker is None:
            broker = self._brokers[broker_id] = _BrokerFetches(Backoff(self._cluster.options), LANE)
        if broker.task is not None and self._is_unwanted(broker):
            broker = self._other_lane(broker_id, broker)
        if broker.task is not None or broker.not_before_s > self._loop.time():
            return False
        room_bytes = budget_bytes - sum(state.waiting_bytes for state in states)
        share_bytes = budget_bytes // len(states)
        asked: dict[TopicPartition, _Asked] = {}
        limit_bytes = min(room_bytes, self._config.fetch_max_bytes)
        large = next((state for state in states if state.batch_bytes), None)
        if room_bytes > 0 and large is not None and large.fetched is not None:
            limit_bytes = max(limit_bytes, large.batch_bytes)
            asked[large.partition] = _Asked(large, large.generation, large.fetched, large.batch_bytes)
        elif room_bytes > 0:
            for state in states:
                if state.fetched is not None and (state.waiting_bytes < share_bytes or not state.waiting):
                    asked[state.partition] = _Asked(state, state.generation, state.fetched)
        if asked:
            broker.asked = asked
            work = self._fetch(broker_id, broker, asked, limit_bytes)
            broker.task = self._loop.create_task(work, name="ottla-fetch")
        return not asked

    def _is_unwanted(self, broker: _BrokerFetches) -> bool:
        """Whether nobody waits for the data that the fetch in flight could return."""
        partitions = self._subscription.partitions
        return all(
            partitions.get(partition) is not one.state or one.state.generation != one.generation
            for partition, one in broker.asked.items()
        )

    def _other_lane(self, broker_id: int, broker: _BrokerFetches) -> _BrokerFetches:
        """Returns the connection to continue with while the fetch on this one ends; this one if both are in use."""
        spare = self._spares.get(broker_id)
        if spare is None:
            lane = SPARE_LANE if broker.lane == LANE else LANE
            spare = _BrokerFetches(Backoff(self._cluster.options), lane)
        elif spare.task is not None:
            return broker
        self._brokers[broker_id], self._spares[broker_id] = spare, broker
        return spare

    # Chores: what must be known before anything can be fetched.

    def _begin(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if name not in self._chores:
            self._chores[name] = self._loop.create_task(self._chore(name, work), name=f"ottla-find-{name}")

    async def _chore(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
            self._chore_backoffs.pop(name, None)
        except Exception as error:
            if not may_pass(error) or self._is_given_up(error):
                self._fail(error)
            backoff = self._chore_backoffs.setdefault(name, Backoff(self._cluster.options))
            await asyncio.sleep(backoff.next_s())
        # Not if cancelled: then the loop is ending, and nothing new may start.
        del self._chores[name]
        if self._buffer.has_news:
            self._on_news()
        self.wake()

    def _is_given_up(self, error: Exception) -> bool:
        """Whether no broker could be reached for too long. Reported then, and again after the same time."""
        if self._cluster.brokers:
            return False
        now_s = self._loop.time()
        if self._alone_since_s is None:
            self._alone_since_s = now_s
            _logger.warning("%s. Retrying", error)
        if not is_wrong_address(error) and now_s - self._alone_since_s < self._config.default_api_timeout_ms / 1000:
            return False
        self._alone_since_s = None
        return True

    async def _find_leaders(self, topics: set[str]) -> None:
        creates = self._config.allow_auto_create_topics and not self._subscription.is_by_pattern
        found = await self._cluster.refresh(topics, create_topics=creates)
        names = {topic.name: len(topic.partitions) for topic in found}
        now_s = self._loop.time()
        for name in topics:
            missing = self._missing(name, names.get(name))
            if missing is None:
                self._unknown_since_s.pop(name, None)
            elif now_s - self._unknown_since_s.setdefault(name, now_s) >= self._patience_s:
                del self._unknown_since_s[name]
                self._fail(missing)
        for partition in self._subscription.partitions:
            if partition.topic in topics and self._cluster.known_leader(partition) is None:
                raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition}")

    @property
    def _patience_s(self) -> float:
        return min(_UNKNOWN_TOPIC_PATIENCE_S, self._config.default_api_timeout_ms / 1000)

    def _missing(self, name: str, partition_count: int | None) -> ClientError | None:
        """The error for a topic, or one of its partitions, that does not exist."""
        if partition_count is None:
            return UnknownTopicError(name)
        for topic, partition in self._subscription.partitions:
            if topic == name and partition >= partition_count:
                return UnknownPartitionError(
                    f"topic {name} has no partition {partition}: it has {partition_count} partitions"
                )
        return None

    def _fail(self, error: Exception) -> None:
        self._buffer.failure = error
        self._on_news()

    # One fetch.

    async def _fetch(
        self, broker_id: int, broker: _BrokerFetches, asked: dict[TopicPartition, _Asked], max_bytes: int
    ) -> None:
        try:
            answer, names = await self._ask(broker_id, broker, asked, max_bytes)
            if answer is not None:
                await self._take(broker_id, broker, asked, answer, names)
        except BrokerConnectionError as error:
            broker.session.failed()
            for partition, one in asked.items():
                one.state.read_replica = None
                self._cluster.distrust(partition.topic)
            _logger.log(
                logging.DEBUG if broker.is_failing else logging.WARNING,
                "fetching from broker %d failed and is retried: %s",
                broker_id,
                error,
            )
            broker.is_failing = True
            self._wait_for(broker, broker.backoff.next_s())
        except Exception as error:
            broker.session.failed()
            self._fail(error)
            self._wait_for(broker, broker.backoff.next_s())
        broker.task = None
        self.wake()

    async def _ask(
        self, broker_id: int, broker: _BrokerFetches, asked: dict[TopicPartition, _Asked], max_bytes: int
    ) -> tuple[FetchResponse | None, dict[Uuid, str]]:
        """Returns the response, or None if a new session is needed, and the names of the topics."""
        connection = await self._cluster.connection(broker_id, broker.lane)
        wanted: dict[TopicPartition, Wanted] = {}
        names: dict[Uuid, str] = {}
        by_id = connection.version_for(FetchRequest) > LAST_VERSION_BY_NAME
        for partition, one in asked.items():
            topic = self._cluster.known_topic(partition.topic)
            topic_id = one.state.topic_id or (ZERO_UUID if topic is None else topic.topic_id)
            by_id = by_id and topic_id != ZERO_UUID
            names[topic_id] = partition.topic
            limit_bytes = max(self._config.max_partition_fetch_bytes, one.limit_bytes)
            wanted[partition] = Wanted(topic_id, one.position.offset, one.state.leader_epoch, limit_bytes)
        version = connection.version_for(FetchRequest, at_most=None if by_id else LAST_VERSION_BY_NAME)
        session = broker.session.ask(wanted, by_id=by_id)
        request = FetchRequest(
            max_wait_ms=self._config.fetch_max_wait_ms,
            min_bytes=self._config.fetch_min_bytes,
            max_bytes=max_bytes,
            isolation_level=self._isolation_level,
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=session.topics,
            forgotten_topics_data=session.forgotten,
            rack_id=self._config.client_rack,
        )
        answer = await connection.send(request, FetchResponse, version=version, timeout_s=self._timeout_s)
        self.counts["requests"] += 1
        if answer.throttle_time_ms:
            self._wait_for(broker, answer.throttle_time_ms / 1000)
        if not answer.error_code:
            broker.session.answered(answer.session_id)
            return answer, names
        broker.session.failed(is_forgotten=True)
        if answer.error_code not in SESSION_ERRORS:
            raise RefusedError(answer.error_code, f"a fetch from broker {broker_id}")
        if answer.error_code in _ID_ERRORS:
            for partition in asked:
                self._cluster.distrust(partition.topic)
            self._wait_for(broker, broker.backoff.next_s())
        return None, names

    async def _take(
        self,
        broker_id: int,
        broker: _BrokerFetches,
        asked: dict[TopicPartition, _Asked],
        answer: FetchResponse,
        names: dict[Uuid, str],
    ) -> None:
        is_refused = False
        unmentioned = {partition: its for partition, its in asked.items() if its.state.topic_id is None}
        for topic in answer.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            topic_id = self._id_of(name) if topic.topic_id == ZERO_UUID else topic.topic_id
            for one in topic.partitions:
                partition = TopicPartition(name, one.partition_index)
                its = asked.get(partition)
                unmentioned.pop(partition, None)
                if its is None or its.state.generation != its.generation or its.state.fetched != its.position:
                    continue  # no longer assigned, or moved by a seek meanwhile
                if one.error_code:
                    is_refused = await self._refused(broker_id, its, one.error_code) or is_refused
                else:
                    its.state.topic_id = topic_id
                    self._accept(its, one)
        if unmentioned:
            self._bind(unmentioned, names)
        if is_refused:
            self._wait_for(broker, broker.backoff.next_s())
        else:
            broker.backoff = Backoff(self._cluster.options)
            broker.is_failing = False
        if self._buffer.has_news:
            self._on_news()

    def _bind(self, asked: Mapping[TopicPartition, _Asked], names: Mapping[Uuid, str]) -> None:
        """Notes the topic ids of the partitions. In a session brokers leave out partitions without news; their
        positions belong to the same topic."""
        ids = {name: topic_id for topic_id, name in names.items() if topic_id != ZERO_UUID}
        for partition, (state, generation, _, _) in asked.items():
            if state.generation == generation:
                state.topic_id = ids.get(partition.topic) or self._id_of(partition.topic)

    def _id_of(self, name: str) -> Uuid | None:
        """The topic id, for brokers that use names in fetches; None if they do not know ids."""
        topic = self._cluster.known_topic(name)
        return None if topic is None or topic.topic_id == ZERO_UUID else topic.topic_id

    def _accept(self, asked: _Asked, answer: FetchPartitionResponse) -> None:
        state, generation, position, _ = asked
        self.counts["bytes"] += len(answer.records or b"")
        state.high_watermark = answer.high_watermark
        state.last_stable_offset = answer.last_stable_offset
        state.log_start_offset = answer.log_start_offset
        if answer.preferred_read_replica >= 0:
            until_s = self._loop.time() + self._config.metadata_max_age_ms / 1000
            state.read_replica = ReadReplica(answer.preferred_read_replica, until_s)
        if not answer.records:
            return
        found = survey(answer.records, position, answer.aborted_transactions if self._isolation_level else None)
        for piece in found.pieces:
            self._buffer.put(
                FetchedChunk(
                    state,
                    generation,
                    piece.data,
                    next_=piece.next,
                    timestamp_type=piece.timestamp_type,
                    leader_epoch=piece.leader_epoch,
                    decoded_bytes=piece.decoded_bytes,
                )
            )
        with self._buffer.lock:
            if state.generation != generation:
                return  # the polling thread moved the position back meanwhile
            state.fetched = found.next
        if found.failure is not None:
            words = f"partition {state.partition}, starting at offset {found.next.offset}: {found.failure.reason}"
            self._positions.fail(state, CorruptRecordError(f"{words}; seek past it to continue"))
        elif found.next.offset > position.offset:
            state.batch_bytes = 0
        elif found.pieces:
            words = f"partition {state.partition}: the broker returned only records before offset {position.offset}"
            self._positions.fail(state, CorruptRecordError(f"{words}; seek past it to continue"))
        else:
            self._cut_off(asked, answer.records)

    def _cut_off(self, asked: _Asked, data: ByteBuffer) -> None:
        """Handles a response that contains only a part of a batch."""
        state = asked.state
        size = 2 * max(len(data), asked.limit_bytes, LENGTH_PREFIX_SIZE)
        if len(data) >= LENGTH_PREFIX_SIZE:
            size = int.from_bytes(data[LENGTH_AT:LENGTH_PREFIX_SIZE], "big") + LENGTH_PREFIX_SIZE
        if asked.limit_bytes < size <= MAX_RESPONSE_BYTES:
            state.batch_bytes = size
            return
        words = f"partition {state.partition}: the batch at offset {asked.position.offset} is incomplete"
        self._positions.fail(
            state, CorruptRecordError(f"{words}, although {size} bytes were requested; seek past it to continue")
        )

    async def _refused(self, broker_id: int, asked: _Asked, code: int) -> bool:
        """Handles an error of a partition. Returns whether to wait before the broker is asked again."""
        state = asked.state
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if state.read_replica is not None and state.read_replica.broker_id == broker_id:
                state.read_replica = None  # the follower is behind: ask the leader
            elif state.waiting or state.position != asked.position:
                state.is_held = True  # asked again when everything before it was returned
            else:
                await self._positions.out_of_range(state)
            return False
        error = RefusedError(code, f"partition {state.partition}")
        if not may_pass(error):
            self._positions.fail(state, error)
            return False
        state.read_replica = None
        self._cluster.distrust(state.partition.topic)
        return True

    def _wait_for(self, broker: _BrokerFetches, seconds: float) -> None:
        broker.not_before_s = max(broker.not_before_s, self._loop.time() + seconds)
        # uvloop's timers count milliseconds: one that fires early would find nothing due, and none would follow.
        self._loop.call_at(broker.not_before_s + _TIMER_GRAIN_S, self.wake)


_ID_ERRORS: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID})
"""The topic was deleted and created again with another id."""
