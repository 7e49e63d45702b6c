"""The rules of the exactly-once sink, and a model in which everything that can stop or come late does."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.transactions import PreparedTransaction
from ottla.spark.exactly_once.decisions import (
    Append,
    Proposal,
    Recorded,
    TaskReport,
    decide,
    decide_abort,
    first_batch,
    leftovers,
    retract,
)
from ottla.spark.exactly_once.errors import ExactlyOnceError, RepeatedSinkError, StaleBatchError, SupersededError
from ottla.spark.exactly_once.identifiers import Identifiers, Owner, run_token
from ottla.spark.exactly_once.records import CommitRecord

SINK = "query:q"
IDS = Identifiers("p", SINK)


def prepared(name: str, epoch: int = 0) -> PreparedTransaction:
    return PreparedTransaction(name, 1, epoch)


def record(batch: int, run: str = "r1", first: int = 0, *names: str) -> CommitRecord:
    transactions = tuple(map(prepared, names))
    return CommitRecord(batch=batch, run=run, first=first, transactions=transactions, rows=3, written_at_ms=7)


def proposal(batch: int, run: str = "r1", first: int = 0, *names: str, is_replay: bool = False) -> Proposal:
    return Proposal(
        sink=SINK,
        run=run,
        batch=batch,
        first=first,
        transactions=tuple(map(prepared, names)),
        rows=3,
        is_replay=is_replay,
    )


# Rules.


def test_a_task_writes_what_is_not_recorded() -> None:
    assert first_batch(None, "r1", 4) == 4
    assert first_batch(record(3, "r1", 2), "r1", 4) == 2
    assert first_batch(record(3, "r0", 2), "r1", 4) == 4
    assert first_batch(record(4, "r0", 2), "r1", 4) is None


def test_a_task_refuses_what_would_be_lost_or_doubled() -> None:
    with pytest.raises(StaleBatchError, match="batch 3 is older than batch 4"):
        first_batch(record(4, "r0"), "r1", 3)
    with pytest.raises(RepeatedSinkError, match="exactlyOnceId"):
        first_batch(record(4, "r1"), "r1", 4)


def test_the_next_batch_of_a_run_and_the_first_of_another_are_appended() -> None:
    for newest, wanted in ((None, proposal(0)), (record(3, "r1"), proposal(4)), (record(3), proposal(4, "r2", 4, "t"))):
        found = decide(newest, wanted, 9)
        assert isinstance(found, Append)
        assert (found.record.batch, found.record.run, found.record.first) == (wanted.batch, wanted.run, wanted.first)
        assert found.record.transactions == wanted.transactions


def test_a_record_whose_acknowledgement_was_lost_is_found() -> None:
    assert decide(record(4, "r1", 0, "t"), proposal(4, "r1", 0, "t"), 9) == Recorded(record(4, "r1", 0, "t"))
    with pytest.raises(RepeatedSinkError):
        decide(record(4, "r1", 0, "t"), proposal(4, "r1", 0, "u"), 9)


def test_a_replay_adopts_the_record_once() -> None:
    found = decide(record(4, "r1", 0, "t"), proposal(4, "r2", 4, is_replay=True), 9)
    assert isinstance(found, Append)
    adopted = found.record
    assert (adopted.run, adopted.first, adopted.transactions) == ("r2", 4, (prepared("t"),))
    assert decide(adopted, proposal(4, "r2", 4, is_replay=True), 9) == Recorded(adopted)
    with pytest.raises(SupersededError, match="newer run"):
        decide(adopted, proposal(5, "r1", 0, "u"), 9)


def test_a_batch_that_another_run_wrote_meanwhile_is_refused() -> None:
    with pytest.raises(SupersededError, match="meanwhile"):
        decide(record(4, "r1"), proposal(4, "r2", 4, "t"), 9)
    with pytest.raises(StaleBatchError):
        decide(record(5, "r1"), proposal(4, "r2", 4, "t"), 9)


def test_a_replay_without_a_record_is_an_error() -> None:
    with pytest.raises(ExactlyOnceError, match="was the commit topic deleted"):
        decide(record(3, "r1"), proposal(4, "r2", 4, is_replay=True), 9)


def test_an_aborted_batch_cannot_be_recorded_later() -> None:
    for newest in (None, record(3, "r1")):
        refused, over = decide_abort(newest, proposal(4, "r1", 4, "t"), 9)
        assert over == (prepared("t"),)
        assert refused is not None
        assert refused.batch == 3
        again, _ = decide_abort(refused, proposal(4, "r2", 4, "u"), 9)
        for run in ("r1", "r2"):
            with pytest.raises(SupersededError, match="aborted"):
                decide(again, proposal(4, run, 4, "t"), 9)
        assert isinstance(decide(again, proposal(4, "r3", 4, "t"), 9), Append)


def test_what_is_recorded_is_not_aborted() -> None:
    newest = record(4, "r1", 0, "t")
    assert decide_abort(newest, proposal(4, "r1", 0, "t"), 9) == (newest, ())
    assert decide_abort(newest, proposal(4, "r1", 0, "t", "u"), 9) == (newest, (prepared("u"),))


def test_a_retracted_batch_is_written_by_the_next_run() -> None:
    taken_back = retract(record(4, "r1", 0, "t"), 9)
    assert first_batch(taken_back, "r2", 4) == 4
    with pytest.raises(SupersededError):
        decide(taken_back, proposal(4, "r1", 0, "t"), 9)


def test_reports_of_one_job_belong_together() -> None:
    def report(**changes: object) -> TaskReport:
        one = TaskReport(sink=SINK, run="r", batch=2, first=1, transaction=prepared("b"), rows=2)
        return replace(one, **changes)  # type: ignore[arg-type]

    found = Proposal.of([report(), report(transaction=prepared("a")), report(transaction=None, rows=0, first=None)])
    assert (found.first, found.rows, found.is_replay) == (1, 4, False)
    assert found.transactions == (prepared("a"), prepared("b"))
    assert Proposal.of([report(first=None, transaction=None)]).is_replay
    with pytest.raises(ExactlyOnceError, match="different batches"):
        Proposal.of([report(), report(batch=3)])


def test_leftovers_are_those_that_nobody_can_record() -> None:
    def of(first: int, run: str) -> str:
        return IDS.of_task(Owner(first, run_token(run)), "m-0", 0, 1)

    own, older, at_first, ahead = of(3, "r1"), of(2, "r0"), of(5, "r2"), of(6, "r3")
    other_sink = Identifiers("p", "query:other").of_task(Owner(1, run_token("r1")), "m-0", 0, 1)
    foreign = ["p/query:q/log", "payments-1", "p/query:q/x-y/z", other_sink]
    assert leftovers([own, older, at_first, ahead, *foreign], IDS, record(5, "r1", 3)) == sorted([own, older, at_first])
    assert leftovers([own], IDS, record(5, "r1", 3, own)) == []


# The model.


@dataclass
class Coordinator:
    """Transactions by id, as a coordinator keeps them, and what became of each attempt."""

    epochs: dict[str, int] = field(default_factory=dict)
    open: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Epoch, and the batch whose rows it contains."""
    visible: Counter[int] = field(default_factory=Counter)
    ended: dict[PreparedTransaction, bool] = field(default_factory=dict)

    def begin(self, name: str, batch: int) -> PreparedTransaction:
        self.fence(name)
        self.open[name] = self.epochs[name], batch
        return prepared(name, self.epochs[name])

    def fence(self, name: str) -> None:
        self.epochs[name] = self.epochs.get(name, -1) + 1
        if name in self.open:
            self.ended[prepared(name, self.open.pop(name)[0])] = False

    def end(self, one: PreparedTransaction, commit: bool) -> None:
        if one in self.ended:
            assert self.ended[one] == commit, f"{one} was ended with the opposite outcome"
            return
        epoch, batch = self.open.pop(one.transactional_id)
        assert epoch == one.producer_epoch
        self.ended[one] = commit
        if commit:
            self.visible[batch] += 1


class Model:
    """Runs of one query, each a generator that yields between any two steps. Batches have two tasks; places are never
    shared. What a run did last may come late: other runs begin while it stands still."""

    TASKS = 2

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.coordinator = Coordinator()
        self.newest: CommitRecord | None = None
        self.version = 0
        self.done = -1
        """The last batch in Spark's checkpoint."""
        self.runs = 0

    def append(self, seen: int, new: CommitRecord) -> bool:
        """What the commit topic does: a record counts only if it was decided for the newest."""
        if seen != self.version:
            return False
        self.newest, self.version = new, self.version + 1
        return True

    def run(self) -> Iterator[None]:
        self.runs += 1
        name, batch = f"run{self.runs}", self.done + 1
        known: int | None = None
        while True:
            reports = []
            for task in range(self.TASKS):
                for attempt in range(2):
                    if known is None:
                        known = first_batch(self.newest, name, batch)
                    yield
                    if known is None:
                        reports.append(self.report(name, batch, None, None))
                        break
                    place = f"{name}-{task}-{attempt}"
                    one = self.coordinator.begin(IDS.of_task(Owner(known, run_token(name)), place, 0, batch), batch)
                    yield
                    if attempt or self.random.random() < 0.7:  # else it fails, or its twin is faster
                        reports.append(self.report(name, batch, known, one))
                        break
            wanted = Proposal.of(reports)
            yield
            try:
                yield from self.commit(wanted)
            except ExactlyOnceError:
                yield from self.abort(wanted)
                return
            yield
            if self.done >= batch:  # Spark's checkpoint has it from another run
                return
            self.done = batch
            batch += 1
            yield

    def report(self, run: str, batch: int, first: int | None, one: PreparedTransaction | None) -> TaskReport:
        return TaskReport(sink=SINK, run=run, batch=batch, first=first, transaction=one, rows=1)

    def commit(self, wanted: Proposal) -> Iterator[None]:
        while True:
            seen, newest = self.version, self.newest
            yield
            found = decide(newest, wanted, 0)
            yield
            if isinstance(found, Recorded) or self.append(seen, found.record):
                break
        if self.random.random() < 0.1:
            raise ExactlyOnceError("brokers are away")
        for one in found.record.transactions:
            yield
            self.coordinator.end(one, commit=True)
        yield
        for name in leftovers(list(self.coordinator.open), IDS, found.record):
            self.coordinator.fence(name)
            yield

    def abort(self, wanted: Proposal) -> Iterator[None]:
        while True:
            seen, newest = self.version, self.newest
            yield
            refused, over = decide_abort(newest, wanted, 0)
            if refused == newest or (refused is not None and self.append(seen, refused)):
                break
        for one in over:
            yield
            if one.transactional_id in self.coordinator.open:
                self.coordinator.end(one, commit=False)


@given(st.integers(0, 2**32))
def test_every_batch_is_visible_exactly_once_whatever_stops(seed: int) -> None:
    model = Model(seed)
    dice = model.random
    running = [model.run()]
    for _ in range(600):
        if dice.random() < 0.02 and len(running) < 4:
            running.append(model.run())  # while the others still run
        if running:
            one = dice.choice(running)
            try:
                next(one)
            except StopIteration:
                running.remove(one)
            except (StaleBatchError, RepeatedSinkError, SupersededError):
                running.remove(one)  # a task refused
            if dice.random() < 0.02 and one in running:
                running.remove(one)  # killed
        else:
            running.append(model.run())
    # In the end one run goes on alone, and has its way after the others are gone.
    target = model.done + 3
    for _ in range(50):
        last = model.run()
        try:
            while model.done < target:
                next(last)
        except (StopIteration, ExactlyOnceError):
            continue
        break
    assert model.done >= target
    visible = model.coordinator.visible
    assert visible == Counter(dict.fromkeys(range(target + 1), Model.TASKS))
