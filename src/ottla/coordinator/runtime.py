"""Runs coordinators on the partitions of an internal topic: append, then replay.

A request becomes an operation on the shard of its partition. A *write* looks at the state and returns records to append
and a response; it changes nothing itself. The records are appended as one batch, atomically. Once they are in the log
they are replayed, and only replay changes hard state: `Shard.replay` is called for records that were just appended and
for records that are loaded. The response leaves when the records are committed. A *read* waits until everything written
before it is committed, so nobody is told what could still be lost. A failed append needs no undoing: nothing was
replayed.

`shards` says what a shard is, `gathering` which writes share a batch, `loading` how a shard is filled from its log.
Owned by the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Final, Generic, TypeVar

from ottla.base.clock import Clock
from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.gathering import GatheredWrite, Settled, batch_of, in_batches, tell_all, tell_committed
from ottla.coordinator.key_values import KeyValue, TransactionProducer, encode_key_values
from ottla.coordinator.loading import replay_log
from ottla.coordinator.partitioning import partition_for
from ottla.coordinator.pending import PendingAnswer
from ottla.coordinator.seams import CoordinatorTopic, Timers
from ottla.coordinator.shards import Shard, ShardContext, WriteOutcome

_logger = logging.getLogger(__name__)

R = TypeVar("R")
S = TypeVar("S", bound=Shard)
_NO_PRODUCER: Final = -1
_COMMIT_RETRY_S: Final = 0.1
"""How long a shard that waits for a commit waits after an error before it asks again."""


class _State(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"


_ACTIVE: Final = _State.ACTIVE


@dataclass(slots=True)
class _Loaded(Generic[S]):
    shard: S
    context: ShardContext
    leader_epoch: int
    state: _State = _State.LOADING
    written_offset: int = 0
    """The offset after the last record written."""
    loading: asyncio.Task[None] | None = None
    gathered: list[GatheredWrite[S]] = field(default_factory=list)
    """Writes that are not appended yet."""


class CoordinatorRuntime(Generic[S]):
    """See the module. `make_shard` makes an empty shard."""

    def __init__(
        self, name: str, log: CoordinatorTopic, clock: Clock, timers: Timers, make_shard: Callable[[ShardContext], S]
    ) -> None:
        self.name = name
        self._log = log
        self._clock = clock
        self._timers = timers
        self._make_shard = make_shard
        self._shards: dict[int, _Loaded[S]] = {}
        self._gathering: list[tuple[int, _Loaded[S]]] = []
        """Shards with writes gathered in this turn of the loop."""
        self.together: Callable[[], AbstractContextManager[None]] = nullcontext
        """A context in which many requests are answered, so that the server can send the answers together."""

    # --- where things are -------------------------------------------------------------------------------------------

    def partition_of(self, key: str) -> int:
        """The partition that is responsible for a group, as in Kafka."""
        count = self._log.partition_count
        if not count:
            reason = f"The topic of the {self.name} does not exist yet."
            raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
        return partition_for(key, count)

    def active_shards(self) -> list[S]:
        return [loaded.shard for loaded in list(self._shards.values()) if loaded.state is _State.ACTIVE]

    def all_shards(self) -> list[S]:
        """Also those that are still loading."""
        return [loaded.shard for loaded in list(self._shards.values()) if loaded.state is not _State.FAILED]

    @property
    def is_loading(self) -> bool:
        return any(loaded.state is _State.LOADING for loaded in self._shards.values())

    def _active(self, key: str) -> tuple[int, _Loaded[S]]:
        count = self._log.partition_count
        index = partition_for(key, count) if count else self.partition_of(key)
        loaded = self._shards.get(index)
        if loaded is not None and loaded.state is _ACTIVE:
            return index, loaded
        if loaded is None:
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR)
        if loaded.state is _State.LOADING:
            raise CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        raise CoordinatorError(ErrorCode.NOT_COORDINATOR, "The coordinator's partition could not be loaded.")

    def _settled(self, key: str) -> tuple[int, _Loaded[S]]:
        """Like `_active`, after everything gathered for the shard is appended."""
        index, loaded = self._active(key)
        if loaded.gathered:
            self._append_gathered(index, loaded)
            if self._shards.get(index) is not loaded:  # appending failed, and the shard is loading again
                return self._active(key)
        return index, loaded

    # --- requests ---------------------------------------------------------------------------------------------------

    async def write(self, key: str, operation: Callable[[S], WriteOutcome[R]]) -> R:
        """Runs a write and returns its response. Exceptions of the operation go to the caller."""
        answer = self.write_now(key, operation)
        return await answer if isinstance(answer, Coroutine) else answer

    def write_now(self, key: str, operation: Callable[[S], WriteOutcome[R]]) -> R | Coroutine[Any, Any, R]:
        """Like `write`, but returns the response itself if it need not wait."""
        index, loaded = self._settled(key)
        outcome = operation(loaded.shard)
        if outcome.records:
            self._append_outcome(index, loaded, outcome)
        if outcome.on_appended is not None:
            outcome.on_appended()
        response = outcome.response
        if self._log.is_committed(index, loaded.written_offset):
            if not isinstance(response, PendingAnswer):
                return response
            if response.is_answered:
                return response.response
        return self._respond(index, loaded, response)

    async def _respond(self, index: int, loaded: _Loaded[S], response: R | PendingAnswer[R]) -> R:
        await self._committed(index, loaded.written_offset)
        if not isinstance(response, PendingAnswer):
            return response
        answered: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        response.when_answered(partial(_set_result, answered))
        answer = await answered
        await self._committed(index, loaded.written_offset)  # The answer may come from a write of another request.
        return answer

    def write_gathered(self, key: str, write: GatheredWrite[S]) -> bool:
        """Runs a write that is appended together with others of this turn of the loop. Its decision must not depend on
        whether the writes before it are replayed yet. Returns whether there is anything to append; only then the
        write's `tell` is called, later."""
        index, loaded = self._active(key)
        if not write.decide(loaded.shard):
            return False
        gathered = loaded.gathered
        if not gathered:
            if not self._gathering:
                self._timers.call_later(0, self._append_all_gathered)
            self._gathering.append((index, loaded))
        gathered.append(write)
        return True

    def _append_all_gathered(self) -> None:
        # All are appended before the first is answered: a client with many consumers is woken once, not many times.
        gathering, self._gathering = self._gathering, []
        settled: Settled = []
        now_ms = self._clock.now_ms()
        for index, loaded in gathering:
            if loaded.gathered:
                self._append_writes(index, loaded, now_ms, settled)
        with self.together():
            tell_all(settled)

    def _append_gathered(self, index: int, loaded: _Loaded[S]) -> None:
        if loaded.gathered:
            settled: Settled = []
            self._append_writes(index, loaded, self._clock.now_ms(), settled)
            tell_all(settled)

    def _append_writes(self, index: int, loaded: _Loaded[S], now_ms: int, settled: Settled) -> None:
        """Appends what is gathered and adds the writes to `settled`, except those that wait for other replicas: these
        are told when the replicas have the records. Never raises: every write is told its result."""
        writes, loaded.gathered = loaded.gathered, []
        replay = loaded.shard.replay
        for some in (writes,) if len(writes) == 1 else in_batches(writes):
            try:
                batch, count = batch_of(some, now_ms)
            except Exception:
                _logger.exception("%s %d: could not encode %d writes.", self.name, index, len(some))
                settled.append((some, CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR)))
                continue
            is_appended = False
            try:
                end = self._log.append(index, batch)
                is_appended = True
                loaded.written_offset = end
                offset = end - count
                for write in some:
                    pieces = write.records()
                    if len(pieces) == 1:  # nearly all
                        behind = offset + write.count
                        replay(pieces[0], range(offset, behind), _NO_PRODUCER)
                        offset = behind
                        continue
                    for records in pieces:
                        behind = offset + len(records)
                        replay(records, range(offset, behind), _NO_PRODUCER)
                        offset = behind
            except Exception as error:
                if isinstance(error, CoordinatorError) and not is_appended:
                    settled.append((some, error))
                    continue
                rest = writes[writes.index(some[0]) :]
                settled.append((rest, self._load_again(index, loaded)))
                return
            self._settle(index, end, some, settled)

    def _settle(self, index: int, end: int, writes: Sequence[GatheredWrite[S]], settled: Settled) -> None:
        """Handles writes that are appended and replayed: they are told now, or when they are committed."""
        try:
            if self._log.is_committed(index, end):
                settled.append((writes, None))
            else:
                self._log.when_committed(index, end, partial(tell_committed, writes))
        except Exception:
            _logger.exception("%s %d: could not wait for offset %d to be committed.", self.name, index, end)
            settled.append((writes, CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR)))

    async def read(self, key: str, operation: Callable[[S], R]) -> R:
        """Runs a read. Its response waits until everything that the read saw is committed."""
        answer = self.read_now(key, operation)
        return await answer if isinstance(answer, Coroutine) else answer

    def read_now(self, key: str, operation: Callable[[S], R]) -> R | Coroutine[Any, Any, R]:
        """Like `read`, but returns the response itself if it need not wait."""
        index, loaded = self._settled(key)
        response = operation(loaded.shard)
        if self._log.is_committed(index, loaded.written_offset):
            return response
        return self._respond(index, loaded, response)

    async def read_all(self, operation: Callable[[S], R]) -> list[R]:
        """Runs a read on every loaded shard, all in the same turn of the loop: while one answer waits to be committed,
        another shard may be unloaded. Leaves out shards that move to another broker meanwhile."""
        waiting = []
        for index, loaded in list(self._shards.items()):
            if loaded.state is _State.ACTIVE:
                self._append_gathered(index, loaded)
            # If appending failed, the shard is loading again.
            if self._shards.get(index) is loaded and loaded.state is _State.ACTIVE:
                waiting.append((index, loaded.written_offset, operation(loaded.shard)))
        answers = []
        for index, written_offset, answer in waiting:
            try:
                await self._committed(index, written_offset)
            except CoordinatorError as error:
                if error.code is not ErrorCode.NOT_COORDINATOR:
                    raise
            else:
                answers.append(answer)
        return answers

    def _append_outcome(self, index: int, loaded: _Loaded[S], outcome: WriteOutcome[Any]) -> None:
        try:
            self._append(index, loaded, outcome.records, outcome.producer)
        except Exception as error:
            if outcome.on_failed is not None:
                unknown = CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR)
                outcome.on_failed(error if isinstance(error, CoordinatorError) else unknown)
            raise

    def _append(
        self, index: int, loaded: _Loaded[S], records: Sequence[KeyValue], producer: TransactionProducer | None
    ) -> None:
        batch = encode_key_values(records, self._clock.now_ms(), producer)
        producer_id = _NO_PRODUCER if producer is None else producer.producer_id
        is_appended = False
        try:
            end = self._log.append(index, batch)
            is_appended = True
            loaded.written_offset = end
            loaded.shard.replay(records, range(end - len(records), end), producer_id)
        except Exception as error:
            if isinstance(error, CoordinatorError) and not is_appended:
                raise
            raise self._load_again(index, loaded) from error

    def _load_again(self, index: int, loaded: _Loaded[S]) -> CoordinatorError:
        """After an unexpected error nobody knows whether a change is in the log, and only the log counts: the shard is
        loaded again, which applies all of the change or nothing."""
        _logger.exception("%s %d: a write failed unexpectedly; loading the shard again.", self.name, index)
        self.unload(index)
        self.lead(index, loaded.leader_epoch)
        return CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR)

    async def _committed(self, index: int, offset: int) -> None:
        if self._log.is_committed(index, offset):
            return
        told: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._log.when_committed(index, offset, partial(_set_result, told))
        error = await told
        if error:
            raise CoordinatorError(error)

    def _write_own(self, context: ShardContext, operation: Callable[[], WriteOutcome[None]]) -> None:
        """Runs a write that the shard started itself; nobody waits for its response. Nothing, if the shard is gone:
        what it wanted to write may be outdated in the one that is loaded instead."""
        index = context.index
        loaded = self._shards.get(index)
        if loaded is None or loaded.context is not context or loaded.state is not _State.ACTIVE:
            return
        self._append_gathered(index, loaded)
        if self._shards.get(index) is not loaded:  # appending failed; the operation belongs to a shard that is gone
            return
        try:
            outcome = operation()
            if outcome.records:
                self._append_outcome(index, loaded, outcome)
            if outcome.on_appended is not None:
                outcome.on_appended()
        except CoordinatorError as error:
            _logger.warning("%s %d: could not write a change that the coordinator started: %s", self.name, index, error)
        except Exception:
            _logger.exception("%s %d: a change that the coordinator started failed.", self.name, index)

    def _is_committed(self, context: ShardContext) -> bool:
        """See `ShardContext`."""
        loaded = self._shards.get(context.index)
        return (
            loaded is not None
            and loaded.context is context
            and loaded.state is _ACTIVE
            and self._log.is_committed(context.index, loaded.written_offset)
        )

    def _when_committed(self, context: ShardContext, tell: Callable[[], None]) -> None:
        """See `ShardContext`. An error does not end the wait: it may only mean that replicas are slow, or that this
        leader has a new epoch. If another broker leads now, the shard is unloaded."""
        index = context.index
        loaded = self._shards.get(index)
        if loaded is None or loaded.context is not context:
            return
        offset = loaded.written_offset

        def is_unloaded() -> bool:
            return self._shards.get(index) is not loaded

        def look() -> None:
            if is_unloaded():
                return
            if self._log.is_committed(index, offset):
                try:
                    tell()
                except Exception:
                    _logger.exception("%s %d: what waited for a commit failed.", self.name, index)
            else:
                self._log.when_committed(index, offset, told)

        def told(error: ErrorCode) -> None:
            # Looks again in a turn of its own: the log may be in the middle of an append.
            self._timers.call_later(_COMMIT_RETRY_S if error else 0, look)

        self._timers.call_later(0, look)

    # --- partitions come and go -------------------------------------------------------------------------------------

    def lead(self, index: int, leader_epoch: int) -> None:
        """Called when this broker becomes the leader of the partition: loads its shard from the log. Until then,
        requests are refused with a retriable error. A leader that only gets a new epoch, because an in-sync replica
        died, keeps its shard: nobody else wrote to its log. `unload` must come between two leaderships."""
        known = self._shards.get(index)
        if known is not None and known.state is not _State.FAILED:
            known.leader_epoch = known.context.leader_epoch = leader_epoch
            return
        self.unload(index)
        committed = self._is_committed, self._when_committed
        context = ShardContext(index, self._clock, self._write_own, self._timers, *committed, leader_epoch)
        loaded = self._shards[index] = _Loaded(self._make_shard(context), context, leader_epoch)
        steps = self._load(index, loaded)
        next(steps, None)
        if loaded.state is _State.LOADING:  # an empty partition is loaded already, as most are when the topic is new
            work = _in_steps(steps)
            loaded.loading = asyncio.get_running_loop().create_task(work, name=f"{self.name} {index}")

    def _load(self, index: int, loaded: _Loaded[S]) -> Iterator[None]:
        """Yields after each piece, so that others have their turn."""
        try:
            loaded.written_offset = yield from replay_log(self._log, index, loaded.shard)
            loaded.shard.loaded()
            loaded.state = _State.ACTIVE
        except CoordinatorError as error:
            loaded.state = _State.FAILED
            _logger.error(
                "%s %d: could not load the partition; its groups are unavailable: %s", self.name, index, error
            )
        except Exception:
            loaded.state = _State.FAILED
            _logger.exception("%s %d: could not load the partition; its groups are unavailable.", self.name, index)

    def end_transaction(self, index: int, marker_end: int, producer_id: int, *, committed: bool) -> None:
        """Called when a transaction marker was appended to the partition; `marker_end` is the offset after it. Never
        raises: the marker is in the log."""
        loaded = self._shards.get(index)
        if loaded is not None and loaded.state is _State.ACTIVE:
            self._append_gathered(index, loaded)
            if self._shards.get(index) is not loaded:  # appending failed; the marker is read from the log
                return
            # What was gathered may have been appended after the marker.
            loaded.written_offset = max(loaded.written_offset, marker_end)
            try:
                loaded.shard.replay_end_of_transaction(producer_id, committed=committed)
            except Exception:
                self._load_again(index, loaded)

    def unload(self, index: int) -> None:
        """Drops the shard: another broker leads the partition now, or it was deleted."""
        loaded = self._shards.pop(index, None)
        if loaded is not None:
            if loaded.loading is not None:
                loaded.loading.cancel()
            gathered, loaded.gathered = loaded.gathered, []
            tell_all([(gathered, CoordinatorError(ErrorCode.NOT_COORDINATOR))])
            loaded.context.cancel_all()
            try:
                loaded.shard.unload()
            except Exception:
                _logger.exception(
                    "%s %d: could not answer every waiting request when the shard was unloaded.", self.name, index
                )

    def close(self) -> None:
        for index in list(self._shards):
            self.unload(index)


def _set_result(future: asyncio.Future[R], result: R) -> None:
    if not future.done():  # a caller that was cancelled no longer waits
        future.set_result(result)


async def _in_steps(steps: Iterator[None]) -> None:
    for _ in steps:
        await asyncio.sleep(0)
