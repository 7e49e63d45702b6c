"""Answers that come later."""

from __future__ import annotations

import pytest

from ottla.coordinator.pending import PendingAnswer


def test_a_listener_gets_an_answer_that_comes_later() -> None:
    pending: PendingAnswer[str] = PendingAnswer()
    heard: list[str] = []
    pending.when_answered(heard.append)
    assert (heard, pending.is_answered) == ([], False)
    pending.answer("now")
    assert (heard, pending.is_answered) == (["now"], True)


def test_a_listener_gets_an_answer_that_came_before_it() -> None:
    pending: PendingAnswer[str | None] = PendingAnswer()
    pending.answer(None)
    assert pending.is_answered
    heard: list[str | None] = []
    pending.when_answered(heard.append)
    assert heard == [None]


def test_a_second_answer_is_refused() -> None:
    pending: PendingAnswer[str] = PendingAnswer()
    heard: list[str] = []
    pending.when_answered(heard.append)
    pending.answer("first")
    with pytest.raises(RuntimeError, match="already answered"):
        pending.answer("second")
    assert heard == ["first"]
