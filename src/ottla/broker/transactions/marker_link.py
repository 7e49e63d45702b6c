"""Markers for the partitions that one other broker leads: collected, and sent in WriteTxnMarkers requests, one at a
time. What comes while a request is on its way goes into the next one. Owned by the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.coordinator.transactions.seams import EndMarker
from ottla.wire.messages.write_txn_markers import (
    TxnMarker,
    TxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.wire.peer import Peer, PeerError

_logger = logging.getLogger(__name__)

Outcomes = dict[TopicPartition, ErrorCode]


class _Queued(NamedTuple):
    marker: EndMarker
    partitions: Sequence[TopicPartition]
    tell: Callable[[Outcomes], None]


class MarkerLink:
    """See the module. `name` is the broker in messages."""

    def __init__(self, peer: Peer, name: str) -> None:
        self._peer = peer
        self._name = name
        self._queued: list[_Queued] = []
        self._sending: asyncio.Task[None] | None = None
        self._is_closed = False

    def send(self, marker: EndMarker, partitions: Sequence[TopicPartition], tell: Callable[[Outcomes], None]) -> None:
        """Calls `tell` with the outcome of each partition, never before this returns."""
        self._queued.append(_Queued(marker, partitions, tell))
        if self._sending is None and not self._is_closed:
            self._sending = asyncio.get_running_loop().create_task(self._send_all(), name=f"markers for {self._name}")

    def give_up(self) -> None:
        """The broker is gone: everything on its way fails."""
        self._peer.close()

    async def close(self) -> None:
        """Nothing is told any more."""
        self._is_closed = True
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])
        self._peer.close()

    async def _send_all(self) -> None:
        try:
            while self._queued:
                batch, self._queued = _one_each(self._queued)
                outcomes = await self._ask(batch)
                for each in batch:
                    try:
                        each.tell(outcomes.get(each.marker.producer_id, {}))
                    except Exception:
                        _logger.exception("%s: the outcome of a marker could not be handled", self._name)
        finally:
            self._sending = None

    async def _ask(self, batch: Iterable[_Queued]) -> dict[int, Outcomes]:
        """By producer id; nothing where it is not known."""
        request = WriteTxnMarkersRequest(markers=[_marker(each) for each in batch])
        try:
            response = await self._peer.send(request, WriteTxnMarkersResponse)
        except PeerError as error:
            _logger.info("%s: markers could not be sent, and are tried again: %s", self._name, error)
            return {}
        except Exception:  # a marker whose outcome nobody tells would never be tried again
            _logger.exception("%s: markers could not be sent, and are tried again", self._name)
            return {}
        return {
            answer.producer_id: {
                TopicPartition(topic.name, each.partition_index): ErrorCode.of(each.error_code)
                for topic in answer.topics
                for each in topic.partitions
            }
            for answer in response.markers
        }


def _one_each(queued: list[_Queued]) -> tuple[list[_Queued], list[_Queued]]:
    """One marker for each producer, and the rest: responses only name producers."""
    first: dict[int, _Queued] = {}
    rest = [each for each in queued if first.setdefault(each.marker.producer_id, each) is not each]
    return list(first.values()), rest


def _marker(queued: _Queued) -> TxnMarker:
    by_topic: dict[str, list[int]] = {}
    for name in queued.partitions:
        by_topic.setdefault(name.topic, []).append(name.partition)
    marker = queued.marker
    return TxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.committed,
        topics=[TxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in by_topic.items()],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )
