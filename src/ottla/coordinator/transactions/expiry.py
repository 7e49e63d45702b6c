"""Removes transactional ids that were not used for a long time, by tombstones."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.coordinator.shards import WriteOutcome
from ottla.coordinator.transactions.records import tombstone_of

if TYPE_CHECKING:
    from ottla.coordinator.transactions.shard import TransactionShard

_logger = logging.getLogger(__name__)

_NAME: Final = "expiry"
_AT_ONCE: Final = 1_000
"""Ids that are looked at, and tombstones in one batch; then other requests have their turn."""


class Expiry:
    """Of the transactional ids of one shard."""

    def __init__(self, shard: TransactionShard) -> None:
        self._shard = shard
        self._left: list[str] = []
        """Ids that this pass has not looked at yet."""

    def start(self) -> None:
        self._shard.context.schedule(_NAME, self._shard.settings.remove_expired_interval_ms / 1000, self._begin)

    def _begin(self) -> WriteOutcome[None]:
        self._left = list(self._shard.transactions)
        return self._remove_some()

    def _remove_some(self) -> WriteOutcome[None]:
        some, self._left = self._left[:_AT_ONCE], self._left[_AT_ONCE:]
        if self._left:
            self._shard.context.schedule(_NAME, 0, self._remove_some)
        else:
            self.start()
        now_ms, expiration_ms = self._shard.now_ms, self._shard.settings.id_expiration_ms
        expired = [each for each in some if self._is_expired(each, now_ms, expiration_ms)]
        if expired:
            _logger.info("Removing %d transactional ids that were not used for %d ms.", len(expired), expiration_ms)
        return self._shard.write_of(None, [tombstone_of(each) for each in expired])

    def _is_expired(self, transactional_id: str, now_ms: int, expiration_ms: int) -> bool:
        transaction = self._shard.transactions.get(transactional_id)
        return transaction is not None and transaction.is_expired(now_ms, expiration_ms)
