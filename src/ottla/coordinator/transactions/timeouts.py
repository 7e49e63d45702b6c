"""Aborts transactions that exceed their timeout. Their producers are fenced: the epoch is raised.

Transactions of two-phase commit have no timeout.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.coordinator.key_values import KeyValue
from ottla.coordinator.shards import WriteOutcome
from ottla.coordinator.transactions.transaction import Transaction

if TYPE_CHECKING:
    from ottla.coordinator.transactions.shard import TransactionShard

_logger = logging.getLogger(__name__)

_NAME: Final = "timeouts"
_AT_ONCE: Final = 100
"""Aborts in one batch; then other requests have their turn."""
_BYTES_AT_ONCE: Final = 256 << 10
"""Keeps a batch below max.message.bytes: a transaction can have thousands of partitions."""


class Timeouts:
    """Of the transactions of one shard."""

    def __init__(self, shard: TransactionShard) -> None:
        self._shard = shard

    def start(self) -> None:
        self._look_in(self._shard.settings.abort_interval_ms / 1000)

    def _look_in(self, delay_s: float) -> None:
        self._shard.context.schedule(_NAME, delay_s, self._abort)

    def _abort(self) -> WriteOutcome[None]:
        shard, now_ms = self._shard, self._shard.now_ms
        overdue = sorted(each for each in shard.open if shard.transactions[each].is_timed_out(now_ms))
        self.start()
        aborted: list[Transaction] = []
        records: list[KeyValue] = []
        size = 0
        for each in overdue[:_AT_ONCE]:
            transaction = shard.transactions[each].aborted_by_coordinator(now_ms)
            more = shard.records_of(transaction)
            size += sum(len(value or b"") for _, value in more)
            if aborted and size > _BYTES_AT_ONCE:
                break
            aborted.append(transaction)
            records += more

        def appended() -> None:
            shard.counts.timed_out += len(aborted)
            for each in aborted:
                _logger.info(
                    "Aborted the transaction of %r: it exceeded its timeout of %d ms.",
                    each.transactional_id,
                    each.timeout_ms,
                )
                shard.appended(each)
            if len(aborted) < len(overdue):  # only now: what could not be written is not tried again at once
                self._look_in(0)

        return shard.write_of(None, records, appended)
