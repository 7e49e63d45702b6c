"""What was fetched and not yet handed out: a lane of chunks for each partition, and the partitions that have some.

The loop puts chunks in; whoever polls takes them, in its own thread if the consumer is a blocking one. Partitions take
turns, a chunk each. What belongs to a partition that was given up, or sought elsewhere, is dropped when it is met; what
belongs to a paused one stays in its lane. One thread polls at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from ottla.client.subscriptions.subscription import ConsumedPartition, Position, Subscription
from ottla.records import ByteBuffer


class FetchedChunk:
    """Batches of one partition; or, in their place, what has to be raised to who polls."""

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
        """About what it becomes when it is decompressed."""
        self.rest: Any = None
        """What is left of it once it was decoded: the decoder's own."""

    def detach(self) -> None:
        """Keeps its own bytes alive, and not the whole answer that it came with."""
        self.data = bytes(self.data)


class FetchBuffer:
    """See the module."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self.lock = subscription.lock
        self._ready: deque[ConsumedPartition] = deque()
        self.on_room: Callable[[], None] = lambda: None
        """Called, in any thread, when something was taken and `is_wanted`."""
        self.is_wanted = False
        """Whether the fetcher waits for room."""
        self.failure: Exception | None = None
        """What went wrong that belongs to no partition; to be raised once."""

    # By the loop.

    def put(self, chunk: FetchedChunk) -> None:
        """Adds it behind those of its partition."""
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
        """These are paused: what they have fetched may stay for long."""
        with self.lock:
            for state in states:
                for chunk in state.waiting:
                    chunk.detach()

    def resume(self, states: Iterable[ConsumedPartition]) -> None:
        """These are no longer paused: what waits in their lanes can be handed out."""
        with self.lock:
            for state in states:
                if state.waiting and not state.is_ready:
                    self._ready.append(state)
                    state.is_ready = True

    @property
    def has_news(self) -> bool:
        """Whether a poll would find something, most likely."""
        return bool(self._ready) or self.failure is not None

    # By who polls.

    def raise_failure(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def first(self) -> FetchedChunk | None:
        """The chunk whose turn it is. It stays until `taken`."""
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
        """Records of the first chunk, up to a position, are about to be given to the user; None stands for all of it,
        and then the next partition has its turn. False if the position was changed meanwhile: then they are not."""
        state = chunk.state
        with self.lock:
            is_current = chunk.generation == state.generation
            if is_current:
                self._subscription.hand_out(state, chunk.next if position is None else position)
            freed, chunk.size_in_bytes = chunk.size_in_bytes, 0  # others can be fetched while it is handed out
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
        """The first partition has nothing to hand out. One that is there twice, after an interruption, does no harm;
        one that is left out would never be looked at again."""
        if not state.waiting:
            state.waiting_bytes = 0  # whatever an interruption left uncounted
        state.is_ready = False
        self._ready.popleft()

    def _room(self) -> None:
        if self.is_wanted:
            try:
                self.is_wanted = False
                self.on_room()
            except BaseException:
                self.is_wanted = True  # it may not have heard
                raise
