"""A run: clients in processes of their own, which can be killed, paused and replaced; then the verdict.

    run = IsolationRun(bootstrap, directory, seed)
    with run:
        run.let_pass(5.0)
        run.kill_client()
    findings = run.judge(markers)

Leaving the block ends all clients, completes what they prepared and decided, aborts what else they left open and reads
everything. The topics `in` and `out` have to exist, and with `latest` partitions, the compacted topic of that name.
"""

from __future__ import annotations

import logging
import os
import pickle
import random
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from ottla import Admin
from ottla.client.errors import OttlaError
from support.cluster.checker import Place
from support.isolation.anomalies import Finding
from support.isolation.checker import check, in_brief
from support.isolation.client import INPUT, LATEST, OUTPUT, Task, complete, decision_file
from support.isolation.decision_store import DecisionStore
from support.isolation.ending import Records, group_offsets, read_with_confluent, read_with_ottla, settle
from support.isolation.history import TOMBSTONE, History, Observation, Outcome
from support.isolation.libraries import CONFLUENT, OTTLA, OttlaProducer
from support.isolation.recording import Recorded, Recorder

_logger = logging.getLogger(__name__)

TESTS: Final = Path(__file__).resolve().parents[2]
_END_S: Final = 90.0
_LOOK_AGAIN_S: Final = 0.05
_COMPACTED_MIN: Final = 300
"""After so many records there must be something that can be compacted."""


class Client:
    """A process, and those that came before it in its place."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        with Path(f"{self.task.file}.err").open("ab") as errors:
            return subprocess.Popen(self.task.command(), env=environment, stdout=errors, stderr=errors)

    def signal(self, number: int) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)


class IsolationRun:
    """See the module. `writers`, `processors` and `readers` are the libraries of each; preparers use Ottla's."""

    def __init__(
        self,
        bootstrap: str,
        directory: Path,
        seed: int,
        *,
        inputs: int = 3,
        outputs: int = 2,
        latest: int = 0,
        preparers: int = 0,
        writers: Sequence[str] = (CONFLUENT, CONFLUENT),
        processors: Sequence[str] = (CONFLUENT,),
        readers: Sequence[str] = (CONFLUENT,),
        pause_s: float = 0.02,
        isolation_level: str = "read_committed",
    ) -> None:
        self.chance = random.Random(seed)
        self.seed = seed
        self.places = [Place(INPUT, index) for index in range(inputs)]
        self.places += [Place(OUTPUT, index) for index in range(outputs)]
        self.compacted = [Place(LATEST, index) for index in range(latest)]
        self.places += self.compacted
        self.faults: Counter[str] = Counter()
        self.findings: list[Finding] = []
        self.wrong: list[str] = []
        """What is wrong beside the history."""
        self.summary = ""
        self._bootstrap = bootstrap
        self._directory = directory
        self._roles = [
            *(("writer", library) for library in writers),
            *(("preparer", OTTLA) for _ in range(preparers)),
            *(("processor", library) for library in processors),
            *(("reader", library) for library in readers),
        ]
        self._sizes = inputs, outputs, latest
        self._pause_s = pause_s
        self._isolation_level = isolation_level
        self._instances = 0
        self._clients: list[Client] = []
        self._zombies: list[Client] = []
        self._observations: list[Observation] = []
        self._is_over = threading.Event()
        self._observer = threading.Thread(target=self._observe, name="observer of the group", daemon=True)
        self._began_s = 0.0
        self._history: History | None = None

    @property
    def ids(self) -> list[str]:
        """The transactional ids."""
        return [client.task.name for client in self._clients if client.task.role != "reader"]

    # --- life ---------------------------------------------------------------------------------------------------------

    def __enter__(self) -> IsolationRun:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._began_s = time.monotonic()
        for number, (role, library) in enumerate(self._roles):
            self._clients.append(Client(self._task(role, library, f"{role}-{number}")))
        self._observer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        try:
            if kind is None:
                self._finish()
        finally:
            for client in (*self._clients, *self._zombies):
                client.process.kill()
                client.process.wait()
            self._observer.join(_END_S)

    def _task(self, role: str, library: str, name: str) -> Task:
        self._instances += 1
        file = self._directory / f"{name}.{self._instances}.events"
        seed = self.chance.randrange(2**32)
        return Task(
            role,
            library,
            name,
            self._instances,
            seed,
            self._bootstrap,
            str(file),
            *self._sizes,
            pause_s=self._pause_s,
            isolation_level=self._isolation_level,
        )

    def let_pass(self, seconds: float) -> None:
        """Lets the clients work, and starts those again that have ended."""
        deadline_s = time.monotonic() + seconds
        while time.monotonic() < deadline_s:
            self.revive()
            time.sleep(_LOOK_AGAIN_S)

    def wait_for_more(self, count: int) -> None:
        """Until so many more transactions are committed, as far as clients were told."""
        wanted = self.committed + count
        deadline_s = time.monotonic() + _END_S
        while self.committed < wanted:
            self.let_pass(_LOOK_AGAIN_S)
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"no {count} more transactions were committed in {_END_S:.0f} s: {self.report}")

    @property
    def committed(self) -> int:
        files = self._directory.glob("*.events")
        return sum(file.read_bytes().count(b'"committed"') for file in files)

    def revive(self) -> None:
        for index, client in enumerate(self._clients):
            if client.process.poll() is not None:
                self._replace(index)

    def _replace(self, index: int) -> None:
        old = self._clients[index].task
        self._clients[index] = Client(self._task(old.role, old.library, old.name))

    # --- faults of clients --------------------------------------------------------------------------------------------

    def kill_client(self) -> str:
        """kill -9; another one takes its place."""
        self.faults["kill -9 of a client"] += 1
        index = self.chance.randrange(len(self._clients))
        client = self._clients[index]
        client.process.kill()
        client.process.wait()
        self._replace(index)
        return f"kill -9 of {client.task.name}"

    def pause_client(self) -> str:
        """SIGSTOP; another one with the same transactional id takes its place, until `resume_clients`."""
        self.faults["zombie client"] += 1
        index = self.chance.randrange(len(self._clients))
        client = self._clients[index]
        client.signal(signal.SIGSTOP)
        self._zombies.append(client)
        self._replace(index)
        return f"SIGSTOP of {client.task.name}"

    def resume_clients(self) -> None:
        for client in self._zombies:
            client.signal(signal.SIGCONT)

    # --- the end ------------------------------------------------------------------------------------------------------

    def _observe(self) -> None:
        """Fetches the group's offsets again and again."""
        with Admin({"bootstrap.servers": self._bootstrap, "default.api.timeout.ms": 5_000}) as admin:
            while not self._is_over.wait(0.2):
                asked_ns = time.monotonic_ns()
                try:
                    found = group_offsets(admin)
                except OttlaError:
                    continue  # the coordinator is away
                told_ns = time.monotonic_ns()
                self._observations += [Observation(place, offset, asked_ns, told_ns) for place, offset in found.items()]

    def _finish(self) -> None:
        self.resume_clients()
        everyone = [*self._clients, *self._zombies]
        for client in everyone:
            client.signal(signal.SIGTERM)
        deadline_s = time.monotonic() + _END_S
        for client in everyone:
            try:
                client.process.wait(max(0.1, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.wrong.append(f"{client.task.name} did not end in {_END_S:.0f} s")
                client.process.kill()
                client.process.wait()
        decisions = self._complete_decided()
        with Admin({"bootstrap.servers": self._bootstrap, "default.api.timeout.ms": 60_000}) as admin:
            self.wrong += settle(admin, self.places, self.ids, _END_S)
            if self.wrong:
                return
            stored = read_with_confluent(self._bootstrap, self.places, "read_uncommitted", _END_S)
            visible = read_with_confluent(self._bootstrap, self.places, "read_committed", _END_S)
            self._compare("read_uncommitted", stored)
            ours = self._compare("read_committed", visible)
            offsets = group_offsets(admin)
        recorded = Recorded.of(sorted(self._directory.glob("*.events")))
        self._errors = recorded.errors
        self._tombstones = recorded.tombstones
        self._history = History(
            transactions=list(recorded.transactions.values()),
            readers=recorded.readers,
            stored={place: dict(self._named(place, records)) for place, records in stored.items()},
            visible={place: self._named(place, records) for place, records in visible.items()},
            group_offsets=offsets,
            observations=self._observations,
            decisions=decisions,
            compacted=frozenset(self.compacted),
            replicas={"Ottla's consumer": {place: self._named(place, ours[place]) for place in self.compacted}},
        )

    def _complete_decided(self) -> dict[int, bool]:
        """Completes what was decided by preparers that are gone. All decisions."""
        decisions: dict[int, bool] = {}
        for client in self._clients:
            name = client.task.name
            if client.task.role != "preparer":
                continue
            store = DecisionStore(decision_file(self._directory, name))
            self._instances += 1
            store.own(self._instances)
            file = self._directory / f"{name}.{self._instances}.events"
            with Recorder(file, self._instances, name) as recorder:
                for decision in store.unfinished():
                    producer = OttlaProducer(self._bootstrap, name, is_two_phase=True)
                    try:
                        complete(producer, decision, recorder, store)
                    finally:
                        producer.close()
            decisions |= store.all()
        return decisions

    def _named(self, place: Place, records: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """With the values that tombstones stand for."""
        return [
            (offset, self._tombstones.get((place, offset), TOMBSTONE) if value == TOMBSTONE else value)
            for offset, value in records
        ]

    def _compare(self, isolation_level: str, expected: Records) -> Records:
        """What Ottla's consumer reads, which must be what librdkafka's did, but for what the cleaner did meanwhile.

        Every replica cleans its own log: after an election, the new leader may also have more than the last one had.
        What it has is judged with the other replicas.
        """
        ours = read_with_ottla(self._bootstrap, self.places, isolation_level, _END_S)
        for place, records in expected.items():
            had, has = set(records), set(ours[place])
            is_cleaned = place in self.compacted and (has <= had or has >= had)
            if ours[place] != records and not is_cleaned:
                counts = f"{len(ours[place])} records, librdkafka {len(records)}"
                self.wrong.append(f"{place}: with {isolation_level}, Ottla's consumer read {counts}")
        return ours

    def judge(
        self,
        markers: Mapping[Place, frozenset[int]] | None = None,
        replicas: Mapping[str, Mapping[Place, Sequence[tuple[int, int]]]] | None = None,
    ) -> bool:
        """Whether all is well. `replicas` are the compacted partitions as brokers have them. `summary` and `report` say
        more."""
        history = self._history
        if history is not None:
            history.markers = markers
            on_disk = {
                name: {place: self._named(place, found) for place, found in records.items()}
                for name, records in (replicas or {}).items()
            }
            history.replicas = {**history.replicas, **on_disk}
            self.findings = check(history)
            self._check_compaction(history)
            if not any(one.outcome is Outcome.COMMITTED for one in history.transactions):
                self.wrong.append("no transaction was committed")
        self.summary = self._words(history)
        _logger.warning("%s", self.summary)
        is_well = history is not None and not self.findings and not self.wrong
        if not is_well:
            self.saved.write_bytes(pickle.dumps(history))
        return is_well

    @property
    def saved(self) -> Path:
        """The history of a failed run, pickled, to be judged again."""
        return self._directory / "history.pickle"

    def _words(self, history: History | None) -> str:
        lines = [f"OTTLA_SEED={self.seed}, {time.monotonic() - self._began_s:.0f} s, faults: {dict(self.faults)}"]
        if history is not None:
            outcomes = Counter(one.outcome for one in history.transactions)
            counted = ", ".join(f"{outcomes[outcome]} {outcome.value}" for outcome in Outcome)
            processed = sum(1 for one in history.transactions if one.offsets and one.outcome is Outcome.COMMITTED)
            visible, stored = (sum(map(len, each.values())) for each in (history.visible, history.stored))
            lines += [
                f"transactions: {counted}; {processed} of the committed ones with offsets",
                f"visible: {visible} of {stored} records",
                f"reads: {sum(len(reader.events) for reader in history.readers)} by {len(history.readers)} readers",
                f"group offsets fetched: {len(history.observations)}",
            ]
            lines += self._words_of_prepared(history) + self._words_of_compacted(history)
            if hung := self._hung():
                lines.append(f"clients that hung in librdkafka, by call: {dict(hung)}")
        verdict = "PASS" if history is not None and not self.findings and not self.wrong else "FAIL"
        return "\n".join([*lines, f"verdict: {verdict}"])

    def _hung(self) -> Counter[str]:
        """Clients that ended because a call did not return (`libraries.may_hang`), by the call."""
        found: Counter[str] = Counter()
        for file in self._directory.glob("*.err"):
            for trace in file.read_text(encoding="utf-8", errors="replace").split("Timeout (")[1:]:
                calls = re.findall(r"libraries\.py\", line \d+ in (?!_again|<lambda>)(\w+)", trace)
                found[calls[0] if calls else "unknown"] += 1
        return found

    @staticmethod
    def _words_of_prepared(history: History) -> list[str]:
        prepared = [one for one in history.transactions if one.is_prepared]
        if not prepared:
            return []
        commits = sum(history.decisions.values())
        counted = f"{commits} decided to commit, {len(history.decisions) - commits} to abort"
        others = sum(one.ended_by_other for one in prepared)
        return [f"prepared transactions: {len(prepared)}; {counted}; {others} completed by another process"]

    def _words_of_compacted(self, history: History) -> list[str]:
        if not self.compacted:
            return []
        left, stored = self._compacted(history)
        return [f"compacted partitions: {left} records left of {stored}"]

    def _compacted(self, history: History) -> tuple[int, int]:
        """How many records are left of those of which producers were told that they are stored."""
        stored = sum(
            1
            for one in history.transactions
            for write in one.writes
            if write.key is not None and write.offset is not None
        )
        return sum(len(history.stored[place]) for place in self.compacted), stored

    def _check_compaction(self, history: History) -> None:
        left, stored = self._compacted(history)
        if stored > _COMPACTED_MIN and left >= stored:
            self.wrong.append(f"nothing was compacted: {left} records are left of {stored}")

    @property
    def report(self) -> str:
        """Everything that a failed run should tell."""
        errors = Counter(error[:160] for error in getattr(self, "_errors", [])).most_common(15)
        outputs = [
            f"{file.name}: {text[-1500:]}"
            for file in sorted(self._directory.glob("*.err"))
            if (text := file.read_text(encoding="utf-8", errors="replace"))
        ]
        where = f"the history is in {self.saved}"
        pieces = [*self.wrong, in_brief(self.findings), self.summary, where, *(f"{n}x {error}" for error, n in errors)]
        return "\n".join([*pieces, *outputs])
