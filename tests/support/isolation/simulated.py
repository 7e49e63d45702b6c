"""A history of a small simulated Kafka that makes no mistakes: what the checker must let pass, and tests then spoil."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from support.cluster.checker import Place
from support.isolation.history import (
    History,
    Observation,
    Outcome,
    Read,
    Reader,
    Restart,
    Transaction,
    Write,
)

_INPUTS = tuple(Place("in", index) for index in range(2))
_OUTPUTS = tuple(Place("out", index) for index in range(2))
_LATEST = Place("latest", 0)
_KEYS = 3
_FIRST_VALUE = 1000


@dataclass
class _Log:
    """Data and markers by offset; which transactions are open."""

    records: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Offset to value and number of the transaction."""
    markers: set[int] = field(default_factory=set)
    end: int = 0
    first: dict[int, int] = field(default_factory=dict)
    """Where open transactions begin."""

    def append(self, value: int, transaction: int) -> int:
        self.records[self.end] = (value, transaction)
        self.first.setdefault(transaction, self.end)
        self.end += 1
        return self.end - 1

    def mark(self, transaction: int) -> None:
        if transaction in self.first:
            self.markers.add(self.end)
            self.end += 1
            del self.first[transaction]

    @property
    def stable_end(self) -> int:
        return min(self.first.values(), default=self.end)


class SimulatedKafka:
    """Run `steps` of its clients, then take the `history`."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._logs = {place: _Log() for place in (*_INPUTS, *_OUTPUTS, _LATEST)}
        self._now_ns = 0
        self._value = _FIRST_VALUE
        self._transactions: list[Transaction] = []
        self._committed: set[int] = set()
        self._open: dict[str, Transaction | None] = dict.fromkeys(
            ("writer-1", "writer-2", "writer-3", "preparer", "processor")
        )
        self._decisions: dict[int, bool] = {}
        self._group: dict[Place, int] = {}
        self._observations: list[Observation] = []
        self._readers = [Reader("reader-1"), Reader("reader-2")]
        self._positions: list[dict[Place, int]] = [{}, {}]

    def _tick(self) -> int:
        self._now_ns += 1
        return self._now_ns

    def run(self, steps: int) -> None:
        for _ in range(steps):
            chosen = self._chance.choice([*self._open, *self._open, "reader", "observer"])
            if chosen == "reader":
                self._read()
            elif chosen == "observer":
                self._observe()
            else:
                self._produce(chosen)
        for producer, one in self._open.items():
            if one is not None:
                self._end(producer, one)

    # --- clients ------------------------------------------------------------------------------------------------------

    def _produce(self, producer: str) -> None:
        one = self._open[producer]
        if one is None:
            self._open[producer] = self._begin(producer)
        elif len(one.writes) >= 1 and self._chance.random() < 0.4:
            self._end(producer, one)
        elif producer == "processor":
            self._process(one)
        else:
            self._write(one, self._chance.choice((*_INPUTS, _LATEST)))

    def _begin(self, producer: str) -> Transaction:
        one = Transaction(len(self._transactions), producer, began_ns=self._tick())
        self._transactions.append(one)
        return one

    def _write(self, one: Transaction, place: Place, source: int | None = None) -> None:
        self._value += 1
        offset = self._logs[place].append(self._value, one.number)
        is_told = place == _LATEST or self._chance.random() < 0.9
        write = Write(place, self._value, offset if is_told else None, source)
        if place == _LATEST:
            write = write._replace(key=self._chance.randrange(_KEYS), is_tombstone=self._chance.random() < 0.2)
        one.writes.append(write)

    def _process(self, one: Transaction) -> None:
        place = self._chance.choice([place for place in _INPUTS if place not in one.offsets] or [None])
        if place is None:
            return
        position = self._group.get(place, 0)
        found = self._visible(place, position, self._chance.randrange(1, 4))
        for offset, value in found:
            one.reads.append(Read(place, offset, value, self._tick()))
            self._write(one, self._chance.choice(_OUTPUTS), value)
        if found:
            one.offsets[place] = found[-1][0] + 1

    def _end(self, producer: str, one: Transaction) -> None:
        self._open[producer] = None
        if producer == "preparer":
            self._prepare(one)
            return
        fate = self._chance.choice(["commit", "commit", "abort", "crash", "unclear commit", "unclear abort"])
        if "commit" in fate or fate == "unclear abort":
            one.asked_ns = self._tick()
        if fate.endswith("commit"):
            self._committed.add(one.number)
            self._group.update(one.offsets)
        for log in self._logs.values():
            log.mark(one.number)
        if fate in ("commit", "abort"):
            one.ended_ns = self._tick()
        if fate == "commit":
            one.outcome = Outcome.COMMITTED
        elif fate.startswith("unclear"):
            one.outcome = Outcome.UNKNOWN

    def _prepare(self, one: Transaction) -> None:
        """Whoever completes it, if anybody, does what was decided; else it is aborted."""
        one.is_prepared = True
        decision = self._chance.choice([True, True, False, None])
        if decision is not None:
            self._decisions[one.number] = decision
        if decision is not False:
            one.asked_ns = self._tick()
            one.outcome = Outcome.UNKNOWN
        if decision:
            self._committed.add(one.number)
        for log in self._logs.values():
            log.mark(one.number)
        if decision is not None and self._chance.random() < 0.8:
            one.ended_ns = self._tick()
            one.outcome = Outcome.COMMITTED if decision else Outcome.ABORTED

    def _read(self) -> None:
        index = self._chance.randrange(len(self._readers))
        reader, positions = self._readers[index], self._positions[index]
        place = self._chance.choice(list(self._logs))
        if self._chance.random() < 0.1:
            positions[place] = self._chance.randrange(self._logs[place].end + 1)
            reader.events.append(Restart(place, positions[place]))
        now_ns = self._tick()
        for offset, value in self._visible(place, positions.get(place, 0), self._chance.randrange(1, 6)):
            reader.events.append(Read(place, offset, value, now_ns))
            positions[place] = offset + 1

    def _observe(self) -> None:
        asked_ns = self._tick()
        for place, offset in self._group.items():
            self._observations.append(Observation(place, offset, asked_ns, self._tick()))

    # --- what there is ------------------------------------------------------------------------------------------------

    def _visible(self, place: Place, start: int, most: int) -> list[tuple[int, int]]:
        log = self._logs[place]
        found = [
            (offset, value)
            for offset, (value, transaction) in log.records.items()
            if start <= offset < log.stable_end and transaction in self._committed
        ]
        return found[:most]

    def _compacted(self) -> list[tuple[int, int]]:
        """What a cleaner may leave: of each key the last committed value, and some of those before it; if the last one
        is a tombstone, possibly nothing."""
        writes = {write.value: write for one in self._transactions for write in one.writes}
        by_key: dict[int | None, list[tuple[int, int]]] = {}
        for offset, value in self._visible(_LATEST, 0, self._logs[_LATEST].end):
            by_key.setdefault(writes[value].key, []).append((offset, value))
        left = []
        for records in by_key.values():
            if writes[records[-1][1]].is_tombstone and self._chance.random() < 0.5:
                continue
            left += [records[-1], *(record for record in records[:-1] if self._chance.random() < 0.3)]
        return sorted(left)

    def history(self) -> History:
        compacted = self._compacted()
        return History(
            transactions=self._transactions,
            readers=self._readers,
            stored={
                place: {offset: value for offset, (value, _) in log.records.items()}
                for place, log in self._logs.items()
            },
            visible={place: self._visible(place, 0, log.end) for place, log in self._logs.items()}
            | {_LATEST: compacted},
            compacted=frozenset({_LATEST}),
            replicas={"broker 1": {_LATEST: self._compacted()}},
            decisions=self._decisions,
            markers={place: frozenset(log.markers) for place, log in self._logs.items()},
            group_offsets=dict(self._group),
            observations=self._observations,
        )


def simulated_history(chance: random.Random, steps: int) -> History:
    kafka = SimulatedKafka(chance)
    kafka.run(steps)
    return kafka.history()
