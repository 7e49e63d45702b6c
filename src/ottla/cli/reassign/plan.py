"""Plans where replicas go: to chosen brokers, away from some, or evenly over all. No I/O, no randomness.

The plan moves as little as possible. Its steps:

1. A replica stays where it is, if its broker may keep it. All others are *vacancies*; a vacancy keeps its position.
2. Each vacancy is filled by the least loaded target in a rack that the partition does not use yet.
3. If the load is to be spread: partitions that use fewer racks than they could get another rack, then replicas move
   from the most to the least loaded target until their numbers differ by at most one. A move never costs a rack.
4. The preferred leader (the first replica) is chosen so that leaders are even too. This moves no data.

Racks count only if every target has one. Load is the number of replicas among the partitions of the plan.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ottla.base.ids import TopicPartition

Replicas = tuple[int, ...]
Assignment = Mapping[TopicPartition, Replicas]


class PlanError(ValueError):
    """There is no such plan. The message says why."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a plan should reach."""

    targets: Mapping[int, str | None]
    """Brokers that can take replicas, with their racks."""
    keeping: Collection[int] = ()
    """Other brokers that keep the replicas they have, but get no new ones."""
    replication_factor: int | None = None
    """None keeps the replication factor of each partition."""
    spread: bool = True
    """Whether replicas and preferred leaders move to even out the load. Otherwise only vacancies are filled."""


def plan(current: Assignment, goal: Goal) -> dict[TopicPartition, Replicas]:
    """The new replicas of those partitions that change."""
    draft = _Draft(current, goal)
    draft.fill_vacancies()
    if goal.spread:
        draft.use_more_racks()
        draft.even_out_replicas()
    draft.even_out_leaders()
    return {
        partition: tuple(replicas)
        for partition, replicas in draft.replicas.items()
        if tuple(replicas) != tuple(current[partition])
    }


def moved_replicas(current: Assignment, planned: Assignment) -> int:
    """How many replicas are copied to another broker."""
    return sum(len(set(replicas) - set(current[partition])) for partition, replicas in planned.items())


class _Draft:
    """The assignment while it is planned, with the number of replicas and the partitions of each broker."""

    def __init__(self, current: Assignment, goal: Goal) -> None:
        self._current = current
        self._goal = goal
        self._targets = sorted(goal.targets)
        if not self._targets:
            raise PlanError("there is no broker that could take replicas")
        self._has_racks = all(rack is not None for rack in goal.targets.values())
        self._racks = len(set(goal.targets.values())) if self._has_racks else 0
        self.replicas: dict[TopicPartition, list[int]] = {}
        self._hosted: dict[int, dict[TopicPartition, None]] = {broker: {} for broker in self._targets}
        self._of_topic: Counter[tuple[int, str]] = Counter()
        self._vacancies: dict[TopicPartition, list[int]] = {}
        allowed = {*goal.targets, *goal.keeping}
        for partition in sorted(current):
            self._place(partition, allowed)

    def _place(self, partition: TopicPartition, allowed: Collection[int]) -> None:
        before = list(self._current[partition])
        wanted = len(before) if self._goal.replication_factor is None else self._goal.replication_factor
        slots: list[int | None] = [broker if broker in allowed else None for broker in before]
        while len(slots) > wanted:
            slots.pop(self._least_useful(slots))
        slots += [None] * (wanted - len(slots))
        if None in slots:
            usable = {*self._targets, *(one for one in slots if one is not None)}
            if len(usable) < wanted:
                targets = [*map(str, self._targets)]
                brokers = f"brokers {', '.join(targets)}" if len(targets) > 1 else f"broker {targets[0]}"
                raise PlanError(
                    f"partition {partition} needs {wanted} replicas, but only {brokers} can take them: add a broker, "
                    "or reduce the number of replicas with --replication-factor"
                )
            self._vacancies[partition] = [index for index, one in enumerate(slots) if one is None]
        self.replicas[partition] = [-1 if one is None else one for one in slots]
        for broker in slots:
            if broker is not None:
                self._count(partition, broker, 1)

    def _least_useful(self, slots: Sequence[int | None]) -> int:
        """The position of the replica to give up: a vacancy, else one in a rack used twice, else the last."""
        if None in slots:
            return slots.index(None)
        for index in range(len(slots) - 1, 0, -1):
            rest = [one for position, one in enumerate(slots) if position != index]
            if self._spread_of(one for one in rest if one is not None) == self._spread_of(
                one for one in slots if one is not None
            ):
                return index
        return len(slots) - 1

    def _count(self, partition: TopicPartition, broker: int, by: int) -> None:
        self._of_topic[broker, partition.topic] += by
        hosted = self._hosted.setdefault(broker, {})
        if by > 0:
            hosted[partition] = None
        else:
            del hosted[partition]

    def _load(self, broker: int) -> int:
        return len(self._hosted[broker])

    def _spread_of(self, brokers: Iterable[int]) -> int:
        """The number of racks that these brokers are in; 0 if racks do not count. Brokers that are no targets have
        unknown racks."""
        if not self._has_racks:
            return 0
        return len({self._goal.targets.get(broker) for broker in brokers if broker in self._goal.targets})

    # Steps.

    def fill_vacancies(self) -> None:
        for partition, positions in self._vacancies.items():
            replicas = self.replicas[partition]
            for position in positions:
                replicas[position] = self._best_target(partition, replicas)
                self._count(partition, replicas[position], 1)

    def _best_target(self, partition: TopicPartition, replicas: Sequence[int]) -> int:
        racks: Counter[str | None] = Counter()
        if self._has_racks:
            racks.update(self._goal.targets[one] for one in replicas if one in self._goal.targets)
        return min(
            (broker for broker in self._targets if broker not in replicas),
            key=lambda broker: (
                racks[self._goal.targets[broker]],
                self._load(broker),
                self._of_topic[broker, partition.topic],
                broker,
            ),
        )

    def use_more_racks(self) -> None:
        if self._racks < 2:
            return
        for partition, replicas in self.replicas.items():
            # The last replica in a doubled rack goes first, so that the preferred leader stays.
            while self._spread_of(replicas) < min(len(replicas), self._racks):
                used = Counter(self._goal.targets.get(one) for one in replicas)
                doubled = [one for one in replicas if one in self._goal.targets and used[self._goal.targets[one]] > 1]
                if not doubled:
                    break  # the others are on brokers that keep theirs
                rest = [one for one in replicas if one != doubled[-1]]
                self._move(partition, doubled[-1], self._best_target(partition, rest))

    def even_out_replicas(self) -> None:
        while (step := self._next_move()) is not None:
            self._move(*step)

    def _next_move(self) -> tuple[TopicPartition, int, int] | None:
        """From the most to the least loaded broker between which a move is possible and worth it."""
        by_load = sorted(self._targets, key=lambda broker: (self._load(broker), broker))
        for source in reversed(by_load):
            for target in by_load:
                if self._load(source) - self._load(target) < 2:
                    break
                partition = self._movable(source, target)
                if partition is not None:
                    return partition, source, target
        return None

    def _movable(self, source: int, target: int) -> TopicPartition | None:
        """The partition whose move from `source` to `target` evens out its topic most; followers before leaders."""
        best, best_rank = None, (0, 0)
        for partition in self._hosted[source]:
            replicas = self.replicas[partition]
            if target in replicas:
                continue
            if self._has_racks and self._goal.targets[source] != self._goal.targets[target]:
                moved = [target if one == source else one for one in replicas]
                if self._spread_of(moved) < self._spread_of(replicas):
                    continue
            topic = partition.topic
            rank = (self._of_topic[source, topic] - self._of_topic[target, topic], int(replicas[0] != source))
            if best is None or rank > best_rank:
                best, best_rank = partition, rank
        return best

    def _move(self, partition: TopicPartition, source: int, target: int) -> None:
        replicas = self.replicas[partition]
        replicas[replicas.index(source)] = target
        self._count(partition, source, -1)
        self._count(partition, target, 1)

    def even_out_leaders(self) -> None:
        """Without `spread`, only partitions that change anyway get another preferred leader."""
        leaders = _Leaders(self._targets)
        for partition, replicas in self.replicas.items():
            is_free = self._goal.spread or tuple(replicas) != tuple(self._current[partition])
            leaders.add(partition, replicas, is_free=is_free)
        leaders.even_out()


class _Leaders:
    """Who leads what. Broker A can pass the lead to B, if it leads a partition that B replicates."""

    def __init__(self, brokers: Sequence[int]) -> None:
        self._brokers = brokers
        self._count: Counter[int] = Counter()
        self._passable: dict[tuple[int, int], dict[TopicPartition, None]] = {}
        self._replicas: dict[TopicPartition, list[int]] = {}

    def add(self, partition: TopicPartition, replicas: list[int], *, is_free: bool) -> None:
        """The list is reordered later, if it is free."""
        if not replicas:
            return
        self._count[replicas[0]] += 1
        if is_free:
            self._replicas[partition] = replicas
            self._link(partition)

    def _link(self, partition: TopicPartition) -> None:
        first, *others = self._replicas[partition]
        for other in others:
            self._passable.setdefault((first, other), {})[partition] = None

    def _unlink(self, partition: TopicPartition) -> None:
        first, *others = self._replicas[partition]
        for other in others:
            del self._passable[first, other][partition]

    def even_out(self) -> None:
        """Passes leads along a path from a broker with more to one with at least two fewer, while there is one."""
        while (path := self._path()) is not None:
            for source, target in pairwise(path):
                self._pass(next(iter(self._passable[source, target])), source, target)

    def _path(self) -> list[int] | None:
        for source in sorted(self._brokers, key=lambda broker: (-self._count[broker], broker)):
            came_from: dict[int, int | None] = {source: None}
            queue = deque([source])
            while queue:
                broker = queue.popleft()
                if self._count[source] - self._count[broker] >= 2:
                    return _walk_back(came_from, broker)
                for other in self._brokers:
                    if other not in came_from and self._passable.get((broker, other)):
                        came_from[other] = broker
                        queue.append(other)
        return None

    def _pass(self, partition: TopicPartition, source: int, target: int) -> None:
        replicas = self._replicas[partition]
        self._unlink(partition)
        position = replicas.index(target)
        replicas[0], replicas[position] = target, source
        self._link(partition)
        self._count[source] -= 1
        self._count[target] += 1


def _walk_back(came_from: Mapping[int, int | None], end: int) -> list[int]:
    path = [end]
    while (before := came_from[path[-1]]) is not None:
        path.append(before)
    return path[::-1]
