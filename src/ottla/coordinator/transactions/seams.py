"""What the transaction coordinator needs from the broker that it runs in, besides its log."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple, Protocol

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition


class EndMarker(NamedTuple):
    """The end of a transaction, as it is written to every partition of it."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    """The leader epoch of the coordinator's partition of `__transaction_state`."""
    transaction_version: int
    """2 if the producer epoch was raised for the marker (KIP-890)."""


class MarkerWrite(Protocol):
    """A marker on its way."""

    def cancel(self) -> None:
        """Stops trying, and does not call back any more. Idempotent."""
        ...


class MarkerSender(Protocol):
    """Has markers written by the leaders of partitions."""

    def write(
        self, marker: EndMarker, partitions: Collection[TopicPartition], done: Callable[[ErrorCode], None]
    ) -> MarkerWrite:
        """Tries until every partition has the marker, committed, or is deleted: then calls `done(NONE)`, never before
        this returns. Calls `done` with an error if the marker can never be written: a later coordinator or a later
        producer epoch has replaced this one."""
        ...

    def write_now(self, marker: EndMarker, partitions: Collection[TopicPartition]) -> bool:
        """Writes the marker to every partition at once, if this broker leads all of them and need not wait for other
        replicas or for the disk. False if a partition may not have the marker: then `write` must be called for all of
        them. Markers are idempotent."""
        ...


class ProducerIdSource(Protocol):
    """Producer ids that were never used before."""

    async def next_id(self) -> int:
        """Raises `CoordinatorError` if there is none now."""
        ...


class OffsetsPartitions(Protocol):
    """Where the offsets of groups are stored."""

    def offsets_partition_of(self, group_id: str) -> TopicPartition:
        """The partition of `__consumer_offsets`. Raises `CoordinatorError` if the topic cannot be found or created."""
        ...
