"""Completes decided transactions: has their markers written, then writes the Complete… state.

Markers are sent only when the decision is committed, because a failover takes back what is not. From then on the
transaction can only be completed, so this tries as long as the shard is loaded.

Where nothing has to be waited for, because this broker has the only replica of everything, a transaction is completed
in the step that decides it (`complete_now`). Its producer then never finds it unfinished when it begins the next one.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.shards import WriteOutcome
from ottla.coordinator.transactions.fast_records import record_of
from ottla.coordinator.transactions.seams import EndMarker, MarkerSender, MarkerWrite
from ottla.coordinator.transactions.transaction import Transaction

if TYPE_CHECKING:
    from ottla.coordinator.transactions.shard import TransactionShard

_logger = logging.getLogger(__name__)

_RETRY_WRITE_S: Final = 1.0
_RETRY_MARKERS_S: Final = 10.0
"""Refused markers mean that another coordinator or producer took over, and that this shard will be unloaded. If that
does not happen, they are sent again, with the leader epoch of that time."""
_PARTITIONS_NOW: Final = 32
"""A transaction with more is completed after its producer was answered."""


class Completion:
    """The decided transactions of one shard."""

    def __init__(self, shard: TransactionShard, markers: MarkerSender) -> None:
        self._shard = shard
        self._markers = markers
        self._under_way: dict[str, MarkerWrite] = {}

    def begin(self, transactional_id: str) -> None:
        """Called when a Prepare… state was loaded, or was appended and cannot be completed at once."""
        self._shard.context.when_committed(partial(self._send, transactional_id))

    def complete_now(self, transaction: Transaction) -> bool:
        """Completes a transaction whose Prepare… state was just appended; the record is owed. False if something has
        to be waited for, or failed: then `begin` must be called."""
        if len(transaction.partitions) > _PARTITIONS_NOW or not self._shard.context.is_committed():
            return False
        if not self._markers.write_now(self._marker_of(transaction), transaction.partitions):
            return False
        self._shard.owe(transaction.completed(self._shard.now_ms))
        self._shard.completed(transaction)
        return True

    def cancel_all(self) -> None:
        under_way, self._under_way = self._under_way, {}
        for write in under_way.values():
            write.cancel()

    def _send(self, transactional_id: str) -> None:
        if transactional_id in self._under_way or not self._shard.is_completing(transactional_id):
            return
        transaction = self._shard.transactions[transactional_id]
        done = partial(self._written, transactional_id)
        marker = self._marker_of(transaction)
        self._under_way[transactional_id] = self._markers.write(marker, transaction.partitions, done)

    def _marker_of(self, transaction: Transaction) -> EndMarker:
        return EndMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            committed=transaction.is_committing,
            coordinator_epoch=self._shard.context.leader_epoch,
            transaction_version=transaction.client_version,
        )

    def _written(self, transactional_id: str, error: ErrorCode) -> None:
        if self._under_way.pop(transactional_id, None) is None or not self._shard.is_completing(transactional_id):
            return
        if error:
            _logger.warning("The markers of transactional id %r were refused: %s.", transactional_id, error.name)
            again = partial(self._send_again, transactional_id)
            self._shard.context.schedule(f"markers {transactional_id}", _RETRY_MARKERS_S, again)
        else:
            self._shard.context.write(partial(self._complete, transactional_id))

    def _send_again(self, transactional_id: str) -> WriteOutcome[None]:
        self._send(transactional_id)
        return WriteOutcome(None)

    def _complete(self, transactional_id: str) -> WriteOutcome[None]:
        if not self._shard.is_completing(transactional_id):
            return WriteOutcome(None)
        transaction = self._shard.transactions[transactional_id]
        return self._shard.write_of(
            None,
            [record_of(transaction.completed(self._shard.now_ms))],
            on_appended=partial(self._shard.completed, transaction),
            on_failed=partial(self._not_completed, transactional_id),
        )

    def _not_completed(self, transactional_id: str, _: CoordinatorError) -> None:
        self._shard.context.schedule(
            f"complete {transactional_id}", _RETRY_WRITE_S, partial(self._complete, transactional_id)
        )
