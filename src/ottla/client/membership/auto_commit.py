"""Commits processed records automatically: at an interval, before partitions are given up, and when closing.

Failures are only logged: the next commit includes the same offsets, and in the worst case records are consumed twice.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ottla.client.config import ConsumerConfig
from ottla.client.errors import BrokerConnectionError, ClientError, RebalanceInProgressError
from ottla.client.membership.commits import GroupCommits
from ottla.client.membership.ledger import CommitLedger

_logger = logging.getLogger(__name__)

_MS: Final = 1000


class AutoCommit:
    def __init__(self, config: ConsumerConfig, ledger: CommitLedger, offsets: GroupCommits) -> None:
        self._ledger = ledger
        self._offsets = offsets
        self._is_enabled = config.enable_auto_commit
        self._interval_s = config.auto_commit_interval_ms / _MS

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while self._is_enabled:
            await asyncio.sleep(self._interval_s)
            await self.commit()

    async def commit(self, *, timeout_s: float | None = None) -> None:
        """Commits what the user has processed so far, unless the user has committed more."""
        asked = self._ledger.ask_consumed() if self._is_enabled else None
        if asked is None:
            return
        try:
            await self._offsets.commit(dict.fromkeys(asked.offsets, asked), timeout_s=timeout_s)
        except RebalanceInProgressError:
            _logger.debug("offsets will be committed after the rebalance")
        except (ClientError, BrokerConnectionError) as error:
            _logger.warning("auto commit failed: %s", error)
        except Exception:
            _logger.exception("auto commit failed")
