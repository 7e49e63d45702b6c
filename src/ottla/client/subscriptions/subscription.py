"""What a consumer reads, and its positions in each partition.

A group assigns the partitions of subscribed topics (by name or pattern); alternatively partitions are assigned
manually, never both. A `ConsumedPartition` lives as long as its partition stays assigned. It has three positions:

    consumed ≤ position ≤ fetched
       │          │          └─ where the next fetch begins; records before it were fetched and wait to be returned
       │          └─ the next record to return: used by `position()` and `commit()`
       └─ what the user has processed, because it polled again: committed in the background, so that a crash repeats
          records and never skips one

Changed in the loop. Only positions are also moved by the thread that polls a blocking consumer: each is one tuple,
which is replaced at once, so that another thread never sees half of one.

Ctrl-C, or a signal handler that raises, can interrupt a poll anywhere after it moved positions and before the user has
the records. So the poll first notes the position of each partition (`begin`), and drops these notes in the last step
before it returns. If there is a note, readers get the noted position: the poll was interrupted, or it is in progress,
and the reader is a signal handler or another thread. The next poll undoes an interrupted one: the positions go back,
and what it took is fetched again. CPython checks for signals when a function begins, after a call, and when a loop
jumps back, never between two assignments; the order of steps here and in `fetch_buffer` relies on that.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from operator import length_hint
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.base.ids import TopicPartition, Uuid
from ottla.client.errors import ClientError
from ottla.client.offsets import OffsetAndMetadata, Place
from ottla.client.subscriptions.listeners import RebalanceListener

if TYPE_CHECKING:
    from ottla.client.consume.fetch_buffer import FetchedChunk
    from ottla.client.consume.record import ConsumerRecord

NO_EPOCH: Final = -1


class Position(NamedTuple):
    """The next offset, and the leader epoch of the record before it, if known (KIP-320)."""

    offset: int
    leader_epoch: int = NO_EPOCH


class ReadReplica(NamedTuple):
    """A follower that the leader redirected this consumer to (KIP-392), and when to ask the leader again."""

    broker_id: int
    until_s: float


class ConsumedPartition:
    """The positions of a consumer in one partition. Without a position, it has to be found before anything is fetched:
    at the place in `reset`, or, if there is none, at the group's committed offset."""

    __slots__ = (
        "batch_bytes",
        "committed",
        "consumed",
        "fetched",
        "generation",
        "high_watermark",
        "is_held",
        "is_paused",
        "is_ready",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "partition",
        "position",
        "read_replica",
        "reset",
        "topic_id",
        "until",
        "waiting",
        "waiting_bytes",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.position: Position | None = None
        self.consumed: Position | None = None
        self.committed: int | None = None
        """The last commit since the last seek: background commits do not go back before it."""
        self.fetched: Position | None = None
        self.batch_bytes = 0
        """The size of the next batch if a response contained only a part of it; 0 if it is not known."""
        self.topic_id: Uuid | None = None
        """The id of the topic to which the position belongs, from the first fetch on: another topic may get its
        name."""
        self.reset: Place | None = None
        self.until: int | None = None
        """The first offset that is not read any more; None for no end."""
        self.is_paused = False
        self.leader_epoch = NO_EPOCH
        """The epoch of the leader that is known to have the records before the position."""
        self.read_replica: ReadReplica | None = None
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.generation = 0
        """Increases with every seek: data that was fetched for an older one is outdated."""
        # The queue of the fetch buffer, which locks it.
        self.waiting: deque[FetchedChunk] = deque()
        self.waiting_bytes = 0
        self.is_ready = False
        self.is_held = False
        """Whether nothing more is fetched until the queue is empty."""

    def __repr__(self) -> str:
        return f"ConsumedPartition({self.partition}, {self.position}, reset={self.reset}, paused={self.is_paused})"

    def seek(self, position: Position) -> None:
        """Continues there; drops what was fetched."""
        self.reset = self.committed = self.topic_id = None
        self.consumed = position
        self.fetch_again(position)

    def seek_to(self, place: Place | None) -> None:
        """Continues at a place, or at the group's committed offset, which has to be looked up first."""
        self.reset = place
        self.consumed = self.committed = self.topic_id = None
        self.fetch_again(None)

    def fetch_again(self, position: Position | None) -> None:
        """Goes back to a position before which everything was returned; drops what was fetched after it. All or
        nothing: there is no call between the assignments."""
        self.position = self.fetched = position
        self.batch_bytes = 0
        self.leader_epoch = NO_EPOCH
        self.is_held = False
        self.generation += 1

    @property
    def is_fetched(self) -> bool:
        """Whether everything up to `until` was fetched."""
        return self.until is not None and self.fetched is not None and self.fetched.offset >= self.until

    @property
    def is_done(self) -> bool:
        """Whether everything up to `until` was returned."""
        return self.until is not None and self.position is not None and self.position.offset >= self.until

    @property
    def is_lost(self) -> bool:
        """Whether the committed offset has to be looked up."""
        return self.position is None and self.reset is None


class Iterated:
    """Records of one partition that the user gets one by one: the iterator knows how far that went, so nothing has to
    be noted for each record."""

    __slots__ = ("_records", "left", "state")

    def __init__(self, state: ConsumedPartition, records: list[ConsumerRecord]) -> None:
        self.state = state
        self._records = records
        self.left = iter(records)

    def position(self, *, is_last_done: bool = True) -> Position | None:
        """The position after the last record that the user got, or before it, while the user processes it."""
        given = len(self._records) - length_hint(self.left)
        if not given and not is_last_done:
            return self.state.consumed  # the user may still process those of an earlier poll
        if given == len(self._records) and is_last_done:
            return self.state.position
        index = given if is_last_done else given - 1
        return Position(self._records[index].offset, self._records[index].leader_epoch)

    def rest(self) -> list[ConsumerRecord]:
        """The records that the user did not get yet; they stay."""
        return self._records[len(self._records) - length_hint(self.left) :]

    @property
    def is_over(self) -> bool:
        return not length_hint(self.left)

    def drop(self) -> None:
        for _ in self.left:
            pass


class Subscription:
    """See the module docstring."""

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        """Topics subscribed by name, or those that matched the pattern at the last check."""
        self.pattern: re.Pattern[str] | None = None
        self.server_pattern: str | None = None
        """A pattern that the coordinator matches (KIP-848), in RE2's syntax."""
        self.listener: RebalanceListener | None = None
        self.partitions: dict[TopicPartition, ConsumedPartition] = {}
        """Replaced as a whole, never changed in place."""
        self.is_manual = False
        """Whether partitions are assigned manually."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change that affects fetching."""
        self.wake_poll: Callable[[], None] = lambda: None
        """Ends the wait of a poll, in the loop: for a membership that has something to do there."""
        self.polled_s = time.monotonic()
        """When the user polled last; kept recent while it waits in a poll."""
        self.iterated: Iterated | None = None
        self._handed_out: list[ConsumedPartition] = []
        self.lock = threading.Lock()
        """Protects the fetch buffer's queues, and positions that change for a reason other than the user's calls."""
        self.unfinished: dict[ConsumedPartition, tuple[int, Position | None]] = {}
        """The generation and position of each partition before the current poll moved it. Replaced by an empty dict
        when the poll is about to return its records."""
        self.on_undone: Callable[[], None] = lambda: None
        """Called, in any thread, when positions went back and fetching has to know."""

    # Subscription and assignment.

    @property
    def is_by_group(self) -> bool:
        """Whether a group assigns the partitions."""
        return bool(self.topics) or self.pattern is not None or self.server_pattern is not None

    @property
    def is_by_pattern(self) -> bool:
        """Whether topics are found by a pattern: then the user names none."""
        return self.pattern is not None or self.server_pattern is not None

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener | None = None) -> None:
        """Replaces the subscribed topics. Partitions stay until the group decides."""
        self._begin_group(listener)
        self.topics = frozenset(topics)

    def subscribe_pattern(self, pattern: re.Pattern[str], listener: RebalanceListener | None = None) -> None:
        """Subscribes to all topics whose whole name matches, including future ones."""
        self._begin_group(listener)
        self.pattern = pattern

    def subscribe_server_pattern(self, pattern: str, listener: RebalanceListener | None = None) -> None:
        """Subscribes to all topics that the coordinator matches."""
        self._begin_group(listener)
        self.server_pattern = pattern

    def matched(self, topics: Iterable[str]) -> bool:
        """Sets the topics that match the pattern now; returns whether they have changed."""
        found = frozenset(topics)
        if found == self.topics:
            return False
        self.topics = found
        return True

    def _begin_group(self, listener: RebalanceListener | None) -> None:
        if self.is_manual:
            raise ClientError("partitions are assigned by hand; unsubscribe() first, or read with another consumer")
        self.topics, self.pattern, self.server_pattern = frozenset(), None, None
        self.listener = listener

    def assign_manually(self, partitions: Iterable[TopicPartition]) -> None:
        """Assigns exactly these partitions; those that are already assigned keep their state."""
        if self.is_by_group:
            raise ClientError("topics are subscribed to; unsubscribe() first, or read with another consumer")
        self._assign(partitions)
        self.is_manual = bool(self.partitions)

    def assigned_by_group(self, partitions: Collection[TopicPartition]) -> None:
        """Sets all partitions that the group assigned; those that stay keep their state."""
        self._assign(partitions)

    def unsubscribe(self) -> None:
        """Stops consuming."""
        self.topics, self.pattern, self.server_pattern, self.listener = frozenset(), None, None, None
        self.is_manual = False
        self._assign(())

    def _assign(self, partitions: Iterable[TopicPartition]) -> None:
        known = self.partitions
        self.partitions = {one: known.get(one) or ConsumedPartition(one) for one in partitions}
        self._handed_out = [state for state in self._handed_out if self.partitions.get(state.partition) is state]
        if self.iterated is not None and self.partitions.get(self.iterated.state.partition) is not self.iterated.state:
            self.drop_iterated()
        self.on_change()

    # Positions.

    def state(self, partition: TopicPartition) -> ConsumedPartition:
        """The state of an assigned partition."""
        state = self.partitions.get(partition)
        if state is None:
            assigned = ", ".join(map(str, sorted(self.partitions))) or "none"
            raise ClientError(f"partition {partition} is not assigned to this consumer; assigned: {assigned}")
        return state

    def seek(self, partition: TopicPartition, position: Position, until: int | None = None) -> None:
        """Sets the position of the partition, and the exclusive end `until`, if given."""
        state = self.state(partition)
        self.drop_iterated_of([state])
        state.seek(position)
        state.until = until
        self.on_change()

    def seek_to(self, partitions: Iterable[TopicPartition], place: Place | None) -> None:
        """Sets the position of each to a place; None for the group's committed offset."""
        states = [self.state(partition) for partition in partitions]
        self.drop_iterated_of(states)
        for state in states:
            state.seek_to(place)
            state.until = None
        self.on_change()

    def drop_iterated(self) -> None:
        """Drops the rest of the records that the user gets one by one."""
        if self.iterated is not None:
            self.iterated.drop()
            self.iterated = None

    def drop_iterated_of(self, states: Collection[ConsumedPartition]) -> None:
        """The same for partitions whose position changes."""
        if self.iterated is not None and self.iterated.state in states:
            self.drop_iterated()

    def pause(self, partitions: Iterable[TopicPartition], *, is_paused: bool) -> list[ConsumedPartition]:
        """Paused partitions return nothing; what was fetched from them is kept."""
        states = [self.state(partition) for partition in partitions]
        for state in states:
            state.is_paused = is_paused
        self.on_change()
        return states

    def hand_out(self, state: ConsumedPartition, position: Position | None) -> None:
        """Called when records up to there are given to the user, which processes them until it polls again."""
        if state.until is not None and position is not None and position.offset > state.until:
            position = Position(state.until)  # the last batch continues after it, and its epoch is not known
        state.position = position
        self._handed_out.append(state)

    def begin(self, state: ConsumedPartition) -> None:
        """Called when a poll is about to take records of the partition: notes how to undo that."""
        iterated = self.iterated
        position = state.position
        if iterated is not None and iterated.state is state:
            position = iterated.position()
        self.unfinished.setdefault(state, (state.generation, position))

    def undo(self) -> None:
        """Takes back what an interrupted poll took before it returned. Called only by the polling thread: otherwise a
        poll in progress would return records that come again."""
        with self.lock:
            for state, (generation, position) in list(self.unfinished.items()):
                if state.generation == generation:
                    self.drop_iterated_of([state])
                    state.fetch_again(position)
            self.on_undone()
            self.unfinished = {}

    @property
    def is_done(self) -> bool:
        """Whether nothing will ever come: every partition has reached the end that `seek` set."""
        partitions = self.partitions
        return bool(partitions) and all(state.is_done and state not in self.unfinished for state in partitions.values())

    def settle(self) -> None:
        """Called when the user polls again: everything returned before is processed."""
        self.polled_s = time.monotonic()
        if self.unfinished:
            self.undo()
        if self.iterated is not None and self.iterated.is_over:
            self.iterated = None
        self._consume()

    def _consume(self) -> None:
        if self._handed_out:
            for state in self._handed_out:
                state.consumed = self.position(state)
            self._handed_out.clear()

    def settle_all(self) -> None:
        """The same, permanently, when the user closes: the rest of an iteration is not returned any more. Thread-safe,
        also while a poll is interrupted or in progress: what it has not returned yet is not consumed."""
        if self.iterated is not None:
            self.iterated.state.position = self.iterated.position()
            self.drop_iterated()
        self._consume()

    def position(self, state: ConsumedPartition) -> Position | None:
        """The position after all records that the user got. Thread-safe, also in signal handlers."""
        noted = self.unfinished.get(state)
        if noted is not None and noted[0] == state.generation:
            return noted[1]
        iterated = self.iterated
        return iterated.position() if iterated is not None and iterated.state is state else state.position

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What can be committed automatically: the positions after the records that the user has processed."""
        offsets = _offsets((partition, state.consumed) for partition, state in self.partitions.items())
        iterated = self.iterated
        if iterated is not None and iterated.state.partition in self.partitions:
            offsets |= _offsets([(iterated.state.partition, iterated.position(is_last_done=False))])
        return offsets

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a commit without offsets commits: the positions after all records that were returned."""
        return _offsets((partition, self.position(state)) for partition, state in self.partitions.items())

    def ends(self) -> dict[TopicPartition, int]:
        """The exclusive ends that `seek` set."""
        states = self.partitions.items()
        return {partition: state.until for partition, state in states if state.until is not None}


def _offsets(
    positions: Iterable[tuple[TopicPartition, Position | None]],
) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        partition: OffsetAndMetadata(
            position.offset, "", None if position.leader_epoch == NO_EPOCH else position.leader_epoch
        )
        for partition, position in positions
        if position is not None
    }
