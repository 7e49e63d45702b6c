"""Fetched data that was not returned yet: one queue of chunks per partition, and the partitions that have chunks.

The loop adds chunks; the poll removes them, in its own thread for a blocking consumer. Partitions take turns, one chunk
each. Chunks of a partition that is no longer assigned, or whose position was changed by a seek, are dropped when their
turn comes; chunks of a paused partition stay in its queue. Only one thread polls at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from ottla.client.subscriptions.subscription import ConsumedPartition, Position, Subscription
from ottla.records import ByteBuffer


class FetchedChunk:
    """Batches of one partition, or an error to raise in the poll instead."""

    __slots__ = (
        "data",
        "decoded_bytes",
        "failure",
        "generation",
        "leader_epoch",
        "next",
        "rest",
        "size_in_bytes",
        "state",
        "timestamp_type",
    )

    def __init__(
        self,
        state: ConsumedPartition,
        generation: int,
        data: ByteBuffer = b"",
        *,
        next_: Position | None = None,
        timestamp_type: int = 0,
        leader_epoch: int = -1,
        failure: Exception | None = None,
        decoded_bytes: int = 0,
    ) -> None:
        self.state = state
        self.generation = generation
        self.data = data
        self.next = next_
        self.timestamp_type = timestamp_type
        self.leader_epoch = leader_epoch
        self.failure = failure
        self.size_in_bytes = len(data)
        self.decoded_bytes = decoded_bytes
        """Its approximate size after decompression."""
        self.rest: Any = None
        """What remains after it was decoded; belongs to the decoder."""

    def detach(self) -> None:
        """Copies its bytes, so that it does not keep the whole response in memory."""
        self.data = bytes(self.data)


class FetchBuffer:
    """See the module docstring."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self.lock = subscription.lock
        self._ready: deque[ConsumedPartition] = deque()
        self.on_room: Callable[[], None] = lambda: None
        """Called, in any thread, when something was taken while `is_wanted`."""
        self.is_wanted = False
        """Whether the fetcher waits for room."""
        self.failure: Exception | None = None
        """An error that belongs to no partition; raised once."""

    # Called by the loop.

    def put(self, chunk: FetchedChunk) -> None:
        """Appends the chunk to the queue of its partition."""
        state = chunk.state
        if state.is_paused:
            chunk.detach()
        with self.lock:
            state.waiting.append(chunk)
            state.waiting_bytes += chunk.size_in_bytes
            if not state.is_ready:
                self._ready.append(state)
                state.is_ready = True

    def pause(self, states: Iterable[ConsumedPartition]) -> None:
        """Called when these partitions are paused: their fetched data may stay for a long time."""
        with self.lock:
            for state in states:
                for chunk in state.waiting:
                    chunk.detach()

    def resume(self, states: Iterable[ConsumedPartition]) -> None:
        """Called when these partitions are resumed: their chunks can be returned again."""
        with self.lock:
            for state in states:
                if state.waiting and not state.is_ready:
                    self._ready.append(state)
                    state.is_ready = True

    @property
    def has_news(self) -> bool:
        """Whether a poll would probably find something."""
        return bool(self._ready) or self.failure is not None

    # Called by the poll.

    def raise_failure(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def first(self) -> FetchedChunk | None:
        """Returns the chunk whose turn it is. It stays in the buffer until `hand_out` is called with None."""
        if not self._ready:
            return None
        partitions = self._subscription.partitions
        has_dropped, found = False, None
        with self.lock:
            while self._ready and found is None:
                state = self._ready[0]
                is_gone = partitions.get(state.partition) is not state
                while state.waiting and (is_gone or state.waiting[0].generation != state.generation):
                    state.waiting_bytes -= state.waiting.popleft().size_in_bytes
                    has_dropped = True
                if state.waiting and not state.is_paused:
                    found = state.waiting[0]
                else:
                    self._leave(state)
        if has_dropped:
            self._room()
        return found

    def hand_out(self, chunk: FetchedChunk, position: Position | None) -> bool:
        """Called when records of the first chunk, up to a position, are about to be returned to the user. None means
        the whole chunk; the next partition is then next. Returns False if the position was changed meanwhile: then the
        records must not be returned."""
        state = chunk.state
        with self.lock:
            is_current = chunk.generation == state.generation
            if is_current:
                self._subscription.hand_out(state, chunk.next if position is None else position)
            freed, chunk.size_in_bytes = chunk.size_in_bytes, 0  # more can be fetched while this is returned
            state.waiting_bytes -= freed
            if position is None or not is_current:
                state.waiting.popleft()
                if state.waiting:
                    self._ready.rotate(-1)
                else:
                    self._leave(state)
        if freed or position is None:
            self._room()
        return is_current

    def _leave(self, state: ConsumedPartition) -> None:
        """Removes the first partition, which has nothing to return, from the turn order. After an interruption a
        partition may be listed twice, which is harmless; one that is missing would never be served again."""
        if not state.waiting:
            state.waiting_bytes = 0  # in case an interruption left the count wrong
        state.is_ready = False
        self._ready.popleft()

    def _room(self) -> None:
        if self.is_wanted:
            try:
                self.is_wanted = False
                self.on_room()
            except BaseException:
                self.is_wanted = True  # the fetcher may have missed the call
                raise
