"""One client of a run, as a process: a writer, a processor or a reader, until SIGTERM.

    python -m support.isolation.client '{"role": "writer", …}'

It records what it does (`recording`). It ends with code 0 after SIGTERM, and with code 3 when another client with its
transactional id has taken over.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from support.cluster.checker import Place
from support.isolation.history import Outcome
from support.isolation.libraries import (
    FOLLOWERS,
    GROUP_CONSUMERS,
    PRODUCERS,
    VALUE,
    GroupConsumer,
    MustAbortError,
    TransactionalProducer,
)
from support.isolation.recording import Recorder

INPUT: Final = "in"
OUTPUT: Final = "out"
GROUP: Final = "processors"
FAILED: Final = 3
_WRITES_MAX: Final = 6
_BATCH_MAX: Final = 10
_ABORTS: Final = 0.15
_SEEKS: Final = 0.002


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
        self.producer: TransactionalProducer = PRODUCERS[task.library](task.bootstrap, task.name)

    def send(self, number: int, place: Place, source: int | None = None) -> None:
        value = self.recorder.write(number, place, source)
        self.producer.send(place, VALUE.pack(value), lambda offset: self.recorder.stored(value, offset))

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
            self.transaction(self._fill, number=self.recorder.begin())
            self.pause()
        self.producer.close()
        return 0

    def _fill(self, number: int) -> None:
        for _ in range(self.chance.randrange(1, _WRITES_MAX + 1)):
            self.send(number, self.chance.choice(self.task.input_places))
            if self.chance.random() < 0.1:
                self.pause()


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
        places = [*self.task.input_places, *self.task.output_places]
        consumer = FOLLOWERS[self.task.library](self.task.bootstrap, places, self.task.isolation_level)
        positions: dict[Place, int] = {}
        while not self.is_stopped:
            records = consumer.poll()
            now_ns = time.monotonic_ns()
            for place, offset, value in records:
                self.recorder.read(place, offset, VALUE.unpack(value)[0], now_ns)
                positions[place] = offset + 1
            if positions and self.chance.random() < _SEEKS:
                place = self.chance.choice(sorted(positions))
                offset = self.chance.randrange(positions[place])
                consumer.seek(place, offset)
                self.recorder.restart(place, offset)
            self.recorder.flush()
        consumer.close()
        return 0


ROLES: Final = {"writer": Writer, "processor": Processor, "reader": Follower}


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
