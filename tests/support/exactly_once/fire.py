"""Kills tasks, workers, drivers and brokers of a query at random, starts them again, and looks what came out."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ottla import Admin, Consumer, Producer, TopicPartition
from ottla.client.administer import NewTopic, TransactionState
from ottla.testing.cluster import Cluster
from support.waiting import wait_until

COMMITS = "__ottla_spark_commits"
_MOMENT_S = 10.0
SETTINGS = {"acks": "all", "delivery.timeout.ms": 240_000}
_EXECUTOR = "CoarseGrainedExecutorBackend"
_TESTS = Path(__file__).parents[2]
"""Where the process of the query finds the code of tests."""
WORKERS = ("ottla.spark.daemon", "pyspark.daemon")


class Job:
    """The process of the query. It is started again whenever it has ended."""

    def __init__(self, program: str, given: Mapping[str, object], directory: Path) -> None:
        """`program`: a module."""
        self._program = program
        self._given = dict(given)
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def ensure(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self.starts += 1
            started = self._directory / f"started-{self.starts}"
            log = (self._directory / f"job-{self.starts}.log").open("wb")
            command = [sys.executable, "-m", self._program]
            argument = json.dumps({**self._given, "started": str(started), "start": self.starts})
            paths = os.pathsep.join(filter(None, (str(_TESTS), os.environ.get("PYTHONPATH"))))
            self._process = subprocess.Popen(
                [*command, argument],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": paths},
            )
            log.close()

    def is_up(self) -> bool:
        """Whether the query was started; starts the process if it has ended."""
        self.ensure()
        return (self._directory / f"started-{self.starts}").exists()

    def kill(self) -> None:
        """The driver with all of its processes, as by `kill -9`."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    @property
    def sessions(self) -> list[int]:
        """The process, which leads a session of processes."""
        return [] if self._process is None else [self._process.pid]

    def told(self) -> str:
        return (self._directory / f"job-{self.starts}.log").read_text(errors="replace")[-4000:]


def kill_one(found: Sequence[int], dice: random.Random) -> bool:
    if not found:
        return False
    with suppress(ProcessLookupError):
        os.kill(dice.choice(found), signal.SIGKILL)
    return True


def python_workers(sessions: Sequence[int]) -> list[int]:
    """Python processes of these sessions: of a task, of a plan, or the one that commits; not the daemons that fork
    them."""
    found = {process: parent for process, parent, command in _processes(sessions) if _is_daemon(command)}
    return [process for process, parent in found.items() if parent in found]


def executors(sessions: Sequence[int]) -> list[int]:
    return [process for process, _, command in _processes(sessions) if _EXECUTOR in command]


def _is_daemon(command: str) -> bool:
    return any(one in command for one in WORKERS)


def _processes(sessions: Sequence[int]) -> Iterator[tuple[int, int, str]]:
    """Process, parent and command line."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, ValueError):
                text = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(text[3]) in sessions:
                    command = (entry / "cmdline").read_bytes().decode(errors="replace")
                    yield int(entry.name), int(text[1]), command


@dataclass
class Story:
    """What happened, in numbers."""

    kills: Counter[str] = field(default_factory=Counter)
    batches: int = 0
    starts: int = 0
    seconds: float = 0.0
    within: int = 0
    """Kills while a transaction of the sink was open, or rows of a batch were there that was not complete."""
    aborted: int = 0
    """Records that are in the target and were never visible."""

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kills.items()))
        return (
            f"{sum(self.kills.values())} kills ({kinds}; {self.within} within writes); "
            f"{self.starts} starts of the query, {self.batches} batches, "
            f"{self.aborted} records aborted, {self.seconds:.0f} s"
        )


class Fire(ABC):
    """One query, and what is done to it."""

    FIRST = 2000
    """How many records are sent before anything is killed."""
    MORE = 400
    """How many before each kill."""
    PATIENCE_S = 240.0
    PARTITIONS = 4
    """Of each topic."""

    def __init__(
        self,
        cluster: Cluster,
        directory: Path,
        seed: int,
        program: str,
        given: Mapping[str, object],
        sessions: Sequence[int] = (),
    ) -> None:
        """`sessions`: of processes that work for the query and are not its own."""
        self._cluster = cluster
        self._sessions = sessions
        self._dice = random.Random(seed)
        self._orders = directory / "orders"
        self._orders.mkdir(parents=True)
        self._checkpoint = directory / "checkpoint"
        # __transaction_state is created at first use, and needs all brokers for that, as in Kafka.
        with Producer(bootstrap_servers=cluster.bootstrap, transactional_id="first") as producer:
            producer.init_transactions()
        self.story = Story()
        places = {"bootstrap": cluster.bootstrap, "checkpoint": str(self._checkpoint), "orders": str(self._orders)}
        self.job = Job(program, {**places, **given}, directory)

    @abstractmethod
    def send(self, count: int) -> None:
        """That many new records for the query."""

    @abstractmethod
    def _settle(self) -> None:
        """Until all results are there, in peace."""

    def _done(self) -> int:
        """The last batch in the checkpoint."""
        commits = self._checkpoint / "commits"
        return max((int(one.name) for one in commits.glob("[0-9]*")), default=-1) if commits.is_dir() else -1

    def advance(self, batches: int) -> None:
        """Until the query has done some more. It may end in the meantime, of what was done to it."""
        wanted = self._done() + batches

        def look() -> bool:
            self.job.ensure()
            return self._done() >= wanted

        wait_until(look, f"batch {wanted} of the query\n{self.last_words()}", self.PATIENCE_S)

    def last_words(self) -> str:
        return self.job.told() if self.job.starts else ""

    def burn(self, kills: int, kinds: Sequence[str]) -> None:
        begun_s = time.monotonic()
        down: int | None = None
        round_: list[str] = []
        self.send(self.FIRST)
        self.advance(1)  # the commit topic is created with as many replicas as there are brokers, too
        for number in range(kills):
            self.advance(self._dice.choice((0, 1, 1, 2)))
            self.send(self.MORE)
            wait_until(self.job.is_up, "a start of the query", self.PATIENCE_S)
            if number % len(kinds) == 0:
                round_ = self._dice.sample(kinds, len(kinds))
            kind = round_[number % len(kinds)]
            self._wait_for_the_moment(kind)
            if kind == "driver":
                self.job.kill()
            elif kind in ("worker", "executor"):
                find = python_workers if kind == "worker" else executors
                if not kill_one(find([*self.job.sessions, *self._sessions]), self._dice):
                    kind = "driver"
                    self.job.kill()
            elif kind in ("raise", "die"):
                (self._orders / f"{kind}-{number}").touch()
            elif kind == "broker":
                if down is not None:
                    self._cluster.brokers[down].start()
                down = self._dice.choice(sorted(self._cluster.brokers))
                self._cluster.brokers[down].kill()
            self.story.kills[kind] += 1
            if down is not None and kind != "broker" and self._dice.random() < 0.6:
                self._cluster.brokers[down].start()
                down = None
        if down is not None:
            self._cluster.brokers[down].start()
        for order in self._orders.iterdir():
            order.unlink()
            self.story.kills[order.name.partition("-")[0]] -= 1
        self._settle()
        self.story.starts, self.story.batches = self.job.starts, self._done() + 1
        self.story.seconds = time.monotonic() - begun_s

    def _wait_for_the_moment(self, kind: str) -> None:
        """In the middle of something: for processes of the sink often while a batch is written, prepared or
        committed."""
        if kind in ("driver", "worker", "executor") and self._dice.random() < 0.75:
            self._wait_for_a_write(time.monotonic() + _MOMENT_S)
        else:
            time.sleep(self._dice.random() * 2)

    def _wait_for_a_write(self, deadline_s: float) -> None:
        with Admin(bootstrap_servers=self._cluster.bootstrap) as admin:
            while time.monotonic() < deadline_s:
                self.job.ensure()
                listed = admin.list_transactions(states=[TransactionState.ONGOING])
                if any(self._is_of_sink(one.transactional_id) for one in listed):
                    self.story.within += 1
                    break
        time.sleep(self._dice.random() * 0.05)

    @staticmethod
    def _is_of_sink(transactional_id: str) -> bool:
        return transactional_id.startswith("ottla-spark/")

    def end(self) -> None:
        """Ends the query, which must have left nothing open."""
        with Admin(bootstrap_servers=self._cluster.bootstrap) as admin:
            open_ones = admin.list_transactions(states=[TransactionState.ONGOING])
            described = admin.describe_topics([COMMITS])[COMMITS]
        self.job.kill()
        assert {len(partition.replicas) for partition in described.partitions} == {3}
        assert open_ones == [] or all(one.transactional_id.endswith("/log") for one in open_ones), open_ones

    def values(self, topic: str, isolation: str = "read_committed") -> list[tuple[bytes | None, bytes | None]]:
        """Keys and values of what is in a topic, in the order of each partition."""
        partitions = [TopicPartition(topic, index) for index in range(self.PARTITIONS)]
        with Consumer(bootstrap_servers=self._cluster.bootstrap, isolation_level=isolation) as consumer:
            ends = consumer.end_offsets(partitions)
            consumer.assign(partitions)
            for partition in partitions:
                consumer.seek(partition, 0, until=ends[partition])
            return [(record.key, record.value) for record in consumer]


class FireOfIds(Fire):
    """A query from topic to topic, which sees each id twice and writes it once."""

    def __init__(
        self,
        cluster: Cluster,
        directory: Path,
        seed: int,
        *,
        exactly_once: bool,
        master: str = "local[2,4]",
        conf: Mapping[str, str] | None = None,
        sessions: Sequence[int] = (),
    ) -> None:
        name = f"{'exact' if exactly_once else 'plain'}-{seed}-{master.partition(':')[0].partition('[')[0]}"
        self._source, self._target = f"{name}-source", f"{name}-target"
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(one, self.PARTITIONS, 3) for one in (self._source, self._target)])
        self._sent = 0
        self._is_exact = exactly_once
        given = {
            "source": self._source,
            "target": self._target,
            "exactly_once": exactly_once,
            "master": master,
            "conf": dict(conf or {}),
            "per_batch": 400,
        }
        super().__init__(cluster, directory, seed, "support.exactly_once.job", given, sessions)

    def _wait_for_a_write(self, deadline_s: float) -> None:
        """Without transactions: until there are new rows of a batch that is not in the checkpoint."""
        if self._is_exact:
            return super()._wait_for_a_write(deadline_s)
        with Consumer(bootstrap_servers=self._cluster.bootstrap) as consumer:
            done, ends = -1, self._ends(consumer)
            while time.monotonic() < deadline_s:
                self.job.ensure()
                before, ends = ends, self._ends(consumer)
                is_same, done = done == self._done(), self._done()
                if is_same and ends != before:
                    self.story.within += 1
                    break
        return None

    def _ends(self, consumer: Consumer[bytes | None, bytes | None]) -> Mapping[TopicPartition, int]:
        return consumer.end_offsets([TopicPartition(self._target, index) for index in range(self.PARTITIONS)])

    def send(self, count: int) -> None:
        """Ids that are new, each twice, the second time perhaps much later."""
        ids = [*range(self._sent, self._sent + count), *self._dice.choices(range(self._sent + count), k=count)]
        self._dice.shuffle(ids)
        self._sent += count
        with Producer({"bootstrap.servers": self._cluster.bootstrap, **SETTINGS}) as producer:
            for one in ids:
                producer.send(self._source, b"%d" % one)

    def _settle(self) -> None:
        """Until all ids are there, in peace, and the last batch is in the checkpoint."""

        def is_done() -> bool:
            self.job.ensure()
            if len(self.visible()) < self._sent:
                time.sleep(0.5)
                return False
            return True

        wait_until(is_done, f"all {self._sent} ids\n{self.last_words()}", self.PATIENCE_S)
        self.send(10)
        wait_until(is_done, f"all {self._sent} ids\n{self.last_words()}", self.PATIENCE_S)
        self.advance(0)

    def visible(self) -> Counter[int]:
        return self._read("read_committed")

    def _read(self, isolation: str) -> Counter[int]:
        return Counter(int(value or b"-1") for _, value in self.values(self._target, isolation))

    def result(self) -> Counter[int]:
        """What is visible exactly once, when nothing is open any more."""
        self.end()
        visible = self.visible()
        self.story.aborted = self._read("read_uncommitted").total() - visible.total()
        return visible

    @property
    def expected(self) -> Counter[int]:
        return Counter(range(self._sent))
