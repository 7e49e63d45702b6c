"""What tasks and the driver do, given the newest commit record of the sink: the core of the exactly-once sink. Pure.

A *run* of a query is from one start to the next; a run begins with a *first* batch, which may be a replay. Rules:

    newest record          a task of (run, batch)            a commit of (run, batch)
    ─────────────────────  ────────────────────────────────  ───────────────────────────────────────────────────────
    none                   writes, first = batch             append
    of an earlier batch    writes, first = batch, or that    append, if the run owns the record, or batch = first;
                           of the record if the run owns it  else superseded
    of this batch,
      of another run       writes nothing                    adopt, if no task wrote; else superseded
      of this run          error: two writes of one name     done, if it is what would be appended; else that error
    of a later batch       error: checkpoint restored        error: checkpoint restored

Only the owner of the newest record, or a run at its first batch, can append. So once a run has appended, adopted or
aborted, no record of an earlier run counts any more. A run that never appended can only ever record its first batch,
so once a record of that batch exists, its transactions can be aborted (`leftovers`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ottla.client.transactions import PreparedTransaction
from ottla.spark.exactly_once.errors import ExactlyOnceError, RepeatedSinkError, StaleBatchError, SupersededError
from ottla.spark.exactly_once.identifiers import Identifiers, Owner, run_token
from ottla.spark.exactly_once.records import CommitRecord

_REFUSED_MAX: Final = 32

# Tasks.


def first_batch(newest: CommitRecord | None, run: str, batch: int) -> int | None:
    """The first batch of the run, for a task that is to write; None if the batch is written already."""
    if newest is None:
        return batch
    if newest.batch > batch:
        raise stale(newest, batch)
    if newest.batch < batch:
        return newest.first if newest.run == run else batch
    if newest.run == run:
        raise repeated(batch)
    return None


# The driver.


@dataclass(frozen=True, slots=True)
class Execution:
    """Of one job, from the driver: a random text, and the driver's time when it was planned."""

    token: str
    began_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """What a successful task did."""

    sink: str
    run: str
    batch: int
    first: int | None
    """None: the task found that the batch is written already, and wrote nothing."""
    transaction: PreparedTransaction | None
    """None: it had no rows."""
    rows: int
    began_s: float = 0.0
    """Of the execution."""
    is_first_attempt: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A batch that the driver is asked to commit."""

    sink: str
    run: str
    batch: int
    first: int
    transactions: tuple[PreparedTransaction, ...]
    rows: int
    is_replay: bool
    """Whether no task wrote, because the batch was written before."""

    @classmethod
    def of(cls, reports: Sequence[TaskReport]) -> Proposal:
        """Of all tasks of one job."""
        one = reports[0]
        others = {(each.sink, each.run, each.batch) for each in reports} - {(one.sink, one.run, one.batch)}
        if others:
            raise ExactlyOnceError(f"tasks of one job wrote different batches, {(one.sink, one.batch)} and {others}")
        firsts = [each.first for each in reports if each.first is not None]
        return cls(
            sink=one.sink,
            run=one.run,
            batch=one.batch,
            first=min(firsts, default=one.batch),
            transactions=tuple(sorted(each.transaction for each in reports if each.transaction is not None)),
            rows=sum(each.rows for each in reports),
            is_replay=not firsts,
        )


@dataclass(frozen=True, slots=True)
class Append:
    """Write this record; then its transactions can be completed."""

    record: CommitRecord


@dataclass(frozen=True, slots=True)
class Recorded:
    """The record is there: complete its transactions."""

    record: CommitRecord


def decide(newest: CommitRecord | None, proposal: Proposal, now_ms: int) -> Append | Recorded:
    """What to do to commit. Raises if the batch must not be committed: then its transactions are to be aborted."""
    run, batch = proposal.run, proposal.batch
    if newest is not None and newest.batch > batch:
        raise stale(newest, batch)
    if newest is not None and newest.batch == batch:
        return _decide_again(newest, proposal, now_ms)
    if proposal.is_replay:
        raise ExactlyOnceError(
            f"the commit record of batch {batch} is gone: was the commit topic deleted? Restart the query to write the "
            "batch again"
        )
    if newest is not None:
        if run in newest.refused:
            raise superseded(batch, "it was aborted")
        if newest.run != run and proposal.first != batch:
            raise superseded(batch, "a newer run of the query has taken over")
    return Append(
        CommitRecord(
            batch=batch,
            run=run,
            first=proposal.first,
            transactions=proposal.transactions,
            rows=proposal.rows,
            written_at_ms=now_ms,
        )
    )


def _decide_again(newest: CommitRecord, proposal: Proposal, now_ms: int) -> Append | Recorded:
    run, batch = proposal.run, proposal.batch
    if newest.run == run:
        if proposal.is_replay if newest.is_adopted else newest.transactions == proposal.transactions:
            return Recorded(newest)
        raise repeated(batch)
    if not proposal.is_replay:
        raise superseded(batch, "another run of the query has written it meanwhile")
    return Append(replace(newest, run=run, first=batch, is_adopted=True, written_at_ms=now_ms, refused=()))


def decide_abort(
    newest: CommitRecord | None, proposal: Proposal, now_ms: int
) -> tuple[CommitRecord | None, tuple[PreparedTransaction, ...]]:
    """The record that makes sure that the batch cannot be committed any more, and what is to be aborted then. What is
    recorded is never aborted."""
    run, batch = proposal.run, proposal.batch
    if newest is None:
        newest = CommitRecord(
            batch=batch - 1, run="", first=batch - 1, transactions=(), rows=0, written_at_ms=now_ms, is_adopted=True
        )
    recorded = set(newest.transactions)
    over = tuple(one for one in proposal.transactions if one not in recorded)
    if newest.batch >= batch:  # this one cannot be recorded any more
        return newest, over
    return replace(newest, refused=(*newest.refused, run)[-_REFUSED_MAX:]), over


def retract(record: CommitRecord, now_ms: int) -> CommitRecord:
    """Takes the decision back, if none of the batch is visible and nothing of it can be any more: the next run writes
    the batch again."""
    return CommitRecord(
        batch=record.batch - 1,
        run=record.run,
        first=record.first,
        transactions=(),
        rows=0,
        written_at_ms=now_ms,
        refused=(record.run,),
    )


def leftovers(open_ids: Iterable[str], identifiers: Identifiers, record: CommitRecord) -> list[str]:
    """Those of the open transactions that nobody can record any more, as soon as the transactions of the record are
    completed and before the owner of the record begins its next batch."""
    token = run_token(record.run)
    kept = {one.transactional_id for one in record.transactions}

    def is_over(owner: Owner | None) -> bool:
        return owner is not None and (owner.token == token or owner.first <= record.batch)

    return sorted(one for one in open_ids if one not in kept and is_over(identifiers.owner_of(one)))


# Errors.


def stale(newest: CommitRecord, batch: int) -> StaleBatchError:
    return StaleBatchError(
        f"batch {batch} is older than batch {newest.batch}, the last one that was written: the checkpoint was restored "
        f"from a copy, or another run of the query goes on. Batches {batch} to {newest.batch} are in the topics. "
        "To write them again, start the query with a new checkpoint; to go on, restore one that has them"
    )


def repeated(batch: int) -> RepeatedSinkError:
    return RepeatedSinkError(
        f"batch {batch} was written before by this run of the query: set exactlyOnceId to a different name for each "
        "write in foreachBatch, and do not repeat a write that failed: let the query fail, and restart it"
    )


def superseded(batch: int, why: str) -> SupersededError:
    return SupersededError(
        f"batch {batch} cannot be committed by this run of the query, because {why}. Nothing of it was written twice. "
        "Stop all runs of the query but one; restart that one if it stopped"
    )
