"""Runs coordinators on the partitions of an internal topic: append, then replay.

A request becomes an operation on the shard (the state machine of one partition). A *write* looks at the state and
answers with records to append and a response; it changes nothing itself. The records are appended as one batch,
atomically; once they are in the log they are replayed, which is the only way in which hard state changes; the response
leaves when they are committed. A *read* waits until everything that was written before it is committed, so nobody is
told what could still be lost. A shard is loaded by replaying its partition, and dropped when that goes elsewhere.

So serving and loading share one code path, and a failed append needs no undoing: nothing was replayed.

Soft state (members that wait to join, timers) belongs to the shard and dies with it. Owned by the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache, partial
from typing import Any, Final, Generic, Protocol, TypeVar

from ottla.base.clock import Clock
from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.key_values import KeyValue as KeyValue
from ottla.coordinator.key_values import Producer, encode_key_values, iter_key_values
from ottla.coordinator.seams import CoordinatorLog, Timer, Timers
from ottla.records.new_batch import NewBatch, new_batch

_logger = logging.getLogger(__name__)

R = TypeVar("R")
S = TypeVar("S", bound="Shard")
S_contra = TypeVar("S_contra", bound="Shard", contravariant=True)
_GATHERED_MAX: Final = 2_000
"""Records in a batch: it must stay below max.message.bytes. Names of groups and topics can have 249 characters each."""
_BEGINS_BATCH: Final = 16
"""A write with so many records begins a batch of its own: what a batch costs is little beside them."""
_LOAD_BYTES: Final = 256 << 10
"""Read at a time: replaying so much takes some ten milliseconds, and then others have their turn."""


@dataclass(slots=True)
class Outcome(Generic[R]):
    """What a write decided: records to append, and the response to give when they are committed. Without records the
    response still waits for what was written before it. A response that is not known yet is a future."""

    response: R | asyncio.Future[R]
    records: Sequence[KeyValue] = ()
    on_appended: Callable[[], None] | None = None
    """Called once the records are appended and replayed, before the response: for soft state that goes with them."""
    producer: Producer | None = None
    """Whose transaction the records are part of."""
    on_failed: Callable[[CoordinatorError], None] | None = None
    """Called if the records could not be appended: for others who wait for them. The caller is told anyway."""


class GatheredWrite(Protocol[S_contra]):
    """A write whose records may share a batch with those of others, become bytes all at once, and are replayed so."""

    count: int
    """How many records."""

    def decide(self, shard: S_contra, /) -> bool:
        """Looks at the state; whether there is anything to append. What it raises, the caller gets."""
        ...

    def records(self, first: int, /) -> bytes:
        """Their bytes in a batch that has so many before them."""
        ...

    def replay(self, first_offset: int, /) -> None:
        """Does to the shard what replaying them one by one would."""
        ...

    def tell(self, error: CoordinatorError | None, /) -> None:
        """They are committed, or not. Must not raise."""
        ...


_Settled = list[tuple[Sequence[GatheredWrite[Any]], CoordinatorError | None]]
"""Writes, and what they are to be told."""


class Shard(Protocol):
    """The state machine of one partition."""

    def replay(self, key: bytes, value: bytes | None, offset: int, producer_id: int, timestamp_ms: int, /) -> None:
        """Makes a record's change. The same bytes always make the same change, whenever it is called."""
        ...

    def replay_end_of_transaction(self, producer_id: int, *, committed: bool) -> None:
        """A transaction marker."""
        ...

    def loaded(self) -> None:
        """Everything there is was replayed: requests follow."""
        ...

    def unload(self) -> None:
        """The shard goes: whoever waits is told, and timers end."""
        ...


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
    """Behind the last record that was written."""
    loading: asyncio.Task[None] | None = None
    gathered: list[GatheredWrite[S]] = field(default_factory=list)
    """Not appended yet."""


@dataclass(slots=True)
class ShardContext:
    """What a shard may use: time, and writes that it begins itself."""

    index: int
    clock: Clock
    _write: Callable[[Callable[[], Outcome[None]]], None]
    _timers: Timers
    _scheduled: dict[str, Timer] = field(default_factory=dict)

    def schedule(self, name: str, delay_s: float, operation: Callable[[], Outcome[None]]) -> None:
        """Runs a write of the shard's own after a while; one of the same name that was scheduled before is not run."""
        self.cancel(name)
        self._scheduled[name] = self._timers.call_later(max(delay_s, 0.0), lambda: self._due(name, operation))

    def cancel(self, name: str) -> None:
        timer = self._scheduled.pop(name, None)
        if timer is not None:
            timer.cancel()

    def is_scheduled(self, name: str) -> bool:
        return name in self._scheduled

    def cancel_all(self) -> None:
        for timer in self._scheduled.values():
            timer.cancel()
        self._scheduled.clear()

    def write(self, operation: Callable[[], Outcome[None]]) -> None:
        """Runs a write of the shard's own now; what goes wrong is logged."""
        self._write(operation)

    def _due(self, name: str, operation: Callable[[], Outcome[None]]) -> None:
        self._scheduled.pop(name, None)
        self._write(operation)


class CoordinatorRuntime(Generic[S]):
    """See the module. `make_shard` makes an empty shard."""

    def __init__(
        self, name: str, log: CoordinatorLog, clock: Clock, timers: Timers, make_shard: Callable[[ShardContext], S]
    ) -> None:
        self.name = name
        self._log = log
        self._clock = clock
        self._timers = timers
        self._make_shard = make_shard
        self._shards: dict[int, _Loaded[S]] = {}
        self._gathering: list[tuple[int, _Loaded[S]]] = []
        """Those with something gathered in this turn of the loop."""
        self.together: Callable[[], AbstractContextManager[None]] = nullcontext
        """Within it many are answered at once: whoever sends the answers may do so together."""

    # --- where things are -------------------------------------------------------------------------------------------

    def partition_of(self, key: str) -> int:
        """Which partition has to do with a group or a transactional id, as in Kafka."""
        count = self._log.partition_count
        if not count:
            reason = f"the topic of the {self.name} is not there yet"
            raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
        return partition_for(key, count)

    def active_shards(self) -> list[S]:
        return [loaded.shard for loaded in list(self._shards.values()) if loaded.state is _State.ACTIVE]

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
        raise CoordinatorError(ErrorCode.NOT_COORDINATOR, "the coordinator's partition could not be loaded")

    def _settled(self, key: str) -> tuple[int, _Loaded[S]]:
        """The same, with nothing gathered that is still to be appended."""
        index, loaded = self._active(key)
        if loaded.gathered:
            self._append_gathered(index, loaded)
            if self._shards.get(index) is not loaded:  # that failed, and the shard is loaded again
                return self._active(key)
        return index, loaded

    # --- requests ---------------------------------------------------------------------------------------------------

    async def write(self, key: str, operation: Callable[[S], Outcome[R]]) -> R:
        """Runs a write; what it raises, the caller gets."""
        answer = self.write_now(key, operation)
        return await answer if isinstance(answer, Coroutine) else answer

    def write_now(self, key: str, operation: Callable[[S], Outcome[R]]) -> R | Coroutine[Any, Any, R]:
        """The same, with the response itself where nothing need be waited for."""
        index, loaded = self._settled(key)
        outcome = operation(loaded.shard)
        if outcome.records:
            self._append_outcome(index, loaded, outcome)
        if outcome.on_appended is not None:
            outcome.on_appended()
        response = outcome.response
        if not isinstance(response, asyncio.Future) and self._log.is_committed(index, loaded.written_offset):
            return response
        return self._respond(index, loaded, response)

    async def _respond(self, index: int, loaded: _Loaded[S], response: R | asyncio.Future[R]) -> R:
        await self._committed(index, loaded.written_offset)
        if not isinstance(response, asyncio.Future):
            return response
        answer = await response
        await self._committed(index, loaded.written_offset)  # What somebody else wrote may have made the answer.
        return answer

    def write_gathered(self, key: str, write: GatheredWrite[S]) -> bool:
        """Runs a write that is appended with others of the same turn of the loop: a batch costs as much as a dozen of
        records. It must not matter to its decision whether those before it are replayed already. Whether there is
        anything to append: only then it is told, later."""
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
        # First all are appended, then all are answered: a client that serves many consumers is woken once, and not for
        # each.
        gathering, self._gathering = self._gathering, []
        settled: _Settled = []
        now_ms = self._clock.now_ms()
        for index, loaded in gathering:
            if loaded.gathered:
                self._append_writes(index, loaded, now_ms, settled)
        with self.together():
            _tell(settled)

    def _append_gathered(self, index: int, loaded: _Loaded[S]) -> None:
        if loaded.gathered:
            settled: _Settled = []
            self._append_writes(index, loaded, self._clock.now_ms(), settled)
            _tell(settled)

    def _append_writes(self, index: int, loaded: _Loaded[S], now_ms: int, settled: _Settled) -> None:
        """Appends what is gathered and adds to those that are settled; who must wait for other replicas is told by
        whoever tells of them. Never raises: every write is told, whatever goes wrong."""
        writes, loaded.gathered = loaded.gathered, []
        for some in (writes,) if len(writes) == 1 else _in_batches(writes):
            try:
                batch, count = _batch_of(some, now_ms)
            except Exception:
                _logger.exception("%s %d: %d writes could not be encoded", self.name, index, len(some))
                settled.append((some, CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR)))
                continue
            is_appended = False
            try:
                end = self._log.append(index, batch)
                is_appended = True
                loaded.written_offset = end
                offset = end - count
                for write in some:
                    write.replay(offset)
                    offset += write.count
            except Exception as error:
                if isinstance(error, CoordinatorError) and not is_appended:
                    settled.append((some, error))
                    continue
                rest = writes[writes.index(some[0]) :]
                settled.append((rest, self._load_again(index, loaded)))
                return
            self._settle(index, end, some, settled)

    def _settle(self, index: int, end: int, writes: Sequence[GatheredWrite[S]], settled: _Settled) -> None:
        """Of writes that are appended and replayed: they are told now, or when they are committed."""
        try:
            if self._log.is_committed(index, end):
                settled.append((writes, None))
            else:
                self._log.when_committed(index, end, partial(_tell_of_commit, writes))
        except Exception:
            _logger.exception("%s %d: the commit of offset %d could not be awaited", self.name, index, end)
            settled.append((writes, CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR)))

    async def read(self, key: str, operation: Callable[[S], R]) -> R:
        """Runs a read. What it sees is told when it is committed."""
        answer = self.read_now(key, operation)
        return await answer if isinstance(answer, Coroutine) else answer

    def read_now(self, key: str, operation: Callable[[S], R]) -> R | Coroutine[Any, Any, R]:
        """The same, with the response itself where nothing need be waited for."""
        index, loaded = self._settled(key)
        response = operation(loaded.shard)
        if self._log.is_committed(index, loaded.written_offset):
            return response
        return self._respond(index, loaded, response)

    async def read_all(self, operation: Callable[[S], R]) -> list[R]:
        """Runs a read on every shard that is loaded here, on all in the same turn of the loop: by the time one answer
        is committed, another shard may have been unloaded. One that goes elsewhere meanwhile is left out."""
        waiting = []
        for index, loaded in list(self._shards.items()):
            if loaded.state is _State.ACTIVE:
                self._append_gathered(index, loaded)
            # Appending may have had it loaded again.
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

    def _append_outcome(self, index: int, loaded: _Loaded[S], outcome: Outcome[Any]) -> None:
        try:
            self._append(index, loaded, outcome.records, outcome.producer)
        except Exception as error:
            if outcome.on_failed is not None:
                unknown = CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR)
                outcome.on_failed(error if isinstance(error, CoordinatorError) else unknown)
            raise

    def _append(self, index: int, loaded: _Loaded[S], records: Sequence[KeyValue], producer: Producer | None) -> None:
        now_ms = self._clock.now_ms()
        batch = encode_key_values(records, now_ms, producer)
        replay = loaded.shard.replay
        producer_id = -1 if producer is None else producer.producer_id
        is_appended = False
        try:
            end = self._log.append(index, batch)
            is_appended = True
            loaded.written_offset = end
            offset = end - len(records)
            for key, value in records:
                replay(key, value, offset, producer_id, now_ms)
                offset += 1
        except Exception as error:
            if isinstance(error, CoordinatorError) and not is_appended:
                raise
            raise self._load_again(index, loaded) from error

    def _load_again(self, index: int, loaded: _Loaded[S]) -> CoordinatorError:
        """What is in the log counts, and after an unforeseen error nobody knows whether a change is. Whoever is loaded
        from the log has all of it or nothing, or is seen to be broken."""
        _logger.exception("%s %d: a write failed unexpectedly; the shard is loaded again", self.name, index)
        self.unload(index)
        self.lead(index, loaded.leader_epoch)
        return CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR)

    async def _committed(self, index: int, offset: int) -> None:
        if self._log.is_committed(index, offset):
            return
        told: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def tell(error: ErrorCode) -> None:
            if not told.done():
                told.set_result(error)

        self._log.when_committed(index, offset, tell)
        error = await told
        if error:
            raise CoordinatorError(error)

    def _write_own(self, index: int, operation: Callable[[], Outcome[None]]) -> None:
        """A write that a shard begins itself: nobody waits for its response."""
        loaded = self._shards.get(index)
        if loaded is None or loaded.state is not _State.ACTIVE:
            return
        self._append_gathered(index, loaded)
        if self._shards.get(index) is not loaded:  # that failed; the operation is of a shard that is gone
            return
        try:
            outcome = operation()
            if outcome.records:
                self._append_outcome(index, loaded, outcome)
            if outcome.on_appended is not None:
                outcome.on_appended()
        except CoordinatorError as error:
            _logger.warning("%s %d: a change of its own could not be written: %s", self.name, index, error)
        except Exception:
            _logger.exception("%s %d: a change of its own failed", self.name, index)

    # --- partitions come and go -------------------------------------------------------------------------------------

    def lead(self, index: int, leader_epoch: int) -> None:
        """This broker leads the partition: its shard is made from what the log holds. Requests for it are refused until
        then, to be tried again. Nothing is done if that is known."""
        known = self._shards.get(index)
        if known is not None and known.leader_epoch == leader_epoch and known.state is not _State.FAILED:
            return
        self.unload(index)
        context = ShardContext(index, self._clock, lambda operation: self._write_own(index, operation), self._timers)
        loaded = self._shards[index] = _Loaded(self._make_shard(context), context, leader_epoch)
        steps = self._load(index, loaded)
        next(steps, None)
        if loaded.state is _State.LOADING:  # one without records is not: most, when the topic has just been made
            work = _in_steps(steps)
            loaded.loading = asyncio.get_running_loop().create_task(work, name=f"{self.name} {index}")

    def _load(self, index: int, loaded: _Loaded[S]) -> Iterator[None]:
        """Gives way from time to time: what is left is done when it is asked for."""
        try:
            offset = self._log.start_offset(index)
            while data := self._log.read(index, offset, _LOAD_BYTES):
                before, offset = offset, self._replay(loaded.shard, data, offset)
                if offset == before:
                    raise CoordinatorError(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {offset} is cut off")
                yield
            loaded.written_offset = offset
            loaded.shard.loaded()
            loaded.state = _State.ACTIVE
        except CoordinatorError as error:
            loaded.state = _State.FAILED
            _logger.error("%s %d could not be loaded; its groups are not served: %s", self.name, index, error)
        except Exception:
            loaded.state = _State.FAILED
            _logger.exception("%s %d could not be loaded; its groups are not served", self.name, index)

    def _replay(self, shard: S, data: bytes, offset: int) -> int:
        """From the offset on, which may be within the first batch; the offset behind the last."""
        for header, found in iter_key_values(data):
            if isinstance(found, list):
                producer_id = header.producer_id if header.is_transactional else -1
                for at, timestamp_ms, key, value in found:
                    if at >= offset and key is not None:
                        shard.replay(key, value, at, producer_id, timestamp_ms)
            elif found is not None:
                shard.replay_end_of_transaction(found.producer_id, committed=found.committed)
            offset = header.next_offset
        return offset

    def end_transaction(self, index: int, marker_end: int, producer_id: int, *, committed: bool) -> None:
        """A marker was appended to the partition, and ends at that offset."""
        loaded = self._shards.get(index)
        if loaded is not None and loaded.state is _State.ACTIVE:
            self._append_gathered(index, loaded)
            if self._shards.get(index) is not loaded:  # that failed; the marker is read from the log
                return
            loaded.written_offset = marker_end
            loaded.shard.replay_end_of_transaction(producer_id, committed=committed)

    def unload(self, index: int) -> None:
        """The partition is led elsewhere, or gone."""
        loaded = self._shards.pop(index, None)
        if loaded is not None:
            if loaded.loading is not None:
                loaded.loading.cancel()
            gathered, loaded.gathered = loaded.gathered, []
            _tell([(gathered, CoordinatorError(ErrorCode.NOT_COORDINATOR))])
            loaded.context.cancel_all()
            try:
                loaded.shard.unload()
            except Exception:
                _logger.exception("%s %d: not everybody could be told that the shard goes", self.name, index)

    def close(self) -> None:
        for index in list(self._shards):
            self.unload(index)


def _in_batches(writes: Sequence[GatheredWrite[S]]) -> Iterator[Sequence[GatheredWrite[S]]]:
    some: list[GatheredWrite[S]] = []
    count = 0
    for write in writes:
        if some and (write.count >= _BEGINS_BATCH or count + write.count > _GATHERED_MAX):
            yield some
            some, count = [], 0
        some.append(write)
        count += write.count
    yield some


def _batch_of(writes: Sequence[GatheredWrite[S]], now_ms: int) -> tuple[NewBatch, int]:
    """One batch of the records of all, and how many those are."""
    first = writes[0]
    records, count = first.records(0), first.count
    if len(writes) > 1:
        parts = [records]
        for write in writes[1:]:
            parts.append(write.records(count))
            count += write.count
        records = b"".join(parts)
    return new_batch(records, count, now_ms), count


def _tell(settled: _Settled) -> None:
    """One that raises does not keep the others from being told."""
    for writes, error in settled:
        for write in writes:
            try:
                write.tell(error)
            except Exception:
                _logger.exception("a write could not be told its outcome")


def _tell_of_commit(writes: Sequence[GatheredWrite[Any]], error: ErrorCode) -> None:
    _tell([(writes, CoordinatorError(error) if error else None)])


async def _in_steps(steps: Iterator[None]) -> None:
    for _ in steps:
        await asyncio.sleep(0)


@lru_cache(16_384)
def partition_for(key: str, partition_count: int) -> int:
    """Java's hash of a string, which goes over its UTF-16 units, without its sign."""
    value = 0
    encoded = key.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(encoded), 2):
        value = (31 * value + int.from_bytes(encoded[at : at + 2], "big")) & 0xFFFFFFFF
    signed = value - (1 << 32) if value & 0x80000000 else value
    return (0 if signed == -(1 << 31) else abs(signed)) % partition_count
