"""What a consumer reads, and how far it is with each partition.

Topics (by name or pattern) are handed out as partitions by a group; partitions can be assigned by hand instead, never
both. A `ConsumedPartition` lives as long as its partition stays assigned. Three places in a partition move along:

    consumed ≤ position ≤ fetched
       │          │          └─ where the next fetch begins; what lies before it was fetched and waits to be handed out
       │          └─ the next record that is handed out: what `position()` and `commit()` mean
       └─ what the user is done with, because it polled again: what is committed in the background, so that a crash
          repeats records and never skips one

Changed in the loop. Positions alone are also moved by the thread that polls a blocking consumer: each is one tuple, put
in place at once, so that a reader in another thread never sees half of one.

Ctrl-C, or a signal handler that raises, can interrupt a poll anywhere after it moved positions and before the user has
the records. So it notes first where each partition is (`begin`), and forgets these notes in the last step before it
returns. Whoever asks for a position and finds a note is given the noted one: the poll was interrupted, or it is under
way, and the one who asks is a signal handler or another thread. The next poll undoes one that was interrupted: the
positions go back, and what it took is fetched again. CPython looks for signals when a function begins, after a call,
and when a loop jumps back, never between two assignments; the order of steps here and in `fetch_buffer` relies on that.
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
    """The next offset, and the leader epoch of the record before it where that is known (KIP-320)."""

    offset: int
    leader_epoch: int = NO_EPOCH


class ReadReplica(NamedTuple):
    """A follower that the leader sent this consumer to (KIP-392), and when the leader is asked again."""

    broker_id: int
    until_s: float


class ConsumedPartition:
    """How far a consumer is with one partition. Without a position it has to be found before anything is fetched: at
    the place that `reset` names, or, where there is none, at what the group committed."""

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
        """What was committed last since the last seek: commits in the background do not go behind it."""
        self.fetched: Position | None = None
        self.batch_bytes = 0
        """The size of the next batch, where an answer had only a part of it; 0 if nothing is known of it."""
        self.topic_id: Uuid | None = None
        """Of the topic that the position is one of, from the first fetch on: another topic may get its name."""
        self.reset: Place | None = None
        self.until: int | None = None
        """The first offset that is not read any more; None reads on and on."""
        self.is_paused = False
        self.leader_epoch = NO_EPOCH
        """Of the leader that is known to have what the position follows."""
        self.read_replica: ReadReplica | None = None
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.generation = 0
        """Moves with every seek: data that was fetched for an older one is worth nothing."""
        # The lane of the fetch buffer, which locks it.
        self.waiting: deque[FetchedChunk] = deque()
        self.waiting_bytes = 0
        self.is_ready = False
        self.is_held = False
        """Whether nothing more is fetched until the lane is empty."""

    def __repr__(self) -> str:
        return f"ConsumedPartition({self.partition}, {self.position}, reset={self.reset}, paused={self.is_paused})"

    def seek(self, position: Position) -> None:
        """Goes on there; what was fetched is dropped."""
        self.reset = self.committed = self.topic_id = None
        self.consumed = position
        self.fetch_again(position)

    def seek_to(self, place: Place | None) -> None:
        """Goes on at a place, or at what the group committed, which have to be looked up first."""
        self.reset = place
        self.consumed = self.committed = self.topic_id = None
        self.fetch_again(None)

    def fetch_again(self, position: Position | None) -> None:
        """Goes back to a position before which all was handed out; what was fetched after it is dropped. All of it or
        nothing: no call stands between the assignments."""
        self.position = self.fetched = position
        self.batch_bytes = 0
        self.leader_epoch = NO_EPOCH
        self.is_held = False
        self.generation += 1

    @property
    def is_fetched(self) -> bool:
        """Whether all that is to be read was fetched."""
        return self.until is not None and self.fetched is not None and self.fetched.offset >= self.until

    @property
    def is_done(self) -> bool:
        """Whether all that is to be read was handed out."""
        return self.until is not None and self.position is not None and self.position.offset >= self.until

    @property
    def is_lost(self) -> bool:
        """Whether the committed position is to be asked for."""
        return self.position is None and self.reset is None


class Iterated:
    """Records of one partition that the user is given one by one: how far that went is asked of the iterator, so that
    nothing has to be noted for each of them."""

    __slots__ = ("_records", "left", "state")

    def __init__(self, state: ConsumedPartition, records: list[ConsumerRecord]) -> None:
        self.state = state
        self._records = records
        self.left = iter(records)

    def position(self, *, is_last_done: bool = True) -> Position | None:
        """After the last record that was given, or before it, while the user is at work on it."""
        given = len(self._records) - length_hint(self.left)
        if not given and not is_last_done:
            return self.state.consumed  # those of an earlier poll may still be worked on
        if given == len(self._records) and is_last_done:
            return self.state.position
        index = given if is_last_done else given - 1
        return Position(self._records[index].offset, self._records[index].leader_epoch)

    def rest(self) -> list[ConsumerRecord]:
        """What was not given yet; it stays."""
        return self._records[len(self._records) - length_hint(self.left) :]

    @property
    def is_over(self) -> bool:
        return not length_hint(self.left)

    def drop(self) -> None:
        for _ in self.left:
            pass


class Subscription:
    """See the module."""

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        """Those subscribed to by name, or found by the pattern at the last look."""
        self.pattern: re.Pattern[str] | None = None
        self.server_pattern: str | None = None
        """One that the coordinator matches (KIP-848), in RE2's syntax."""
        self.listener: RebalanceListener | None = None
        self.partitions: dict[TopicPartition, ConsumedPartition] = {}
        """Replaced as a whole, never changed in place."""
        self.is_manual = False
        """Whether partitions are assigned by hand."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change that fetching has to know of."""
        self.wake_poll: Callable[[], None] = lambda: None
        """Ends the wait of a poll, in the loop: for a membership that has something to do there."""
        self.polled_s = time.monotonic()
        """When the user polled last; while it waits in a poll, not long ago."""
        self.iterated: Iterated | None = None
        self._handed_out: list[ConsumedPartition] = []
        self.lock = threading.Lock()
        """Of the fetch buffer's lanes, and of positions that change for a reason other than the user's."""
        self.unfinished: dict[ConsumedPartition, tuple[int, Position | None]] = {}
        """The generation and position of each partition before the poll under way moved it. Replaced by an empty one
        when the poll is about to return its records."""
        self.on_undone: Callable[[], None] = lambda: None
        """Called, in any thread, when positions went back and fetching has to know."""

    # What to read.

    @property
    def is_by_group(self) -> bool:
        """Whether a group hands out the partitions."""
        return bool(self.topics) or self.pattern is not None or self.server_pattern is not None

    @property
    def is_by_pattern(self) -> bool:
        """Whether topics are found by a pattern: then the user names none."""
        return self.pattern is not None or self.server_pattern is not None

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener | None = None) -> None:
        """Topics by their names, in place of those of before. Partitions stay until the group decides."""
        self._begin_group(listener)
        self.topics = frozenset(topics)

    def subscribe_pattern(self, pattern: re.Pattern[str], listener: RebalanceListener | None = None) -> None:
        """All topics whose whole name matches, those to come included."""
        self._begin_group(listener)
        self.pattern = pattern

    def subscribe_server_pattern(self, pattern: str, listener: RebalanceListener | None = None) -> None:
        """All topics that the coordinator finds to match."""
        self._begin_group(listener)
        self.server_pattern = pattern

    def matched(self, topics: Iterable[str]) -> bool:
        """What the pattern finds now; whether that is news."""
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
        """These partitions and no others; those that are assigned already keep their state."""
        if self.is_by_group:
            raise ClientError("topics are subscribed to; unsubscribe() first, or read with another consumer")
        self._assign(partitions)
        self.is_manual = bool(self.partitions)

    def assigned_by_group(self, partitions: Collection[TopicPartition]) -> None:
        """What the group handed out, all of it; those that stay keep their state."""
        self._assign(partitions)

    def unsubscribe(self) -> None:
        """Reads nothing."""
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

    # How far.

    def state(self, partition: TopicPartition) -> ConsumedPartition:
        """That of an assigned partition."""
        state = self.partitions.get(partition)
        if state is None:
            assigned = ", ".join(map(str, sorted(self.partitions))) or "none"
            raise ClientError(f"partition {partition} is not assigned to this consumer; assigned: {assigned}")
        return state

    def seek(self, partition: TopicPartition, position: Position, until: int | None = None) -> None:
        """The next record of the partition is the one there, and the last is before `until`, where that is given."""
        state = self.state(partition)
        self.drop_iterated_of([state])
        state.seek(position)
        state.until = until
        self.on_change()

    def seek_to(self, partitions: Iterable[TopicPartition], place: Place | None) -> None:
        """The next record of each is the one at the place; None stands for what the group committed."""
        states = [self.state(partition) for partition in partitions]
        self.drop_iterated_of(states)
        for state in states:
            state.seek_to(place)
            state.until = None
        self.on_change()

    def drop_iterated(self) -> None:
        """What is left of the records that are being given one by one is not given."""
        if self.iterated is not None:
            self.iterated.drop()
            self.iterated = None

    def drop_iterated_of(self, states: Collection[ConsumedPartition]) -> None:
        """The same for partitions that go on elsewhere."""
        if self.iterated is not None and self.iterated.state in states:
            self.drop_iterated()

    def pause(self, partitions: Iterable[TopicPartition], *, is_paused: bool) -> list[ConsumedPartition]:
        """Nothing is handed out of paused ones; what was fetched of them is kept."""
        states = [self.state(partition) for partition in partitions]
        for state in states:
            state.is_paused = is_paused
        self.on_change()
        return states

    def hand_out(self, state: ConsumedPartition, position: Position | None) -> None:
        """Records up to there are given to the user, which is at work on them until it polls again."""
        if state.until is not None and position is not None and position.offset > state.until:
            position = Position(state.until)  # the last batch goes on after it; whose epoch it has is not known
        state.position = position
        self._handed_out.append(state)

    def begin(self, state: ConsumedPartition) -> None:
        """A poll is about to take records of the partition: notes how to undo that."""
        iterated = self.iterated
        position = state.position
        if iterated is not None and iterated.state is state:
            position = iterated.position()
        self.unfinished.setdefault(state, (state.generation, position))

    def undo(self) -> None:
        """Takes back what a poll handed out that was interrupted before it returned. By who polls, and nobody else: a
        poll that is under way would give records that come again."""
        with self.lock:
            for state, (generation, position) in list(self.unfinished.items()):
                if state.generation == generation:
                    self.drop_iterated_of([state])
                    state.fetch_again(position)
            self.on_undone()
            self.unfinished = {}

    @property
    def is_done(self) -> bool:
        """Whether nothing will ever come: every partition is read to the end that `seek` gave it."""
        partitions = self.partitions
        return bool(partitions) and all(state.is_done and state not in self.unfinished for state in partitions.values())

    def settle(self) -> None:
        """All that was handed out is done with: called when the user polls again."""
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
        """The same for good, when the user closes: what is left of an iteration is not given any more. In any thread,
        also while a poll is interrupted or under way: what it has not given yet is not consumed."""
        if self.iterated is not None:
            self.iterated.state.position = self.iterated.position()
            self.drop_iterated()
        self._consume()

    def position(self, state: ConsumedPartition) -> Position | None:
        """Where the user goes on after all records that it was given. In any thread, and in signal handlers."""
        noted = self.unfinished.get(state)
        if noted is not None and noted[0] == state.generation:
            return noted[1]
        iterated = self.iterated
        return iterated.position() if iterated is not None and iterated.state is state else state.position

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What can be committed without the user: where it goes on after the records that it is done with."""
        offsets = _offsets((partition, state.consumed) for partition, state in self.partitions.items())
        iterated = self.iterated
        if iterated is not None and iterated.state.partition in self.partitions:
            offsets |= _offsets([(iterated.state.partition, iterated.position(is_last_done=False))])
        return offsets

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a commit without offsets commits: where it goes on after all records that were handed out."""
        return _offsets((partition, self.position(state)) for partition, state in self.partitions.items())


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
