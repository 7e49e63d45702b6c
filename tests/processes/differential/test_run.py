"""Whole runs, with one Ottla broker on both sides: no difference, unless one is made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from differential import dialogue, player, side
from differential.answers import tree_of
from differential.peers import SETTINGS, await_service
from differential.run import Options, run
from differential.symbols import Symbols
from ottla.testing.broker import Broker
from ottla.wire.schema import Response


class Twice:
    """The same broker on both sides."""

    version = "4.3.1"

    def __init__(self, broker: Broker) -> None:
        self.ports = (broker.port, broker.port)
        self._broker = broker

    def restart(self) -> None:
        self._broker.restart()
        await_service(self._broker.port)


@pytest.fixture(scope="module")
def both() -> Iterator[Twice]:
    with Broker(overrides=SETTINGS) as broker:
        await_service(broker.port)
        yield Twice(broker)


def test_a_broker_does_not_differ_from_itself(both: Twice) -> None:
    said: list[str] = []
    summary = run(both, Options(seed=1, seconds=60, dialogues=12, restarts=0), said.append)
    assert summary.found == {}
    assert summary.problems == {}
    assert summary.dialogues == 12
    assert sum(summary.asked.values()) > 100
    assert "No unexplained difference." in summary.text()
    assert "Seed 1" in said[0]


def test_a_fault_is_found_shrunk_and_kept(both: Twice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(api: str, version: int, answer: Response, symbols: Symbols) -> dict[str, Any]:
        tree = tree_of(api, version, answer, symbols)
        if api == "ListOffsets" and symbols.prefix.endswith("k"):
            for topic in tree["topics"]:
                for each in topic["partitions"]:
                    each["error_code"] += 1
        return tree

    monkeypatch.setattr(side, "tree_of", faulty)
    said: list[str] = []
    options = Options(seed=1, seconds=60, dialogues=12, restarts=0, theme="records", keep=tmp_path)
    summary = run(both, options, said.append)
    assert summary.found
    assert all(found.difference.api == "ListOffsets" for found in summary.found.values())
    first = next(iter(summary.found.values()))
    assert len(first.dialogue.steps) <= 2
    assert any("DIFFERENCE 1" in line for line in said)
    kept = [dialogue.load(path) for path in tmp_path.iterdir()]
    assert first.dialogue in kept


def test_without_an_answer_the_log_tells_what_was_taken(both: Twice) -> None:
    def produce(*batches: dict[str, Any]) -> dict[str, Any]:
        data = [{"index": index, "records": [batch]} for index, batch in enumerate(batches)]
        topics = [{"name": "$topic:0", "topic_id": "$id:0", "partition_data": data}]
        return {"api": "Produce", "version": 9, "request": {"acks": 0, "timeout_ms": 9, "topic_data": topics}}

    topic = {"name": "$topic:0", "num_partitions": 2, "replication_factor": 1}
    steps = (
        {"api": "CreateTopics", "version": 5, "request": {"topics": [topic], "timeout_ms": 9999}},
        produce({"n": 3}, {"n": 2}),
        produce({"n": 4}, {"n": 1, "damage": "crc"}),
    )
    played = player.play(dialogue.Dialogue(steps), both.ports, lambda _: None, both.restart)
    assert (played.problem, played.difference) == (None, None)
    states = [
        (each.ours["connection"], [end["end"] for end in each.ours["log_ends"]]) for each in played.transcript[1:]
    ]
    assert states == [("open", [3, 2]), ("closed", [7, 2])]
