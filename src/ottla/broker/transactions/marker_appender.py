"""Appends the markers that end transactions to partitions that this broker leads.

A marker in a partition of `__consumer_offsets` also ends the transaction in the group coordinator, in the same step: no
request can come between the two. A follower that becomes the leader finds the marker in its log. Owned by the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.controller.topic_names import OFFSETS_TOPIC
from ottla.coordinator.transactions.seams import EndMarker
from ottla.log.errors import LogError
from ottla.replication.awaited_commit import AwaitedCommit
from ottla.replication.errors import ReplicationError
from ottla.replication.partition import AwaitedAppend
from ottla.replication.replicas import Replicas

_logger = logging.getLogger(__name__)

_NONE: Final = ErrorCode.NONE
_COMMIT_TIMEOUT_S: Final = 20.0
"""Less than other brokers wait for the answer."""


class TransactionalGroups(Protocol):
    """The group coordinator's `CoordinatorRuntime`."""

    def end_transaction(self, index: int, marker_end: int, producer_id: int, *, committed: bool) -> None: ...


class MarkerAppender:
    """See the module."""

    def __init__(
        self,
        replicas: Replicas,
        metadata: MetadataCache,
        groups: TransactionalGroups,
        *,
        timeout_s: float = _COMMIT_TIMEOUT_S,
    ) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._groups = groups
        self._timeout_s = timeout_s

    def append(self, name: TopicPartition, marker: EndMarker, tell: Callable[[ErrorCode], None]) -> ErrorCode | None:
        """Returns NONE if every in-sync replica has the marker, or the error. None if replicas are awaited: `tell` is
        called with the outcome then, later."""
        partition = self._replicas.get(name.topic, name.partition)
        if partition is None:
            return self._unhosted(name)
        error = partition.check_leader()
        if error:
            return error
        try:
            end = partition.append_marker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                committed=marker.committed,
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
        except (LogError, ReplicationError) as failure:
            return failure.code
        except Exception:  # the other partitions get their marker, and this one is tried again
            _logger.exception("%s: a marker could not be appended", name)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        if name.topic == OFFSETS_TOPIC:
            self._groups.end_transaction(name.partition, end, marker.producer_id, committed=marker.committed)
        if partition.is_acknowledged(end, all_replicas=True):
            return _NONE
        waiting = AwaitedCommit(AwaitedAppend(end, partition.leader_epoch, all_replicas=True), tell)
        self._replicas.produces.wait(waiting, (partition,), self._timeout_s)
        return None

    def _unhosted(self, name: TopicPartition) -> ErrorCode:
        if self._metadata.may_exist(name.topic, name.partition):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
