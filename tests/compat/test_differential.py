"""A slice of the differential fuzzer: the same dialogues each time, beside Kafka 4.3.1 and, fewer, beside 3.9.1."""

from __future__ import annotations

from pathlib import Path

import pytest

from differential import peers
from differential.run import Options, run

pytestmark = pytest.mark.compat

SEED = 15
SECONDS = 90.0
"""At the most: a machine that is slow plays fewer dialogues."""


@pytest.mark.parametrize(("version", "dialogues"), [("4.3.1", 60), ("3.9.1", 30)])
def test_brokers_answer_alike(tmp_path: Path, version: str, dialogues: int) -> None:
    said: list[str] = []
    with peers.running(tmp_path, version) as both:
        options = Options(seed=SEED, seconds=SECONDS, dialogues=dialogues, restarts=0, keep=tmp_path / "found")
        summary = run(both, options, said.append)
    assert not summary.found, "".join(said) + summary.text()
    assert sum(summary.asked.values()) > dialogues
