"""One client of a run, as a process: a writer, a preparer, a processor or a reader, until SIGTERM.

    python -m support.isolation.client '{"role": "writer", …}'

It records what it does (`recording`). It ends with code 0 after SIGTERM, and with code 3 when another client with its
transactional id has taken over.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from ottla.client.errors import FencedError
from support.cluster.checker import Place
from support.isolation.decision_store import Decision, DecisionStore
from support.isolation.history import Outcome
from support.isolation.libraries import (
    FOLLOWERS,
    GROUP_CONSUMERS,
    PRODUCERS,
    VALUE,
    GroupConsumer,
    MustAbortError,
    OttlaProducer,
    TransactionalProducer,
    unpacked,
)
from support.isolation.recording import Recorder

INPUT: Final = "in"
OUTPUT: Final = "out"
LATEST: Final = "latest"
"""The compacted topic."""
GROUP: Final = "processors"
FAILED: Final = 3
_WRITES_MAX: Final = 6
_BATCH_MAX: Final = 10
_ABORTS: Final = 0.15
_SEEKS: Final = 0.002
_KEYS: Final = 12
_TOMBSTONES: Final = 0.15
_TO_LATEST: Final = 0.4
_DIES_UNDECIDED: Final = 0.01
_DIES_DECIDED: Final = 0.04
_TAKES_OVER: Final = 0.5


@dataclass(frozen=True, slots=True)
class Task:
    """What the process is to do. `name` is the transactional id of a producer."""

    role: str
    library: str
    name: str
    instance: int
    seed: int
    bootstrap: str
    file: str
    inputs: int
    outputs: int
    latest: int = 0
    """Partitions of the compacted topic."""
    pause_s: float = 0.02
    """How long it waits between transactions, on average."""
    isolation_level: str = "read_committed"
    """Of a reader."""

    @property
    def input_places(self) -> list[Place]:
        return [Place(INPUT, index) for index in range(self.inputs)]

    @property
    def output_places(self) -> list[Place]:
        return [Place(OUTPUT, index) for index in range(self.outputs)]

    @property
    def latest_places(self) -> list[Place]:
        return [Place(LATEST, index) for index in range(self.latest)]

    def command(self) -> list[str]:
        return [sys.executable, "-m", "support.isolation.client", json.dumps(asdict(self))]


class _Client:
    def __init__(self, task: Task, recorder: Recorder) -> None:
        self.task = task
        self.recorder = recorder
        self.chance = random.Random(task.seed)
        self.is_stopped = False

    def run(self) -> int:
        """The exit code."""
        raise NotImplementedError

    def pause(self) -> None:
        time.sleep(self.chance.expovariate(1 / self.task.pause_s))  # the load, not a wait for something


class _Transactional(_Client):
    """Runs transactions, each with an outcome."""

    def __init__(self, task: Task, recorder: Recorder) -> None:
        super().__init__(task, recorder)
        self.producer = self.new_producer()

    def new_producer(self) -> TransactionalProducer:
        return PRODUCERS[self.task.library](self.task.bootstrap, self.task.name)

    def send(self, number: int, place: Place, source: int | None = None) -> None:
        value = self.recorder.write(number, place, source)
        self.producer.send(place, VALUE.pack(value), lambda offset: self.recorder.stored(value, offset))

    def fill(self, number: int) -> None:
        """A few writes to inputs, and to keys of the compacted topic if there is one."""
        for _ in range(self.chance.randrange(1, _WRITES_MAX + 1)):
            if self.task.latest and self.chance.random() < _TO_LATEST:
                self._send_latest(number)
            else:
                self.send(number, self.chance.choice(self.task.input_places))
            if self.chance.random() < 0.1:
                self.pause()

    def _send_latest(self, number: int) -> None:
        place, key = self.chance.choice(self.task.latest_places), self.chance.randrange(_KEYS)
        is_tombstone = self.chance.random() < _TOMBSTONES
        value = self.recorder.write(number, place, key=key, is_tombstone=is_tombstone)
        self.producer.send(
            place,
            None if is_tombstone else VALUE.pack(value),
            lambda offset: self.recorder.stored(value, offset),
            b"%d" % key,
        )

    def transaction(self, fill: Callable[[int], None], *, number: int) -> bool:
        """Whether it was committed. Raises what the producer does not survive."""
        is_asked = False
        try:
            self.producer.begin()
            fill(number)
            if self.chance.random() < _ABORTS:
                raise MustAbortError("on purpose")
            is_asked = True
            self.recorder.ask(number)
            self.producer.commit()
        except MustAbortError as error:
            self.recorder.complain(error)
            self.producer.abort()
            self.recorder.end(number, Outcome.ABORTED)
            return False
        except BaseException:
            if not is_asked:
                self.recorder.complain("aborted by whoever comes next")
            raise
        self.recorder.end(number, Outcome.COMMITTED)
        return True


class Writer(_Transactional):
    def run(self) -> int:
        self.producer.init()
        while not self.is_stopped:
            self.transaction(self.fill, number=self.recorder.begin())
            self.pause()
        self.producer.close()
        return 0


class Preparer(_Transactional):
    """Two-phase commit: prepares transactions, decides in a database, and completes what those before it prepared and
    decided. It dies now and then between these steps. Only Ottla's library can do this."""

    producer: OttlaProducer

    def __init__(self, task: Task, recorder: Recorder) -> None:
        super().__init__(task, recorder)
        self._store = DecisionStore(decision_file(Path(task.file).parent, task.name))

    def new_producer(self) -> OttlaProducer:
        return OttlaProducer(self.task.bootstrap, self.task.name, is_two_phase=True)

    def run(self) -> int:
        if not self._store.own(self.task.instance):
            return FAILED
        for decision in self._store.unfinished():
            if self.chance.random() < _TAKES_OVER:
                self.producer.take_over()
            complete(self.producer, decision, self.recorder, self._store)
        self.producer.init()
        while not self.is_stopped:
            if not self._transact(self.recorder.begin()):
                return FAILED
            self.pause()
        self.producer.close()
        return 0

    def _transact(self, number: int) -> bool:
        """Whether this process may go on."""
        try:
            self.producer.begin()
            self.fill(number)
            prepared = self.producer.prepare()
        except MustAbortError as error:
            self.recorder.complain(error)
            self.producer.abort()
            self.recorder.end(number, Outcome.ABORTED)
            return True
        self.recorder.prepared(number)
        decision = Decision(number, prepared, self.chance.random() > _ABORTS)
        if decision.commits:
            self.recorder.ask(number)
        self.recorder.flush()
        self._die(_DIES_UNDECIDED)
        if not self._store.decide(self.task.instance, decision):
            self.recorder.complain("another process decides now")
            return False
        self._die(_DIES_DECIDED)
        self.producer.complete(prepared, commit=decision.commits)
        self.recorder.end(number, Outcome.COMMITTED if decision.commits else Outcome.ABORTED)
        self._store.done(number)
        return True

    def _die(self, probability: float) -> None:
        if self.chance.random() < probability:
            os.kill(os.getpid(), signal.SIGKILL)


def decision_file(directory: Path, name: str) -> Path:
    return directory / f"{name}.decisions"


def complete(producer: OttlaProducer, decision: Decision, recorder: Recorder, store: DecisionStore) -> None:
    """Ends a transaction that a process before this one prepared."""
    try:
        producer.complete(decision.prepared, commit=decision.commits)
    except FencedError as error:
        # It was completed, or this is an anomaly: what is visible shows which.
        recorder.complain(repr(error))
    else:
        recorder.end(decision.number, Outcome.COMMITTED if decision.commits else Outcome.ABORTED)
    store.done(decision.number)


class Processor(_Transactional):
    """Writes one output for each input."""

    def __init__(self, task: Task, recorder: Recorder) -> None:
        super().__init__(task, recorder)
        self.consumer: GroupConsumer = GROUP_CONSUMERS[task.library](task.bootstrap, GROUP, INPUT)

    def run(self) -> int:
        self.producer.init()
        while not self.is_stopped:
            records = self.consumer.poll(self.chance.randrange(1, _BATCH_MAX + 1))
            if records and not self._process(records):
                self.consumer.rewind()
        self.consumer.close()
        self.producer.close()
        return 0

    def _process(self, records: Sequence[tuple[Place, int, bytes]]) -> bool:
        number = self.recorder.begin()
        offsets = {place: offset + 1 for place, offset, _ in records}
        for place, offset, value in records:
            self.recorder.consumed(number, place, offset, VALUE.unpack(value)[0])
        for place, offset in offsets.items():
            self.recorder.offset(number, place, offset)

        def fill(number: int) -> None:
            for _, _, value in records:
                self.send(number, self.chance.choice(self.task.output_places), VALUE.unpack(value)[0])
            self.producer.send_offsets(offsets, self.consumer)

        return self.transaction(fill, number=number)


class Follower(_Client):
    def run(self) -> int:
        places = [*self.task.input_places, *self.task.output_places, *self.task.latest_places]
        consumer = FOLLOWERS[self.task.library](self.task.bootstrap, places, self.task.isolation_level)
        positions: dict[Place, int] = {}
        while not self.is_stopped:
            records = consumer.poll()
            now_ns = time.monotonic_ns()
            for place, offset, value in records:
                self.recorder.read(place, offset, unpacked(value), now_ns)
                positions[place] = offset + 1
            if positions and self.chance.random() < _SEEKS:
                place = self.chance.choice(sorted(positions))
                offset = self.chance.randrange(positions[place])
                consumer.seek(place, offset)
                self.recorder.restart(place, offset)
            self.recorder.flush()
        consumer.close()
        return 0


ROLES: Final = {"writer": Writer, "preparer": Preparer, "processor": Processor, "reader": Follower}


def main(arguments: Sequence[str]) -> int:
    task = Task(**json.loads(arguments[0]))
    with Recorder(Path(task.file), task.instance, task.name) as recorder:
        try:
            client = ROLES[task.role](task, recorder)
            signal.signal(signal.SIGTERM, lambda *_: setattr(client, "is_stopped", True))
            return client.run()
        except Exception as error:
            recorder.complain(repr(error))
            return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
