"""What the demo makes of Spark's results, and what it shows."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from ottla.cli.demo.events import CATALOGUE, Shop
from ottla.cli.demo.screen import screen, summary
from ottla.cli.demo.spark import PipelineState, Sum, lack_of_spark
from ottla.cli.demo.traffic import Traffic


def result(second: int, goods: str, revenue: float, orders: int) -> bytes:
    since = f"2026-11-16T06:28:{second:02}.000Z"
    return json.dumps({"since": since, "goods": goods, "revenue": revenue, "orders": orders}).encode()


def state_of(*results: bytes) -> PipelineState:
    state = PipelineState()
    for one in results:
        state.take(one)
    return state


def shown(state: PipelineState) -> str:
    console = Console(width=120, record=True, file=StringIO())
    console.print(screen(Traffic(), state, "127.0.0.1:9092"))
    return console.export_text()


def test_a_later_result_takes_the_place_of_an_earlier_one() -> None:
    state = state_of(result(10, "pens", 1.5, 1), result(20, "pens", 5, 2), result(10, "pens", 4.5, 3))
    assert state.windows["2026-11-16T06:28:10.000Z"] == {"pens": Sum(4.5, 3)}
    assert state.orders == 5


def test_every_item_is_in_the_catalogue() -> None:
    shop = Shop(seed=1)
    assert {str(shop.order()[0].body["item"]) for _ in range(500)} == set(CATALOGUE)


def test_the_last_windows_are_shown_side_by_side() -> None:
    state = state_of(*(result(10 * number, goods, 100 + number, 1) for number in range(6) for goods in ("ink", "pens")))
    state.progress = "batch 3, 12 rows"
    text = shown(state)
    assert all(moment in text for moment in ("06:28:20", "06:28:50", "batch 3, 12 rows", "105.00", "█"))
    assert "06:28:10" not in text
    assert "ottla consume revenue -b 127.0.0.1:9092" in text


def test_before_there_is_a_result_and_where_there_is_none() -> None:
    assert "Java is starting" in shown(PipelineState())
    without = shown(PipelineState(missing="Spark needs Java 17"))
    assert "Not running: Spark needs Java 17" in without
    assert "ottla consume orders" in without
    assert "it broke" in shown(PipelineState(failure="it broke"))


def test_the_summary_tells_of_spark_only_where_it_did_something() -> None:
    for state, is_told in [(PipelineState(), False), (state_of(result(10, "pens", 1.5, 1)), True)]:
        console = Console(width=120, record=True, file=StringIO())
        console.print(summary(Traffic(), state, 3.0))
        assert ("Spark results in topic" in console.export_text()) is is_told


@pytest.mark.spark
def test_java_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "which has no bin/java" in str(lack_of_spark())
