"""The pages of benches: of those that stand beside one peer, and of clients among several."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from bench.clients.lines import LINES, Figures
from bench.clients.report import Result, page_of
from bench.page import Page, Run
from rich.console import Console

MACHINE: dict[str, str | int | float] = {"cpu": "any", "cores": 2, "memory_gb": 8, "kernel": "6", "load": 0.1}


@pytest.fixture
def page() -> Page:
    line = next(line for line in LINES if line.key == "produce-100")
    rates = dict.fromkeys(line.loads, 100.0) | {"ottla": 120.0, "ottla, Arrow": 900.0, "aiokafka": 10.0}
    rounds: dict[str, list[Figures]] = {
        client: [{"records_per_s": rate * factor} for factor in (1, 0.5, 3)] for client, rate in rates.items()
    }
    run = Run("command", "today", 3, MACHINE, {"ottla": "1"})
    return page_of([Result(line, rounds)], "a broker", ["A note."], run)


def test_medians_are_told_beside_the_best_peer(page: Page, tmp_path: Path) -> None:
    page.save(tmp_path)
    text = (tmp_path / "clients.md").read_text(encoding="utf-8")
    assert "| produce 100 B | ottla | 120 | records/s |  |  | 1.20x | ≥ 1.5x: MISSED |" in text
    assert "| produce 100 B | ottla, Arrow | 900 | records/s |  |  | 9.00x | ≥ 1.5x: met |" in text
    assert "| produce 100 B | aiokafka | 10.000 | records/s |  |  | 0.10x |  |" in text
    assert "today, 3 rounds, on any, 2 cores" in text
    saved = json.loads((tmp_path / "clients.json").read_text(encoding="utf-8"))
    assert (saved["broker"], saved["versions"]) == ("a broker", {"ottla": "1"})
    assert (tmp_path / "clients.png").stat().st_size > 1000


def test_a_section_names_its_line_once(page: Page) -> None:
    console = Console(file=io.StringIO(), width=150)
    page.show(console)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert shown.count("produce 100 B") == 1
    assert "kafka-python" in shown
