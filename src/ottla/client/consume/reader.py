"""The part of a poll that handles fetched data: takes it, decodes it, and moves positions. Runs in the polling thread.

The caller sets `subscription.unfinished = {}` just before it returns what it took to the user: until then, an
interruption undoes the poll (see `subscription`).
"""

from __future__ import annotations

from typing import Any, Final

from ottla.base.ids import TopicPartition
from ottla.client.consume.arrow import ChosenColumns, combined
from ottla.client.consume.decoding import Decoder
from ottla.client.consume.fetch_buffer import FetchBuffer, FetchedChunk
from ottla.client.consume.interceptors import ConsumerInterceptors
from ottla.client.consume.record import ConsumerRecord
from ottla.client.errors import OttlaError
from ottla.client.subscriptions.subscription import Iterated, Position, Subscription
from ottla.records import RecordLists

ENOUGH_BYTES: Final = 256 * 1024
"""Chunks are returned together up to this size. With more, the first records would be out of the processor's caches by
the time they are used, and Arrow batches would have to be copied to be combined."""

ENOUGH_DECODED_BYTES: Final = 8 * 1024 * 1024
"""The same limit for columns that compress well."""


class PollReader:
    """Used by one thread at a time."""

    def __init__(
        self, subscription: Subscription, buffer: FetchBuffer, decoder: Decoder, interceptors: ConsumerInterceptors
    ) -> None:
        self._subscription = subscription
        self._buffer = buffer
        self._decoder = decoder
        self._interceptors = interceptors
        self.records = 0
        """The number of records returned."""

    def take(self, most: int) -> list[ConsumerRecord]:
        """Returns up to `most` records, from several chunks if the first is small; none if nothing was fetched."""
        self._buffer.raise_failure()
        if self._subscription.iterated is not None:
            return self._take_iterated(most)
        taken: list[ConsumerRecord] = []
        size = 0
        while len(taken) < most and size < ENOUGH_BYTES and (chunk := self._buffer.first()) is not None:
            size += len(chunk.data)
            try:
                records = self._take(chunk, most - len(taken))
            except OttlaError:
                if taken:
                    break  # the next poll gets it again
                self._subscription.unfinished = {}
                raise
            if taken:
                taken += records
            else:
                taken = records
        if taken:
            taken = self._interceptors.on_consume(taken)
        if not taken:
            self._subscription.unfinished = {}
        self.records += len(taken)
        return taken

    def iterate(self, most: int) -> Iterated | None:
        """Returns up to `most` records of one partition, whose position follows the iteration record by record."""
        self._buffer.raise_failure()
        subscription = self._subscription
        iterated = subscription.iterated
        if iterated is not None and iterated.state.is_paused:
            self._give_back_iterated()
            iterated = None
        while iterated is None and (chunk := self._buffer.first()) is not None:
            try:
                records = self._take(chunk, most)
            except OttlaError:
                subscription.unfinished = {}
                raise
            if records:
                records = self._interceptors.on_consume(records)
            if records:
                iterated = Iterated(chunk.state, records)
                self.records += len(records)
                subscription.iterated = iterated
            subscription.unfinished = {}
        return iterated

    def take_arrow(self, columns: ChosenColumns) -> Any:
        """Returns fetched records as an Arrow record batch; None if nothing was fetched."""
        self._buffer.raise_failure()
        self._give_back_iterated()
        batches: list[Any] = []
        size = decoded_bytes = 0
        while size < ENOUGH_BYTES and decoded_bytes < ENOUGH_DECODED_BYTES:
            chunk = self._buffer.first()
            if chunk is None:
                break
            size += len(chunk.data)
            decoded_bytes += chunk.decoded_bytes
            try:
                batch = self._take_columns(chunk, columns)
            except OttlaError:
                if batches:
                    break
                self._subscription.unfinished = {}
                raise
            if batch is not None:
                batches.append(batch)
                self.records += batch.num_rows
        if not batches:
            self._subscription.unfinished = {}
        return combined(batches)

    def take_lists(self) -> tuple[TopicPartition, RecordLists] | None:
        """Returns one chunk as lists, without records being made or deserialized; None if nothing was fetched. A chunk
        can be empty: then only the position moves."""
        self._buffer.raise_failure()
        chunk = self._buffer.first()
        if chunk is None:
            self._subscription.unfinished = {}
            return None
        try:
            if chunk.failure is not None:
                raise chunk.failure
            self._subscription.begin(chunk.state)
            lists = self._decoder.take_lists(chunk)
        except OttlaError:
            self._subscription.unfinished = {}
            raise
        position = None
        if chunk.rest.failure is not None:
            position = Position(lists.offsets[-1] + 1, chunk.leader_epoch)
        if not self._buffer.hand_out(chunk, position):
            lists = RecordLists([], [], [], [], [])
        self.records += len(lists.offsets)
        return chunk.state.partition, lists

    def _take(self, chunk: FetchedChunk, most: int) -> list[ConsumerRecord]:
        if chunk.failure is not None:
            raise chunk.failure
        self._subscription.begin(chunk.state)
        records = self._decoder.take(chunk, most)
        rest = chunk.rest
        if not rest.left and rest.failure is None:
            position = None
        else:
            position = Position(records[-1].offset + 1, chunk.leader_epoch)
        return records if self._buffer.hand_out(chunk, position) else []

    def _take_columns(self, chunk: FetchedChunk, columns: ChosenColumns) -> Any:
        if chunk.failure is not None:
            raise chunk.failure
        self._subscription.begin(chunk.state)
        batch = self._decoder.take_columns(chunk, columns)
        rows = batch.num_rows
        position = None
        if chunk.rest.failure is not None:
            if not rows:
                raise chunk.rest.failure
            position = Position(batch.column("offset")[rows - 1].as_py() + 1, chunk.leader_epoch)
        if not self._buffer.hand_out(chunk, position) or not rows:
            return None
        return columns.of(batch, chunk.state.partition.topic)

    def _take_iterated(self, most: int) -> list[ConsumerRecord]:
        """Returns the records that an abandoned iteration left."""
        subscription = self._subscription
        iterated = subscription.iterated
        if iterated is None or iterated.is_over:
            subscription.iterated = None
            return self.take(most)
        if iterated.state.is_paused:
            self._give_back_iterated()
            return self.take(most)
        state, rest = iterated.state, iterated.rest()
        left = Iterated(state, rest[most:]) if len(rest) > most else None
        subscription.begin(state)
        subscription.hand_out(state, state.position)
        subscription.iterated = left
        iterated.drop()
        return rest[:most]

    def _give_back_iterated(self) -> None:
        """Fetches again what an abandoned iteration left: users rarely switch from records to columns, or pause a
        partition, in the middle of an iteration."""
        subscription = self._subscription
        iterated = subscription.iterated
        if iterated is not None and not iterated.is_over:
            subscription.begin(iterated.state)
            subscription.undo()
        subscription.iterated = None
