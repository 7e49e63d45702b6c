"""Producer state and leader epochs beside Kafka's own: thousands of random steps, the same answer and state after each.

The steps are drawn here, done to ours, and then given to `java/LogState.java`, which does them to Kafka's classes.

Left out, because no leader lets it into a log: one append of a follower in which a producer's epoch falls and rises
again. Kafka then keeps batches of before the fall, ours does not, however the batches were grouped into appends.
"""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from kafka_artifacts import classpath
from ottla.log.append_origin import AppendOrigin
from ottla.log.errors import LogError, ReusedSequenceError
from ottla.log.leader_epochs import LeaderEpochs
from ottla.log.local_disk import LocalDisk
from ottla.log.producer_snapshot import decode_snapshot
from ottla.log.producer_state import ProducerStates
from ottla.records.batch import BatchHeader, read_header
from ottla.records.control import encode_transaction_marker
from ottla.records.layout import TRANSACTIONAL_BIT

ORACLE = Path(__file__).parent / "java" / "LogState.java"
SEQUENCES = 2**31
REFUSALS = {
    "OutOfOrderSequenceError": "OutOfOrderSequenceException",
    "InvalidProducerEpochError": "InvalidProducerEpochException",
    "InvalidTransactionStateError": "InvalidTxnStateException",
    "CoordinatorFencedError": "TransactionCoordinatorFencedException",
}

pytestmark = pytest.mark.compat


def or_none(value: int | None) -> int:
    return -1 if value is None else value


class Dialogue:
    """Steps, and what ours answered to each."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.answers: list[str] = []

    def say(self, step: str, answer: str, state: str) -> None:
        self.steps.append(step)
        self.answers.append(f"{answer} # {state}")

    def compare(self, home: Path) -> None:
        home.mkdir()
        theirs = subprocess.run(
            ["java", "-Xmx512m", "-cp", classpath("3.9.1"), str(ORACLE), str(home)],
            input="\n".join(self.steps) + "\n",
            check=True,
            capture_output=True,
            text=True,
            timeout=300,
        ).stdout.splitlines()
        assert len(theirs) == len(self.answers)
        for number, (step, ours, their) in enumerate(zip(self.steps, self.answers, theirs, strict=True)):
            assert ours == their, f"step {number}: {step}\nafter {self.steps[max(0, number - 5) : number]}"


class ProducerSteps:
    """Draws and does steps to one partition's producers."""

    def __init__(self, draw: random.Random, dialogue: Dialogue, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.draw, self.dialogue = draw, dialogue
        self.states = ProducerStates(LocalDisk(), folder, expiration_ms=1_000_000)
        self.next_offset = self.high_watermark = 0
        self.now_ms = 100_000
        self.sent: list[list[int]] = []
        self.say("new", "ok")

    def say(self, step: str, answer: str) -> None:
        states = self.states
        parts = [
            f"{states.map_end_offset} {or_none(states.first_unstable_offset)} {or_none(states.first_undecided_offset)} "
            f"{int(states.is_empty)} {int(states.has_late_transaction(1_500_000, 900_000))} "
            f"{or_none(states.snapshots.oldest)} {or_none(states.snapshots.latest)}"
        ]
        for producer_id, entry in sorted(states.entries.items()):
            first_offset = or_none(entry.current_transaction_first_offset)
            batches = [
                f"{batch.first_sequence}-{batch.last_sequence}@{batch.first_offset}-{batch.last_offset}@{batch.timestamp_ms}"
                for batch in entry.batches
            ]
            fields = (producer_id, entry.producer_epoch, entry.coordinator_epoch, entry.last_timestamp_ms, first_offset)
            parts.append(" ".join(map(str, (*fields, *batches))))
        self.dialogue.say(step, answer, " | ".join(parts))

    def step(self) -> None:
        self.now_ms += self.draw.choice([1, 10, 1000, 50_000, 200_000])
        kinds = [self.append, self.end, self.move_watermark, self.snapshot, self.reload, self.tidy]
        self.draw.choices(kinds, [62, 16, 8, 6, 2, 6])[0]()

    def append(self) -> None:
        draw = self.draw
        origin = draw.choices(list(AppendOrigin), [7, 1, 2])[0]
        count = 1 if draw.random() < 0.8 else draw.randint(2, 4)
        if origin is AppendOrigin.CLIENT and self.sent and draw.random() < 0.15:
            batches = [draw.choice(self.sent[-12:]).copy()]
            batches[0][4] = self.next_offset
        else:
            batches = self.batches(origin, count)
        headers = [
            BatchHeader(
                base, 49, 0, 2, 0, TRANSACTIONAL_BIT * txn, delta, time, time, producer, epoch, sequence, delta + 1
            )
            for producer, epoch, sequence, delta, base, time, txn in batches
        ]
        try:
            duplicate = self.states.check(headers, b"", origin)
        except ReusedSequenceError:
            return  # Kafka takes it for a repetition, on purpose we do not; nothing changes on either side
        except LogError as error:
            answer = REFUSALS[type(error).__name__]
        else:
            answer = "ok" if duplicate is None else "duplicate " + " ".join(map(str, duplicate))
            if duplicate is None:
                self.states.update(headers, b"")
                self.states.map_end_offset = self.next_offset = headers[-1].next_offset
                self.sent += batches if origin is AppendOrigin.CLIENT else []
        self.say(f"data {origin.name} " + ";".join(",".join(map(str, batch)) for batch in batches), answer)

    def batches(self, origin: AppendOrigin, count: int) -> list[list[int]]:
        """Mostly what each producer may send next, with now and then a number that is off."""
        draw, offset, batches = self.draw, self.next_offset, []
        latest: dict[int, tuple[int, int]] = {}
        for _ in range(count):
            producer_id = draw.randint(0, 3)
            entry = self.states.entries.get(producer_id)
            epoch = 0 if entry is None else entry.producer_epoch
            last = draw.choice([-1, -1, 5, SEQUENCES - 2]) if entry is None else entry.last_sequence
            epoch, last = latest.get(producer_id, (epoch, last))
            chance = draw.random()
            if chance < 0.09:
                epoch, last = epoch + 1, -1 if chance < 0.06 else last
            elif chance < 0.12 and (origin is not AppendOrigin.REPLICATION or count == 1):
                epoch -= 1
            sequence = (last + 1 + (draw.random() < 0.05)) % SEQUENCES
            if draw.random() < 0.03:
                sequence = draw.choice([0, SEQUENCES - 1, SEQUENCES - 3, 7])
            if origin is not AppendOrigin.CLIENT and draw.random() < 0.03:
                sequence = -1
            is_open = entry is not None and entry.current_transaction_first_offset is not None
            transactional = (is_open or draw.random() < 0.4) ^ (draw.random() < 0.05)
            delta = draw.choice([0, 0, 0, 1, 2, 5])
            batches.append([producer_id, max(epoch, 0), sequence, delta, offset, self.now_ms, int(transactional)])
            latest[producer_id] = max(epoch, 0), -1 if sequence < 0 else (sequence + delta) % SEQUENCES
            offset += delta + 1
        return batches

    def end(self) -> None:
        draw, states = self.draw, self.states
        origin = draw.choices([AppendOrigin.COORDINATOR, AppendOrigin.REPLICATION], [4, 1])[0]
        is_open = [e.producer_id for e in states.entries.values() if e.current_transaction_first_offset is not None]
        producer_id = draw.choice(is_open) if is_open and draw.random() < 0.9 else draw.randint(0, 4)
        entry = states.entries.get(producer_id)
        epochs = (0, 0) if entry is None else (entry.producer_epoch, entry.coordinator_epoch)
        epoch = max(0, epochs[0] + draw.choices([0, 1, -1], [8, 2, 1])[0])
        coordinator_epoch = max(0, epochs[1] + draw.choices([0, 1, -1], [8, 1, 1])[0])
        committed, offset = draw.random() < 0.5, self.next_offset
        data = encode_transaction_marker(
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=committed,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=self.now_ms,
            base_offset=offset,
        )
        headers = [read_header(data)]
        try:
            states.check(headers, data, origin)
        except LogError as error:
            answer = REFUSALS[type(error).__name__]
        else:
            answer = "ok"
            for found in states.update(headers, data):
                answer = f"aborted {found.first_offset} {found.last_offset} {found.last_stable_offset}"
            states.map_end_offset = self.next_offset = offset + 1
        fields = (producer_id, epoch, coordinator_epoch, offset, self.now_ms, int(committed))
        self.say(f"marker {origin.name} " + " ".join(map(str, fields)), answer)

    def move_watermark(self) -> None:
        self.high_watermark = self.draw.randint(min(self.high_watermark, self.next_offset), self.next_offset)
        self.states.on_high_watermark_updated(self.high_watermark)
        self.say(f"watermark {self.high_watermark}", "ok")

    def snapshot(self) -> None:
        self.next_offset += self.draw.choice([0, 0, 0, 3])
        taken = self.states.take_snapshot(self.next_offset)
        self.say(f"snapshot {self.next_offset}", "none" if taken is None else "taken")

    def reload(self) -> None:
        end = self.draw.choice([self.next_offset, self.draw.randint(0, self.next_offset)])
        start = self.draw.randint(0, end) if self.draw.random() < 0.3 else 0
        self.states.truncate_and_reload(start, end, self.now_ms)
        self.say(f"reload {start} {end} {self.now_ms}", "ok")
        self.next_offset = self.states.map_end_offset
        self.sent.clear()

    def tidy(self) -> None:
        draw, states = self.draw, self.states
        offset = draw.randint(0, self.next_offset)
        offsets = list(states.snapshots.offsets) or [0]
        match draw.choice(["start", "expire", "expire", "restart", "before", "before", "mark", "strays"]):
            case "start":
                states.on_log_start_advanced(offset)
                self.next_offset = max(self.next_offset, states.map_end_offset)
                self.say(f"start {offset}", "ok")
            case "expire":
                states.remove_expired(self.now_ms)
                self.say(f"expire {self.now_ms}", "ok")
            case "restart":
                states.truncate_fully_and_start_at(self.next_offset)
                self.say(f"restart {self.next_offset}", "ok")
            case "before":
                states.delete_snapshots_before(offset)
                self.say(f"before {offset}", "ok")
            case "mark":
                chosen = draw.choice(offsets)
                marked = states.snapshots.mark_deleted(chosen)
                self.say(f"mark {chosen}", "none" if marked is None else "marked")
            case "strays":
                bases = sorted(set(draw.choices(offsets, k=3))) if draw.random() < 0.8 else []
                states.remove_stray_snapshots(bases)
                self.say(" ".join(["strays", *([",".join(map(str, bases))] if bases else [])]), "ok")


def test_producers_are_treated_as_by_kafka(tmp_path: Path) -> None:
    dialogue = Dialogue()
    for run in range(60):
        steps = ProducerSteps(random.Random(run), dialogue, tmp_path / "ours" / str(run))
        for _ in range(300):
            steps.step()
    dialogue.compare(tmp_path / "theirs")
    for theirs in (tmp_path / "theirs").rglob("*.*"):
        ours = tmp_path / "ours" / theirs.relative_to(tmp_path / "theirs")
        rows = decode_snapshot(ours, ours.read_bytes())
        assert sorted(decode_snapshot(theirs, theirs.read_bytes())) == sorted(rows)
    assert len(list((tmp_path / "theirs").rglob("*.*"))) == len(list((tmp_path / "ours").rglob("*.*"))) > 0


def test_epochs_are_kept_as_by_kafka(tmp_path: Path) -> None:
    dialogue = Dialogue()
    for run in range(20):
        draw, folder = random.Random(run), tmp_path / "ours" / str(run)
        folder.mkdir(parents=True)
        epochs = LeaderEpochs(LocalDisk(), folder)

        def say(step: str, answer: str = "ok", epochs: LeaderEpochs = epochs) -> None:
            entries = " ".join(f"{epoch}:{offset}" for epoch, offset in epochs.entries)
            dialogue.say(f"epochs-{step}", answer, f"{or_none(epochs.latest_epoch)} {entries}")

        say("new")
        epoch = end = 0
        for _ in range(300):
            asked, offset = draw.randint(-1, epoch + 3), draw.randint(0, end + 2)
            match draw.choices(range(6), [35, 10, 10, 20, 15, 10])[0]:
                case 0:
                    epoch = max(0, epoch + draw.choice([0, 0, 1, 2, -1]))
                    offset = max(0, end + draw.choice([0, 1, 5, -3]))
                    end = max(offset, end)
                    epochs.assign(epoch, offset)
                    say(f"assign {epoch} {offset}")
                case 1:
                    epochs.truncate_from_end(offset, write=False)
                    say(f"cut-end {offset}")
                case 2:
                    epochs.truncate_from_start(offset, write=False)
                    say(f"cut-start {offset}")
                case 3:
                    found = epochs.end_offset_for(asked, end)
                    say(f"end-of {asked} {end}", f"{found[0]} {found[1]}")
                case 4:
                    say(f"at {offset}", str(or_none(epochs.epoch_for_offset(offset))))
                case 5:
                    around = or_none(epochs.previous_epoch(asked)), or_none(epochs.next_epoch(asked))
                    say(f"around {asked}", f"{around[0]} {around[1]}")
    dialogue.compare(tmp_path / "theirs")
    for theirs in (tmp_path / "theirs").rglob("leader-epoch-checkpoint"):
        ours = tmp_path / "ours" / theirs.relative_to(tmp_path / "theirs")
        assert theirs.read_bytes() == ours.read_bytes()
