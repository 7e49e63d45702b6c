"""Transactional producers, partitions and a coordinator that crashes, by chance, in simulated time.

What is simulated: producers of the old protocol and of the new one (transaction version 2), which write to partitions,
commit, abort, prepare (two-phase commit), crash, are replaced and come back as zombies; a network that loses, delays
and repeats requests, responses and markers; coordinators that crash between any two steps and are replaced by one that
has the committed log, and as much of the rest as chance leaves. With `last_epoch`, a producer id has only that many
epochs, so that they are used up all the time.

What must hold, whatever happens:

- a transaction ends in the same way in all its partitions, and as its producer was told;
- it is committed only if its owner asked for that, and aborted only if its owner did, it timed out or was replaced: an
  end or a marker that was delayed never ends a later transaction;
- an identity (producer id and epoch) is given to one producer only, and its epochs never go back;
- a producer writes nothing after its successor was given an identity;
- markers of the coordinator that leads are never refused;
- once things settle, no transaction is open anywhere, and what was acknowledged in a committed one is committed.

What the old protocol cannot promise is left out: its requests and markers are not delayed beyond the end of the
transaction that they belong to (that is what version 2 is for).
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.key_values import iter_key_values
from ottla.coordinator.transactions import transaction as core
from ottla.coordinator.transactions.records import id_of, transaction_of
from ottla.coordinator.transactions.seams import EndMarker
from ottla.coordinator.transactions.service import TransactionCoordinatorService
from ottla.coordinator.transactions.settings import TransactionSettings
from ottla.coordinator.transactions.states import IDLE
from ottla.coordinator.transactions.transaction import ProducerIdentity
from ottla.records import BatchView
from ottla.records.layout import NO_LEADER_EPOCH
from ottla.records.new_batch import NewBatch
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from support.coordinators.classic_members import FakeCaller
from support.coordinators.simulated_time import SimulatedTime
from support.coordinators.transactional import FakeGroups

NONE: Final = ErrorCode.NONE
PARTITIONS: Final = 3
TIMEOUT_MS: Final = 5_000
SETTINGS: Final = TransactionSettings(
    max_timeout_ms=TIMEOUT_MS,
    id_expiration_ms=10**12,
    abort_interval_ms=1_000,
    remove_expired_interval_ms=10**9,
    two_phase_commit=True,
    completion_wait_ms=300,
)
_TURNS: Final = 10
_RETRIED: Final = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


class ModelLog:
    """One partition of `__transaction_state`; the test says how far it is committed, unless it has one replica only
    (`commits_at_once`)."""

    partition_count = 1

    def __init__(self, batches: list[bytes], on_append: Callable[[bytes], None]) -> None:
        self.batches = batches
        self.on_append = on_append
        self.ends = [BatchView(batch).next_offset for batch in batches]
        self.committed = self.end
        self.is_gone = False
        self.commits_at_once = False
        self.refusals = 0
        """That many appends fail."""
        self._waiting: list[tuple[int, Callable[[ErrorCode], None]]] = []

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else 0

    def append(self, _index: int, batch: NewBatch) -> int:
        if self.is_gone:
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR)
        if self.refusals:
            self.refusals -= 1
            raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        data = bytearray(batch.placed(0, NO_LEADER_EPOCH))
        BatchView(data).assign_offset(self.end)
        self.batches.append(bytes(data))
        self.ends.append(BatchView(data).next_offset)
        self.on_append(bytes(data))
        if self.commits_at_once:
            self.commit(self.end)
        return self.end

    def is_committed(self, _index: int, offset: int) -> bool:
        return self.committed >= offset

    def when_committed(self, _index: int, offset: int, tell: Callable[[ErrorCode], None]) -> None:
        if self.committed >= offset:
            tell(NONE)
        else:
            self._waiting.append((offset, tell))

    def commit(self, offset: int, error: ErrorCode = NONE) -> None:
        """Everything below the offset; or those who wait are told an error."""
        self.committed = max(self.committed, offset)
        waiting, self._waiting = self._waiting, []
        for each, tell in waiting:
            if error or self.committed >= each:
                tell(NONE if self.committed >= each else error)
            else:
                self._waiting.append((each, tell))

    def read(self, _index: int, offset: int, _max_bytes: int) -> bytes:
        return b"".join(batch for batch, end in zip(self.batches, self.ends, strict=True) if end > offset)

    def start_offset(self, _index: int) -> int:
        return 0

    def survivor(self, chance: random.Random) -> ModelLog:
        """What another replica has: everything committed, and perhaps more."""
        kept = chance.choice([end for end in [0, *self.ends] if end >= self.committed])
        batches = [batch for batch, end in zip(self.batches, self.ends, strict=True) if end <= kept]
        return ModelLog(batches, self.on_append)


@dataclass(slots=True)
class ProducerEntry:
    """What a partition knows of a producer id."""

    epoch: int = -1
    coordinator_epoch: int = -1
    open: list[tuple[Label, int]] = field(default_factory=list)
    """Records of the open transaction."""
    markers: int = 0
    """How many there were; one that arrives while a batch waits for its confirmation takes the confirmation back."""


@dataclass(slots=True, eq=False)
class Label:
    """A transaction of the application."""

    name: str
    begun_ms: int
    two_phase: bool
    asked: set[bool] = field(default_factory=set)
    """The ends that its owner asked for."""
    may_be_aborted: bool = False
    """A new producer started, or it was there long enough to time out."""
    told: bool | None = None
    outcome: bool | None = None
    ended_in: set[int] = field(default_factory=set)
    """The partitions with its marker."""
    acknowledged: set[int] = field(default_factory=set)
    committed: set[int] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Producer:
    """A process that uses a transactional id."""

    transactional_id: str
    number: int
    version: int
    two_phase: bool
    identity: ProducerIdentity | None = None
    label: Label | None = None
    added: set[int] = field(default_factory=set)
    request: Request | None = None
    """What it waits for, or sends again."""
    is_prepared: bool = False
    must_abort: bool = False
    may_be_fenced: bool = False
    """Another producer has started since it was given its identity."""
    is_dead: bool = False


@dataclass(slots=True, eq=False)
class Request:
    producer: Producer
    send: Callable[[], Coroutine[Any, Any, Any]]
    answer: Callable[[Any], None]
    can_be_delayed: bool
    is_start: bool = False
    needs: Callable[[], bool] = lambda: True
    """Otherwise the application gives up."""
    task: asyncio.Task[Any] | None = None


@dataclass(slots=True, eq=False)
class ModelMarkerWrite:
    marker: EndMarker
    left: set[int]
    done: Callable[[ErrorCode], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class TransactionModel:
    """See the module. Also the coordinator's marker sender and its source of producer ids."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.partitions: list[dict[int, ProducerEntry]] = [{} for _ in range(PARTITIONS)]
        self.producers: list[Producer] = []
        self.network: list[Request] = []
        """Requests that were delayed, and come at some time."""
        self.marker_network: list[tuple[ModelMarkerWrite, int]] = []
        self.strays: list[asyncio.Task[Any]] = []
        self.given: dict[ProducerIdentity, Producer] = {}
        self.decided: dict[ProducerIdentity, int] = {}
        """When the coordinator wrote that an identity owns its transactional id."""
        self.decisions = 0
        self.newest: dict[str, ProducerIdentity] = {}
        """The latest identity of a transactional id that a producer was given."""
        self.starting: Counter[str] = Counter()
        """How many producers are just starting, of each transactional id."""
        self.labels: list[Label] = []
        self.last_id = 100
        self.payloads = 0
        self.leader_epoch = 0
        self.passed_ms = 0
        self.is_at_rest = False
        self._lead(ModelLog([], self._note_owners))

    # --- the coordinator --------------------------------------------------------------------------------------------

    def _lead(self, log: ModelLog) -> None:
        self.log = log
        log.commits_at_once = self.chance.random() < 0.4
        self.time = SimulatedTime()
        self.time.advance_ms(self.passed_ms)
        self.leader_epoch += 1
        self.service = TransactionCoordinatorService(
            log, self.time, self.time, SETTINGS, self, self, FakeGroups(), lambda _: True
        )
        self.service.lead(0, self.leader_epoch)

    def _note_owners(self, batch: bytes) -> None:
        for _, found in iter_key_values(batch):
            assert isinstance(found, list)
            for _, _, key, value in found:
                assert key is not None
                assert value is not None
                transaction = transaction_of(id_of(key) or "", value)
                self.decisions += 1
                self.decided[transaction.owner] = self.decisions

    async def next_id(self) -> int:
        await asyncio.sleep(0)
        self.last_id += 1
        return self.last_id

    def write(
        self, marker: EndMarker, partitions: Collection[TopicPartition], done: Callable[[ErrorCode], None]
    ) -> ModelMarkerWrite:
        assert marker.coordinator_epoch == self.leader_epoch
        write = ModelMarkerWrite(marker, {each.partition for each in partitions}, done)
        self.marker_network += [(write, each) for each in sorted(write.left)]
        return write

    def write_now(self, marker: EndMarker, partitions: Collection[TopicPartition]) -> bool:
        """May stop anywhere; what follows all markers may be refused."""
        assert marker.coordinator_epoch == self.leader_epoch
        assert self.log.committed == self.log.end, "markers of a decision that a failover can take back"
        for each in sorted(partitions):
            if self.chance.random() < 0.2:
                return False
            error = self._put_marker(each.partition, marker)
            assert not error, f"{marker} of the leading coordinator is refused: {error.name}"
        self.log.refusals = self.chance.random() < 0.1 and not self.is_at_rest
        return True

    async def _crash(self) -> None:
        self.log.is_gone = True
        for request in [each.request for each in self.producers if each.request is not None]:
            if request.task is not None:
                request.task.cancel()
                request.task = None
        for task in self.strays:
            task.cancel()
        self.strays.clear()
        for write, _ in self.marker_network:
            write.cancel()
        if self.chance.random() < 0.5:
            self.marker_network.clear()
        self._lead(self.log.survivor(self.chance))
        await self._settle()

    async def _settle(self) -> None:
        for _ in range(_TURNS):
            await asyncio.sleep(0)
            self.time.advance_ms(0)
        self._take_answers()

    # --- partitions -------------------------------------------------------------------------------------------------

    def _entry(self, index: int, producer_id: int) -> ProducerEntry:
        return self.partitions[index].setdefault(producer_id, ProducerEntry())

    async def _produce(
        self, producer: Producer, label: Label, identity: ProducerIdentity, index: int, batch: int
    ) -> ErrorCode:
        """As a leader does: a batch that begins a transaction in the partition is confirmed first."""
        entry = self._entry(index, identity.producer_id)
        if entry.epoch > identity.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if not entry.open or entry.epoch != identity.producer_epoch:
            markers = entry.markers
            answer = self.service.confirm(
                producer.transactional_id,
                *identity,
                [TopicPartition("t", index)],
                verify_only=producer.version < 2,
            )
            errors = await answer if isinstance(answer, Coroutine) else answer
            (error,) = errors.values()
            if error:
                return error
            # With version 2 the epoch tells the marker of the previous transaction, for which the confirmation may have
            # waited, from the marker of this one. Without, the confirmation never waits for a marker.
            if entry.epoch > identity.producer_epoch or (producer.version < 2 and entry.markers != markers):
                return ErrorCode.INVALID_TXN_STATE
            is_earlier_open = entry.open and entry.epoch != identity.producer_epoch
            assert not is_earlier_open, f"{identity} writes into an open transaction of epoch {entry.epoch}"
        if (label, batch) not in entry.open:
            assert index not in label.ended_in, f"a batch joins {label.name}, which has ended"
            newest = self.newest[producer.transactional_id]
            is_replaced = self.decided[newest] > self.decided[identity] and self.given[newest] is not producer
            assert not is_replaced, f"{identity} writes, but {newest} has replaced it"
            entry.open.append((label, batch))
        entry.epoch = identity.producer_epoch
        return NONE

    def _put_marker(self, index: int, marker: EndMarker) -> ErrorCode:
        entry = self._entry(index, marker.producer_id)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        if marker.producer_epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if marker.transaction_version >= 2 and entry.open and marker.producer_epoch == entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        for label, batch in entry.open:
            self._ended(label, marker.committed)
            label.ended_in.add(index)
            if marker.committed:
                label.committed.add(batch)
        entry.open.clear()
        entry.epoch, entry.coordinator_epoch = marker.producer_epoch, marker.coordinator_epoch
        entry.markers += 1
        return NONE

    def _ended(self, label: Label, committed: bool) -> None:
        assert label.outcome in (None, committed), f"{label.name} is torn"
        assert label.told in (None, committed), f"{label.name} does not end as its producer was told"
        label.outcome = committed
        if committed:
            assert True in label.asked, f"{label.name} is committed, which nobody asked for"
        else:
            has_reason = False in label.asked or label.may_be_aborted or self._is_overdue(label)
            assert has_reason, f"{label.name} is aborted without a reason"

    def _is_overdue(self, label: Label) -> bool:
        return not label.two_phase and self.passed_ms - label.begun_ms >= TIMEOUT_MS

    def _deliver_marker(self) -> None:
        at = self.chance.randrange(len(self.marker_network))
        write, index = self.marker_network.pop(at)
        error = self._put_marker(index, write.marker)
        chance = self.chance.random()
        if write.marker.transaction_version >= 2 and chance < 0.1:  # a copy is still on its way
            self.marker_network.append((write, index))
        if write.is_cancelled or index not in write.left:
            return
        assert not error, f"{write.marker} of the leading coordinator is refused: {error.name}"
        if chance > 0.85 and write.marker.transaction_version >= 2:  # the answer is lost
            self.marker_network.append((write, index))
            return
        write.left.discard(index)
        if not write.left:
            write.done(NONE)

    # --- producers --------------------------------------------------------------------------------------------------

    def _come(self, transactional_id: str, *, two_phase: bool = False) -> None:
        version = 2 if two_phase else self.chance.choice((0, 2, 2))
        two_phase = two_phase or (version == 2 and self.chance.random() < 0.4)
        producer = Producer(transactional_id, len(self.producers), version, two_phase)
        self.producers.append(producer)
        self._init(producer)

    def _ask(
        self,
        producer: Producer,
        send: Callable[[], Coroutine[Any, Any, Any]],
        answer: Callable[[Any], None],
        *,
        can_be_delayed: bool | None = None,
    ) -> None:
        delayed = producer.version >= 2 if can_be_delayed is None else can_be_delayed
        producer.request = Request(producer, send, answer, delayed)

    def _init(self, producer: Producer, *, expected: ProducerIdentity | None = None) -> None:
        keep = producer.two_phase and expected is None and self._is_prepared(producer)

        async def send() -> Any:
            if expected is None:
                self._note_start(producer, keeps=keep)
            elif producer.label is not None:
                producer.label.may_be_aborted = True
            request = InitProducerIdRequest(
                transactional_id=producer.transactional_id,
                transaction_timeout_ms=TIMEOUT_MS,
                enable2_pc=producer.two_phase,
                keep_prepared_txn=keep,
            )
            if expected is not None:
                request.producer_id, request.producer_epoch = expected
            self.starting[producer.transactional_id] += 1
            try:
                return await self.service.init_producer_id(request, FakeCaller(6))
            finally:
                self.starting[producer.transactional_id] -= 1

        def answer(response: Any) -> None:
            if response.error_code:
                self._fail(producer, ErrorCode(response.error_code))
                return
            if expected is not None:
                self._leave(producer)
            self._give(producer, ProducerIdentity(response.producer_id, response.producer_epoch))
            if response.ongoing_txn_producer_id >= 0:
                self._take_over(
                    producer, ProducerIdentity(response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)
                )

        self._ask(producer, send, answer, can_be_delayed=not keep)
        assert producer.request is not None
        producer.request.is_start = expected is None
        if keep:
            producer.request.needs = lambda: self._is_prepared(producer)

    def _is_prepared(self, producer: Producer) -> bool:
        """Whether nobody writes in a transaction of this id: only then its application lets another process keep it."""
        return all(
            each.label is None or each.is_prepared
            for each in self.producers
            if each.transactional_id == producer.transactional_id and each is not producer
        )

    def _note_start(self, producer: Producer, *, keeps: bool) -> None:
        """What a producer that starts may do to the others."""
        for each in self.producers:
            if each.transactional_id == producer.transactional_id:
                each.may_be_fenced |= each is not producer
                if each.label is not None and not keeps:
                    each.label.may_be_aborted = True

    def _give(self, producer: Producer, identity: ProducerIdentity) -> None:
        assert self.given.setdefault(identity, producer) is producer, f"{identity} is given twice"
        before = producer.identity
        assert before is None or before.producer_id != identity.producer_id or before <= identity, "an epoch went back"
        assert identity.producer_epoch < core.LAST_EPOCH
        producer.identity = identity
        newest = self.newest.setdefault(producer.transactional_id, identity)
        if self.decided[newest] < self.decided[identity]:
            self.newest[producer.transactional_id] = identity

    def _take_over(self, producer: Producer, ongoing: ProducerIdentity) -> None:
        owner = self.given[ongoing]
        assert owner.label is not None
        producer.label, producer.is_prepared = owner.label, True
        producer.added = set(range(PARTITIONS))

    def _leave(self, producer: Producer) -> None:
        """Its transaction, whatever became of it."""
        producer.label, producer.is_prepared, producer.must_abort = None, False, False
        producer.added = set()

    def _fail(self, producer: Producer, error: ErrorCode) -> None:
        if error in _RETRIED:
            return
        producer.request = None
        label = producer.label
        has_reason = producer.may_be_fenced or producer.must_abort or (label is not None and self._is_overdue(label))
        assert has_reason or error is ErrorCode.INVALID_REQUEST, f"{producer.identity} fails: {error.name}"
        is_fenced = error in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if is_fenced or producer.identity is None or producer.must_abort:
            producer.is_dead = True
        else:
            producer.must_abort = True

    def _act(self, producer: Producer) -> None:
        """A step of the application."""
        if producer.identity is None:
            self._init(producer)
        elif producer.must_abort:
            if producer.version >= 2 and self.chance.random() < 0.5:
                self._init(producer, expected=producer.identity)
            else:
                self._end(producer, committed=False)
        elif producer.label is None:
            name = f"{producer.transactional_id}/{len(self.labels)}"
            label = producer.label = Label(name, self.passed_ms, producer.two_phase)
            label.may_be_aborted = self.starting[producer.transactional_id] > 0
            self.labels.append(label)
        elif producer.is_prepared or (producer.added and self.chance.random() < 0.4):
            if producer.two_phase and not producer.is_prepared:
                producer.is_prepared = True
            elif producer.two_phase and self.chance.random() < 0.4:  # Another process has to complete it.
                producer.is_dead = True
                self._come(producer.transactional_id, two_phase=True)
            else:
                self._end(producer, committed=self.chance.random() < 0.6)
        else:
            self._write(producer, self.chance.randrange(PARTITIONS))

    def _write(self, producer: Producer, index: int) -> None:
        identity, label = producer.identity, producer.label
        assert identity is not None
        assert label is not None
        self.payloads += 1
        batch = self.payloads
        if producer.version < 2 and index not in producer.added:
            self._add_old(producer, index)
            return

        async def send() -> ErrorCode:
            return await self._produce(producer, label, identity, index, batch)

        def answer(error: ErrorCode) -> None:
            if error:
                self._fail(producer, error)
            else:
                producer.added.add(index)
                label.acknowledged.add(batch)

        self._ask(producer, send, answer)

    def _add_old(self, producer: Producer, index: int) -> None:
        identity = producer.identity
        assert identity is not None
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[index])],
        )

        async def send() -> ErrorCode:
            answer = self.service.add_partitions(request, FakeCaller(3))
            response = await answer if isinstance(answer, Coroutine) else answer
            results = response.results_by_topic_v3_and_below[0].results_by_partition
            return ErrorCode(results[0].partition_error_code)

        def answer(error: ErrorCode) -> None:
            if error:
                self._fail(producer, error)
            else:
                producer.added.add(index)

        self._ask(producer, send, answer)

    def _end(self, producer: Producer, *, committed: bool) -> None:
        identity, label = producer.identity, producer.label
        assert identity is not None
        if label is not None:
            label.asked.add(committed)
        request = EndTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            committed=committed,
        )

        async def send() -> Any:
            found = self.service.end(request, FakeCaller(5 if producer.version >= 2 else 4))
            return await found if isinstance(found, Coroutine) else found

        def answer(response: Any) -> None:
            if response.error_code:
                self._fail(producer, ErrorCode(response.error_code))
                return
            if label is not None:
                assert label.outcome in (None, committed), f"{label.name} did not end as its producer is told"
                label.told = committed
            self._leave(producer)
            if producer.version >= 2:
                self._give(producer, ProducerIdentity(response.producer_id, response.producer_epoch))

        self._ask(producer, send, answer)

    def _send(self, producer: Producer) -> None:
        request = producer.request
        assert request is not None
        if request.task is not None:
            return
        if not request.needs():
            producer.request, producer.is_dead = None, True
            return
        chance = self.chance.random()
        if chance < 0.1 and request.can_be_delayed:
            self.network.append(request)
        if chance < 0.9:
            if request.is_start:
                producer.may_be_fenced = self.starting[producer.transactional_id] > 0
            request.task = asyncio.ensure_future(request.send())

    def _take_answers(self) -> None:
        for producer in self.producers:
            request = producer.request
            if request is None or request.task is None or not request.task.done():
                continue
            task, request.task = request.task, None
            if task.cancelled() or self.chance.random() < 0.1:  # The response is lost: it is sent again.
                task.cancelled() or task.result()
                continue
            producer.request = None
            request.answer(task.result())
            if not producer.is_dead and producer.request is None and self._is_retried(task.result()):
                producer.request = request
        for stray in [each for each in self.strays if each.done()]:
            self.strays.remove(stray)
            stray.result()

    def _is_retried(self, result: Any) -> bool:
        return (result if isinstance(result, ErrorCode) else ErrorCode(result.error_code)) in _RETRIED

    # --- what happens -----------------------------------------------------------------------------------------------

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            await self._step()
        await self._come_to_rest()

    async def _step(self) -> None:
        chance = self.chance.random()
        living = [each for each in self.producers if not each.is_dead]
        if not living or chance < 0.02:
            self._come(self.chance.choice("xy"))
        elif chance < 0.45:
            producer = self.chance.choice(living)
            if producer.request is None:
                self._act(producer)
            if producer.request is not None:
                self._send(producer)
        elif chance < 0.65:
            if self.marker_network:
                self._deliver_marker()
        elif chance < 0.80:
            self.log.commit(self.chance.choice([self.log.committed, self.log.end, self.log.end]))
        elif chance < 0.82:
            self.log.commit(self.log.committed, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif chance < 0.88:
            if self.network:
                stray = self.network.pop(self.chance.randrange(len(self.network)))
                if stray.is_start:
                    stray.producer.may_be_fenced = True
                self.strays.append(asyncio.ensure_future(stray.send()))
        elif chance < 0.975:
            self._pass(self.chance.choice((20, 300, 1_500)))
        else:
            await self._crash()
        await self._settle()

    def _pass(self, duration_ms: int) -> None:
        self.passed_ms += duration_ms
        self.time.advance_ms(duration_ms)

    async def _calm(self, rounds: int = 40) -> None:
        for _ in range(rounds):
            for _ in range(len(self.marker_network)):
                self._deliver_marker()
            self.log.commit(self.log.end)
            await self._settle()
            self._pass(200)
            await self._settle()

    async def _come_to_rest(self) -> None:
        """Nothing fails any more. New producers of every id end what is open."""
        self.is_at_rest, self.log.refusals = True, 0
        self.network.clear()
        await self._calm()
        for transactional_id in "xy":
            for each in self.producers:
                if each.transactional_id == transactional_id:
                    each.is_dead = True
                    self._note_start(each, keeps=False)
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS)
            error = ErrorCode.CONCURRENT_TRANSACTIONS
            for _ in range(3):
                if error is ErrorCode.CONCURRENT_TRANSACTIONS:
                    task = asyncio.ensure_future(self.service.init_producer_id(request, FakeCaller(6)))
                    await self._calm(5)
                    error = ErrorCode(task.result().error_code)
            assert error is NONE, error.name
        (shard,) = self.service.runtime.active_shards()
        assert {each.state for each in shard.transactions.values()} <= IDLE
        for number, partition in enumerate(self.partitions):
            for producer_id, entry in partition.items():
                assert not entry.open, f"{producer_id} is still open in partition {number}: {entry.open}"
        for label in self.labels:
            if label.told is True or label.outcome is True:
                assert label.acknowledged <= label.committed, f"{label.name} lost {label.acknowledged}"


@contextmanager
def last_epoch(epoch: int) -> Iterator[None]:
    """Producer ids have only that many epochs."""
    before = core.LAST_EPOCH
    core.LAST_EPOCH = epoch  # type: ignore[misc]
    try:
        yield
    finally:
        core.LAST_EPOCH = before  # type: ignore[misc]


def main() -> None:
    """`python -m models.transactions 1000` tries that many seeds."""
    for seed in range(int(sys.argv[1])):
        with last_epoch((5, 2**15 - 1)[seed % 2]):
            try:
                asyncio.run(TransactionModel(random.Random(seed)).run(400))
            except BaseException:
                print(f"seed {seed}")  # noqa: T201
                raise


if __name__ == "__main__":
    main()
