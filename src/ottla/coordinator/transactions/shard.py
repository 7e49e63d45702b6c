"""The state machine of one partition of `__transaction_state`: its transactional ids.

Hard state is `transactions` and what is derived from it (`open`); only replay changes it, with one exception: a
Complete… state whose record is owed. Soft state is what is under way: markers (`completion`), and requests that wait
for them. `changed` is how nearly every operation writes: whatever brings a transaction into a Prepare… state also
starts its completion.

**Owed records.** A transaction whose markers are all committed can be completed again at any time: a coordinator that
finds it in its Prepare… state sends the markers again, which end nothing the second time. So its Complete… record need
not be appended at once: it is the first of the next batch of this shard, whatever that is, which saves an append for
each transaction. The next transaction of the same producer is in a batch with it or after it, never without it. If
nothing else is written for a moment, it is written alone; if the coordinator dies before, it is as if it had died
between the last marker and the completion. Every write of the shard is made by `write_of`, which adds what is owed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.key_values import KeyValue, Record
from ottla.coordinator.shards import ShardContext, WriteOutcome
from ottla.coordinator.transactions.completion import Completion
from ottla.coordinator.transactions.expiry import Expiry
from ottla.coordinator.transactions.fast_records import record_of
from ottla.coordinator.transactions.records import TransactionRecord, id_of, transaction_of
from ottla.coordinator.transactions.seams import MarkerSender
from ottla.coordinator.transactions.settings import TransactionSettings
from ottla.coordinator.transactions.states import OPEN, PREPARED
from ottla.coordinator.transactions.timeouts import Timeouts
from ottla.coordinator.transactions.transaction import Transaction

R = TypeVar("R")

_OWED: Final = "owed"
_OWED_S: Final = 1.0
"""After this time, owed records are written without others. Timers cost as much as an append: a shorter time would save
nothing where transactions are few."""
_RETRY_S: Final = 1.0


@dataclass(slots=True)
class TransactionCounts:
    """What the shards of a broker did since it started."""

    commits: int = 0
    aborts: int = 0
    timed_out: int = 0
    fenced: int = 0


class TransactionShard:
    """Starts empty; only replay fills it."""

    def __init__(
        self, context: ShardContext, settings: TransactionSettings, markers: MarkerSender, counts: TransactionCounts
    ) -> None:
        self.context = context
        self.settings = settings
        self.counts = counts
        self.transactions: dict[str, Transaction] = {}
        self.open: set[str] = set()
        """The transactional ids with an open transaction."""
        self._completion = Completion(self, markers)
        self._timeouts = Timeouts(self)
        self._expiry = Expiry(self)
        self._owed: list[KeyValue] = []
        """Records to be appended before any others; the state has them already."""
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        self._is_unloaded = False

    @property
    def now_ms(self) -> int:
        return self.context.clock.now_ms()

    # --- hard state -------------------------------------------------------------------------------------------------

    def replay(self, records: Collection[Record], _offsets: Sequence[int], _producer_id: int, /) -> None:
        """No transaction writes to this topic, so offsets and producer ids do not matter. Every batch begins with what
        is owed."""
        self._owed.clear()
        for record in records:
            if isinstance(record, TransactionRecord):
                self._put(record.transaction)
                continue
            key, value = record
            transactional_id = id_of(key)
            if transactional_id is None:
                continue
            if value is None:
                self.transactions.pop(transactional_id, None)
                self.open.discard(transactional_id)
            else:
                self._put(transaction_of(transactional_id, value))

    def _put(self, transaction: Transaction) -> None:
        self.transactions[transaction.transactional_id] = transaction
        if transaction.state in OPEN:
            self.open.add(transaction.transactional_id)
        else:
            self.open.discard(transaction.transactional_id)

    def replay_end_of_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Nothing: no transaction writes to this topic."""

    # --- writes -----------------------------------------------------------------------------------------------------

    def changed(self, transaction: Transaction, response: R) -> WriteOutcome[R]:
        """Writes a transaction that differs from the present one."""
        return self.write_of(response, self.records_of(transaction), lambda: self.appended(transaction))

    def write_of(
        self,
        response: R,
        records: list[KeyValue],
        on_appended: Callable[[], None] | None = None,
        on_failed: Callable[[CoordinatorError], None] | None = None,
    ) -> WriteOutcome[R]:
        """Appends what is owed and these records."""
        if self._owed:
            records = self._owed + records
        return WriteOutcome(response, records, on_appended, on_failed=on_failed)

    def owe(self, transaction: Transaction) -> None:
        """Takes over a Complete… state, whose record comes with the next batch."""
        self._owed.append(record_of(transaction))
        self._put(transaction)
        if not self.context.is_scheduled(_OWED):
            self.context.schedule(_OWED, _OWED_S, self._pay)

    def pay(self) -> None:
        """Writes what is owed now, if that is possible."""
        if self._owed:
            self.context.write(self._pay)

    def _pay(self) -> WriteOutcome[None]:
        def refused(_: CoordinatorError) -> None:
            self.context.schedule(_OWED, _RETRY_S, self._pay)

        return self.write_of(None, [], on_failed=refused)

    def records_of(self, transaction: Transaction) -> list[KeyValue]:
        """A decided transaction without partitions needs no markers: it is completed by the same write."""
        records = [record_of(transaction)]
        if transaction.state in PREPARED and not transaction.partitions:
            records.append(record_of(transaction.completed(self.now_ms)))
        return records

    def appended(self, transaction: Transaction) -> None:
        """Called when the records of `records_of` are appended."""
        if transaction.state not in PREPARED:
            return
        if not transaction.partitions:
            self.completed(transaction)
        elif not self._completion.complete_now(transaction):
            self._completion.begin(transaction.transactional_id)

    # --- soft state -------------------------------------------------------------------------------------------------

    def is_completing(self, transactional_id: str) -> bool:
        transaction = self.transactions.get(transactional_id)
        return not self._is_unloaded and transaction is not None and transaction.state in PREPARED

    def when_completed(self, transactional_id: str, tell: Callable[[], None]) -> Callable[[], None]:
        """Calls `tell` when the transaction is completed or the shard is unloaded. Returns a function that ends the
        wait."""
        waiting = self._waiting.setdefault(transactional_id, [])
        waiting.append(tell)

        def stop() -> None:
            if tell in waiting:
                waiting.remove(tell)

        return stop

    def completed(self, transaction: Transaction) -> None:
        """Called when the transaction, which was in this Prepare… state, is completed."""
        if transaction.is_committing:
            self.counts.commits += 1
        else:
            self.counts.aborts += 1
        self._tell(transaction.transactional_id)

    def _tell(self, transactional_id: str) -> None:
        for tell in self._waiting.pop(transactional_id, ()):
            tell()

    def loaded(self) -> None:
        for transactional_id in sorted(self.open):
            if self.transactions[transactional_id].state in PREPARED:
                self._completion.begin(transactional_id)
        self._timeouts.start()
        self._expiry.start()

    def unload(self) -> None:
        self._is_unloaded = True
        self._completion.cancel_all()
        for transactional_id in list(self._waiting):
            self._tell(transactional_id)
