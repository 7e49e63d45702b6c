"""Answers that come later: given once, and not kept."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator

import pytest

from ottla.broker.requests.api import Deferred


class Waiting:
    """A request and an operation that know the answer they wait for, as it knows them."""

    def __init__(self, deferred: Deferred) -> None:
        self.deferred = deferred
        self.taken: list[object] = []
        self.cancelled = 0

    def take(self, response: object) -> None:
        self.taken.append(response)

    def cancel(self) -> None:
        self.cancelled += 1


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def _answer(deferred: Deferred) -> None:
    deferred.answer(b"answer")


def _cancel(deferred: Deferred) -> None:
    deferred.cancel()


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize(("end", "taken", "cancelled"), [(_answer, [b"answer"], 0), (_cancel, [], 1)])
def test_what_waits_is_freed_as_soon_as_it_is_over(
    end: Callable[[Deferred], None], taken: list[bytes], cancelled: int
) -> None:
    waiting = Waiting(Deferred())
    waiting.deferred.when_answered(waiting.take)
    waiting.deferred.when_cancelled(waiting.cancel)
    end(waiting.deferred)
    _cancel(waiting.deferred)
    assert (waiting.taken, waiting.cancelled) == (taken, cancelled)
    _answer(waiting.deferred)
    assert waiting.taken == taken
    kept = weakref.ref(waiting)
    del waiting
    assert kept() is None


def test_an_answer_may_be_there_before_somebody_takes_it() -> None:
    deferred = Deferred()
    deferred.answer(b"answer")
    waiting = Waiting(deferred)
    deferred.when_answered(waiting.take)
    assert waiting.taken == [b"answer"]
