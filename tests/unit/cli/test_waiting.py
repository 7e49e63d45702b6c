"""A command that waits says why."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.cli import waiting
from ottla.cli.consume import waiting_hint
from ottla.cli.produce import _progress
from ottla.cli.waiting import Patience, Progress, telling_why
from ottla.client.produce import AsyncProducer


def test_a_reason_is_told_after_a_while_without_progress_and_then_now_and_again() -> None:
    patience, told = Patience(after_s=3, again_s=10), []
    for second in range(30):
        told += [(second, patience.look(second, Progress(7, "no broker")))]
    assert [(second, what) for second, what in told if what] == [(3, "no broker"), (13, "no broker"), (23, "no broker")]


def test_a_command_that_makes_progress_or_does_not_wait_prints_nothing() -> None:
    patience = Patience(after_s=3, again_s=10)
    assert not [what for second in range(30) if (what := patience.look(second, Progress(second, "busy")))]
    assert not [what for second in range(30) if (what := patience.look(second, Progress(0, None)))]
    assert patience.look(31, Progress(0, "now")) is None
    assert patience.look(33, Progress(0, "now")) == "now"


def test_the_reason_comes_to_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waiting, "_LOOK_EVERY_S", 0)
    monkeypatch.setattr(waiting, "Patience", lambda: Patience(after_s=0))

    async def work() -> None:
        looked = asyncio.Event()

        def progress() -> Progress:
            if asyncio.current_task() is not None:
                calls.append(1)
            if len(calls) > 2:
                looked.set()
            return Progress(0, "nothing listens there.")

        calls: list[int] = []
        async with telling_why(progress):
            await asyncio.wait_for(looked.wait(), 30)

    asyncio.run(work())
    assert capsys.readouterr().err == "Waiting: nothing listens there.\n"


@pytest.mark.parametrize(
    ("unfinished", "hindrance", "reason"),
    [
        (0, None, None),
        (2, None, "the broker has not acknowledged the last records yet"),
        (2, ConnectionError("nothing listens there"), "records have not been delivered yet: nothing listens there"),
    ],
)
def test_what_a_producer_waits_for(unfinished: int, hindrance: Exception | None, reason: str | None) -> None:
    counts = {"records": 5, "batches_unfinished": unfinished}
    producer = SimpleNamespace(metrics=lambda: counts, hindrance=hindrance)
    assert _progress(cast("AsyncProducer", producer)).reason == reason


def test_a_hint_says_that_the_command_waits_for_new_records() -> None:
    told = waiting_hint(None, at_end=True, follow=True)
    assert told is not None
    assert "--from-beginning" in told
    assert "group billing" in (waiting_hint("billing", at_end=True, follow=True) or "")
    assert waiting_hint(None, at_end=False, follow=True) is None
    assert waiting_hint("billing", at_end=True, follow=False) is None
