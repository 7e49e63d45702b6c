"""Has the markers of ended transactions written by the leaders of all their partitions.

Partitions that this broker leads are appended to directly; the others get WriteTxnMarkers requests (`marker_link`).
What fails with a passing error is tried again, after a while or when the metadata changes, at the leader of that time:

| outcome of a partition | what follows |
| --- | --- |
| committed, or the broker of the partition cannot have transactions | the partition is done |
| the partition is not in the metadata | deleted: done, if the coordination tree does not have it either |
| INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED | the whole write ends with this error |
| anything else | tried again |

The metadata alone does not show that a partition is deleted: a controller may have died before it told this broker of
a new topic. Without its marker, the transaction would stay open there, and its records would never be read.

Markers are idempotent: one that is written twice ends nothing the second time. Owned by the loop.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.broker.transactions.marker_appender import MarkerAppender
from ottla.broker.transactions.marker_link import MarkerLink
from ottla.coordinator.transactions.seams import EndMarker
from ottla.replication.replicas import Replicas
from ottla.wire.peer import Peer

_logger = logging.getLogger(__name__)

_NONE: Final = ErrorCode.NONE
_FINAL: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
_NO_MARKERS: Final = frozenset({ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
_RETRY_S: Final = 0.1
_RETRY_MAX_S: Final = 2.0


class _Write:
    """One marker on its way; implements `MarkerWrite`."""

    __slots__ = ("attempts", "done", "in_flight", "is_cancelled", "is_ended", "left", "marker")

    def __init__(
        self, marker: EndMarker, partitions: Collection[TopicPartition], done: Callable[[ErrorCode], None]
    ) -> None:
        self.marker = marker
        self.left = set(partitions)
        """Partitions that do not have the marker yet."""
        self.in_flight: set[TopicPartition] = set()
        """Those of them whose outcome is awaited."""
        self.done = done
        self.attempts = 0
        self.is_ended = False
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_ended = self.is_cancelled = True
        self.left.clear()

    def tell(self, error: ErrorCode) -> None:
        if not self.is_cancelled:
            self.done(error)


class BrokerMarkerSender:
    """See the module; implements `ottla.coordinator.transactions.seams.MarkerSender`. `open_peer` connects to another
    broker; None in a broker without others. `is_in_tree` looks a partition up in the coordination tree; None if the
    metadata always has what is there."""

    def __init__(
        self,
        replicas: Replicas,
        metadata: MetadataCache,
        appender: MarkerAppender,
        loop: AbstractEventLoop,
        open_peer: Callable[[int], Peer] | None,
        is_in_tree: Callable[[TopicPartition], Awaitable[bool]] | None = None,
    ) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._appender = appender
        self._loop = loop
        self._open_peer = open_peer
        self._is_in_tree = is_in_tree
        self._looking: set[asyncio.Task[None]] = set()
        self._links: dict[int, MarkerLink] = {}
        self._waiting: dict[_Write, TimerHandle] = {}
        """Writes that are tried again later."""
        self._is_closed = False

    def write(
        self, marker: EndMarker, partitions: Collection[TopicPartition], done: Callable[[ErrorCode], None]
    ) -> _Write:
        write = _Write(marker, partitions, done)
        if not self._is_closed:
            self._send(write)
        return write

    def write_now(self, marker: EndMarker, partitions: Collection[TopicPartition]) -> bool:
        if self._is_closed:
            return False
        hosted = [self._replicas.get(name.topic, name.partition) for name in partitions]
        if not all(each is not None and each.commits_at_once for each in hosted):
            return False
        outcomes = [self._appender.append(name, marker, _not_awaited) for name in partitions]
        return not any(outcome is not _NONE for outcome in outcomes)

    @property
    def waiting_count(self) -> int:
        """Writes that are tried again later."""
        return len(self._waiting)

    def metadata_changed(self) -> None:
        """Leaders may have moved: what waits is tried again now, and what waits for a broker that is gone."""
        for broker_id in [each for each in self._links if not self._metadata.is_alive(each)]:
            self._links.pop(broker_id).give_up()
        for write in list(self._waiting):
            self._again(write)

    async def close(self) -> None:
        """Writes nothing any more, and tells nothing: the next coordinator writes what is left."""
        self._is_closed = True
        for timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()
        for task in self._looking:
            task.cancel()
        if self._looking:
            await asyncio.wait(self._looking)
        for link in self._links.values():
            await link.close()

    # --- one write ----------------------------------------------------------------------------------------------------

    def _send(self, write: _Write) -> None:
        elsewhere: dict[int, list[TopicPartition]] = {}
        for name in list(write.left - write.in_flight):
            hosted = self._replicas.get(name.topic, name.partition)
            if hosted is not None and hosted.is_leader:
                outcome = self._appender.append(name, write.marker, partial(self._settled_later, write, name))
                if outcome is None:
                    write.in_flight.add(name)
                else:
                    self._settled(write, name, outcome)
                continue
            known = self._metadata.partition(name.topic, name.partition)
            if known is None:
                if hosted is None and not self._metadata.may_exist(name.topic, name.partition):
                    self._unknown(write, name)
            elif self._open_peer is not None and self._metadata.is_alive(known.leader):
                elsewhere.setdefault(known.leader, []).append(name)
        for broker_id, names in elsewhere.items():
            write.in_flight.update(names)
            self._link(broker_id).send(write.marker, names, partial(self._answered, write, names))
        self._go_on(write)

    def _unknown(self, write: _Write, name: TopicPartition) -> None:
        """The metadata does not have the partition."""
        if self._is_in_tree is None:
            self._deleted(write, name)
            return
        write.in_flight.add(name)
        task = self._loop.create_task(self._look_up(write, name, self._is_in_tree), name=f"looking for {name}")
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _look_up(
        self, write: _Write, name: TopicPartition, is_in_tree: Callable[[TopicPartition], Awaitable[bool]]
    ) -> None:
        is_there = True
        try:
            is_there = await is_in_tree(name)
        except Exception as error:
            _logger.info("%s: it is not known if it is deleted: %s", name, error)
        write.in_flight.discard(name)
        if not is_there:
            self._deleted(write, name)
        self._go_on(write)

    def _deleted(self, write: _Write, name: TopicPartition) -> None:
        _logger.info("%s is deleted: the transaction of producer %d ends without it", *_of(name, write))
        write.left.discard(name)

    def _link(self, broker_id: int) -> MarkerLink:
        link = self._links.get(broker_id)
        if link is None:
            if self._open_peer is None:
                raise RuntimeError("a broker without others has no links")
            link = self._links[broker_id] = MarkerLink(self._open_peer(broker_id), f"broker {broker_id}")
        return link

    def _answered(
        self, write: _Write, names: Collection[TopicPartition], outcomes: dict[TopicPartition, ErrorCode]
    ) -> None:
        for name in names:
            write.in_flight.discard(name)
            self._settled(write, name, outcomes.get(name, ErrorCode.UNKNOWN_SERVER_ERROR))
        self._go_on(write)

    def _settled_later(self, write: _Write, name: TopicPartition, outcome: ErrorCode) -> None:
        write.in_flight.discard(name)
        self._settled(write, name, outcome)
        self._go_on(write)

    def _settled(self, write: _Write, name: TopicPartition, outcome: ErrorCode) -> None:
        if outcome is _NONE or outcome in _NO_MARKERS:
            write.left.discard(name)
        elif outcome in _FINAL and not write.is_ended:
            _logger.info("%s: the marker of producer %d can never be written: %s", *_of(name, write), outcome.name)
            self._end(write, outcome)
        else:
            _logger.debug("%s: the marker of producer %d is not written yet: %s", *_of(name, write), outcome.name)

    def _go_on(self, write: _Write) -> None:
        """Ends the write, or schedules what is neither written nor awaited."""
        if write.is_ended or self._is_closed:
            return
        if not write.left:
            self._end(write, _NONE)
        elif write.left - write.in_flight and write not in self._waiting:
            delay_s = min(_RETRY_S * 2**write.attempts, _RETRY_MAX_S)
            write.attempts += 1
            self._waiting[write] = self._loop.call_later(delay_s, self._again, write)

    def _again(self, write: _Write) -> None:
        timer = self._waiting.pop(write, None)
        if timer is not None:
            timer.cancel()
        if not write.is_ended and not self._is_closed:
            self._send(write)

    def _end(self, write: _Write, error: ErrorCode) -> None:
        write.is_ended = True
        write.left.clear()
        timer = self._waiting.pop(write, None)
        if timer is not None:
            timer.cancel()
        # Later: the coordinator must have returned from what it was doing.
        self._loop.call_soon(write.tell, error)


def _not_awaited(_: ErrorCode) -> None:
    """For a marker that turned out to need a wait: `write` waits for it."""


def _of(name: TopicPartition, write: _Write) -> tuple[TopicPartition, int]:
    return name, write.marker.producer_id
