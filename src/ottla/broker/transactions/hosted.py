"""All about transactions on one broker: the coordinator, the writers of markers, and verification. Assembled here.

Owned by the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ottla.base.clock import Clock
from ottla.base.ids import TopicPartition
from ottla.broker.configs.broker_config import BrokerConfig
from ottla.broker.coordinators.coordinator_log import ReplicatedCoordinatorLog
from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.broker.transactions.coordinator_ids import CoordinatorProducerIds
from ottla.broker.transactions.coordinator_queries import CoordinatorQueries
from ottla.broker.transactions.marker_appender import MarkerAppender
from ottla.broker.transactions.marker_sender import BrokerMarkerSender
from ottla.broker.transactions.offsets_partitions import GroupOffsetsPartitions
from ottla.broker.transactions.producer_ids import ProducerIds
from ottla.broker.transactions.transaction_settings import transaction_settings
from ottla.broker.transactions.verification import Verifier
from ottla.controller.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.coordinator.groups.service import GroupCoordinatorService
from ottla.coordinator.transactions.service import TransactionCoordinatorService
from ottla.replication.replicas import Replicas
from ottla.wire.peer import Peer

_logger = logging.getLogger(__name__)


class HostedTransactions:
    """See the module. `open_peer` connects to another broker, and `is_in_tree` looks a partition up in the coordination
    tree; None in a broker without others."""

    def __init__(
        self,
        config: BrokerConfig,
        replicas: Replicas,
        metadata: MetadataCache,
        groups: GroupCoordinatorService,
        producer_ids: ProducerIds,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        open_peer: Callable[[int], Peer] | None,
        is_in_tree: Callable[[TopicPartition], Awaitable[bool]] | None,
    ) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()
        # The append of a transaction's state may take as long as that of offsets.
        timeout_ms = config["offsets.commit.timeout.ms"]
        self.log = ReplicatedCoordinatorLog(TRANSACTIONS_TOPIC, replicas, metadata, commit_timeout_ms=timeout_ms)
        self.appender = MarkerAppender(replicas, metadata, groups.runtime)
        self.sender = BrokerMarkerSender(replicas, metadata, self.appender, loop, open_peer, is_in_tree)
        self.service = TransactionCoordinatorService(
            self.log,
            clock,
            loop,
            transaction_settings(config),
            CoordinatorProducerIds(producer_ids),
            self.sender,
            GroupOffsetsPartitions(OFFSETS_TOPIC, groups),
            self._exists,
        )
        queries = None if open_peer is None else CoordinatorQueries(open_peer)
        self.verifier = Verifier(self.service, self.log, replicas, metadata, clock, loop, self._run, queries)

    def metadata_changed(self) -> None:
        self.sender.metadata_changed()
        if self.verifier.queries is not None:
            self.verifier.queries.brokers_changed(self._metadata.is_alive)

    async def close(self) -> None:
        """When no request is started any more. The coordinator itself is closed with the others."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.sender.close()
        if self.verifier.queries is not None:
            await self.verifier.queries.close()

    def _exists(self, name: TopicPartition) -> bool:
        return self._metadata.partition(name.topic, name.partition) is not None

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work, name="verification")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.error("a transaction could not be verified", exc_info=error)
