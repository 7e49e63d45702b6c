"""Commits or aborts a batch: the driver's side of the exactly-once sink.

Spark calls this in a Python process that it keeps for commits, with what the successful tasks reported. The order is
what makes it exact: the record is in the commit topic before the first transaction is completed, and transactions are
aborted only when no record of theirs can be written any more. Whatever fails, the same calls can be made again, by this
or another process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.base.errors import OttlaError
from ottla.client.administer import Admin, SomeRefusedError, TransactionState
from ottla.client.transactions import PreparedTransaction
from ottla.spark.exactly_once.commit_log import CommitLog, admin_settings
from ottla.spark.exactly_once.decisions import (
    Append,
    Proposal,
    Recorded,
    TaskReport,
    decide,
    decide_abort,
    leftovers,
    retract,
)
from ottla.spark.exactly_once.errors import ExactlyOnceError, LostTransactionsError
from ottla.spark.exactly_once.identifiers import ONCE, Identifiers
from ottla.spark.exactly_once.places import place_of_this_process
from ottla.spark.exactly_once.records import CommitRecord
from ottla.spark.exactly_once.settings import ExactlyOnceOptions

_logger = logging.getLogger(__name__)

_GONE: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
_TIDY_S: Final = 30.0
"""How often transactions that tasks have left open are looked for, if nothing says that there are any."""
_KEPT_MAX: Final = 8


class SinkDriver:
    """Of one sink: of a query, or of one write. Keeps its clients open from batch to batch. One thread at a time."""

    def __init__(self, options: ExactlyOnceOptions, sink: str) -> None:
        self._options = options
        self._identifiers = Identifiers(options.prefix, sink)
        self._is_single = sink.startswith(ONCE)
        self._admin = Admin(admin_settings(options.client_settings))
        writer = f"{options.prefix}/{ONCE}log/{place_of_this_process().name}" if self._is_single else None
        self._log = CommitLog(options.client_settings, self._admin, options.topic, self._identifiers, writer)
        self._tidied: tuple[str, float] | None = None
        """The run for which open transactions were looked for, and when."""

    def turn_to(self, sink: str) -> None:
        """To another write without a name: these share clients."""
        if sink != self._identifiers.sink:
            self._identifiers = Identifiers(self._options.prefix, sink)
            self._log.turn_to_new(sink)

    def close(self) -> None:
        self._log.close()
        self._admin.close()

    def commit(self, reports: Sequence[TaskReport]) -> CommitRecord:
        """Returns the record of the batch, when all its transactions are committed."""
        proposal = Proposal.of(reports)
        self._check_age(time.time() - min(one.began_s for one in reports))
        record = self._record(proposal)
        self._complete(record)
        self._forget(proposal)
        self._tidy(record, is_disturbed=not all(one.is_first_attempt for one in reports))
        return record

    def abort(self, reports: Sequence[TaskReport]) -> None:
        """Aborts the transactions of these tasks. Spark calls it after a commit that failed, too: what is recorded
        stays, and is completed by the next run. The commit may have been tried by another process, so the record is
        read in any case."""
        proposal = Proposal.of(reports)
        now_ms = _now_ms()

        def refuse(
            newest: CommitRecord | None,
        ) -> tuple[CommitRecord | None, tuple[PreparedTransaction, ...]]:
            return decide_abort(newest, proposal, now_ms)

        if self._is_without_record(proposal):
            self._end(proposal.transactions, commit=False)
        elif not proposal.is_replay:
            self._log.close()
            self._end(self._log.update(refuse), commit=False)
            self._forget(proposal)

    def _is_without_record(self, proposal: Proposal) -> bool:
        """One transaction is complete in itself, and nobody replays a write without a name."""
        return self._is_single and len(proposal.transactions) < 2

    def _forget(self, proposal: Proposal) -> None:
        """Deletes the record of a write that nobody repeats."""
        if self._is_single and not self._is_without_record(proposal):
            try:
                self._log.forget()
            except OttlaError as error:
                _logger.warning("the commit record of %s could not be deleted: %s", self._identifiers.sink, error)

    # The record.

    def _check_age(self, age_s: float) -> None:
        limit_s = self._options.timeout_ms / 1000
        if not self._options.is_two_phase and age_s >= limit_s:
            raise ExactlyOnceError(
                f"the batch took {age_s:.0f} s, and its transactions time out after {limit_s:g} s: make batches "
                "smaller (maxOffsetsPerTrigger), or increase kafka.transaction.timeout.ms, and "
                "transaction.max.timeout.ms of the brokers if it limits that"
            )

    def _record(self, proposal: Proposal) -> CommitRecord:
        now_ms = _now_ms()

        def settle(newest: CommitRecord | None) -> tuple[CommitRecord | None, CommitRecord]:
            match decide(newest, proposal, now_ms):
                case Append(record):
                    return record, record
                case Recorded(record):
                    return None, record

        if self._is_without_record(proposal):
            return settle(None)[1]
        record = self._log.update(settle)
        if proposal.is_replay:
            _logger.warning(
                "batch %d of %s was written before, with %d rows: its transactions are completed, and it is not "
                "written again",
                record.batch,
                self._identifiers.sink,
                record.rows,
            )
            if record.rows != proposal.rows:
                _logger.warning(
                    "batch %d had %d rows when it was written, and has %d now: the query is not deterministic, or the "
                    "checkpoint was changed. The rows that were written count",
                    record.batch,
                    record.rows,
                    proposal.rows,
                )
        return record

    # Transactions.

    def _complete(self, record: CommitRecord) -> None:
        gone = self._end(record.transactions, commit=True)
        if not gone:
            return
        names = ", ".join(sorted(gone)[:3])
        told = f"{len(gone)} of {len(record.transactions)} transactions of batch {record.batch} ({names} …)"
        why = (
            "the coordinator has aborted them, because they were open for longer than kafka.transaction.timeout.ms "
            f"({self._options.timeout_ms} ms) before they could be completed, or somebody has fenced them"
        )
        if len(gone) == len(record.transactions) and ErrorCode.INVALID_PRODUCER_ID_MAPPING not in gone.values():
            now_ms = _now_ms()

            def take_back(newest: CommitRecord | None) -> tuple[CommitRecord | None, None]:
                is_same = newest is not None and (newest.batch, newest.run) == (record.batch, record.run)
                return (retract(record, now_ms) if is_same else newest), None

            self._log.update(take_back)
            raise LostTransactionsError(
                f"{told} cannot be committed: {why}. Nothing of the batch is visible: restart the query to write it "
                "again"
            )
        lost = f"{told} cannot be committed: {why}. Their rows are missing, and the other rows of the batch are visible"
        if self._options.fail_on_data_loss:
            raise LostTransactionsError(
                f"{lost}. Write them in another way, then set failOnDataLoss=false for one start of the query"
            )
        _logger.warning("%s; the query goes on, because failOnDataLoss is false", lost)

    def _end(self, transactions: Sequence[PreparedTransaction], *, commit: bool) -> Mapping[str, ErrorCode]:
        """Ends them, and returns those that were ended by somebody else."""
        if not transactions:
            return {}
        try:
            self._admin.complete_transactions(transactions, commit=commit)
        except SomeRefusedError as error:
            others = [one for one in error.errors.values() if one.code not in _GONE]
            if others:
                raise others[0] from error
            return {name: one.code for name, one in error.errors.items()}
        return {}

    def _tidy(self, record: CommitRecord, *, is_disturbed: bool) -> None:
        """Aborts what nobody will complete: of tasks that were killed, or whose twin was faster, and of earlier runs.
        Until then, readers with read_committed wait for them."""
        now_s = time.monotonic()
        if not is_disturbed and self._tidied is not None:
            run, since_s = self._tidied
            if run == record.run and now_s - since_s < _TIDY_S:
                return
        try:
            over = leftovers(self._open_transactions(), self._identifiers, record)
            if over:
                _logger.info("aborting transactions that were left open: %s", ", ".join(over))
                self._admin.fence_producers(over)
        except OttlaError as error:  # they time out, or the next batch finds them
            _logger.warning("transactions that tasks left open could not be aborted: %s", error)
            return
        self._tidied = record.run, now_s

    def _open_transactions(self) -> list[str]:
        listed = self._admin.list_transactions(states=[TransactionState.ONGOING])
        return [one.transactional_id for one in listed]


_drivers: dict[tuple[str, ExactlyOnceOptions], SinkDriver] = {}
"""Of this process, the last ones used."""


def settle(options: ExactlyOnceOptions, reports: Sequence[TaskReport], *, commit: bool) -> None:
    """Commits or aborts what these tasks have prepared. Keeps clients open for the next batch, unless it fails."""
    sink = reports[0].sink
    key = _shared(sink), options
    driver = _drivers.pop(key, None) or SinkDriver(options, sink)
    try:
        driver.turn_to(sink)
        if commit:
            driver.commit(reports)
        else:
            driver.abort(reports)
    except BaseException:
        _close(driver)
        raise
    _drivers[key] = driver
    while len(_drivers) > _KEPT_MAX:
        _close(_drivers.pop(next(iter(_drivers))))


def _shared(sink: str) -> str:
    """The sink, or what all writes without a name have in common."""
    return ONCE if sink.startswith(ONCE) else sink


def _close(driver: SinkDriver) -> None:
    try:
        driver.close()
    except (OttlaError, TimeoutError) as error:
        _logger.debug("the driver of a sink was closed with: %s", error)


def _now_ms() -> int:
    return int(time.time() * 1000)
