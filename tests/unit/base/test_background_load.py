"""Loads in the background: done once, waited for while they go on, and never longer than asked."""

from __future__ import annotations

import threading

import pytest

from ottla.base.background_load import BackgroundLoad, load_apart

BOUND_S = 30.0


class Load:
    """One that goes on until it is let go."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Event()
        self.times = 0
        self._error = error

    def __call__(self) -> None:
        self.times += 1
        self.begun.release()
        assert self.may_end.wait(BOUND_S)
        if self._error is not None:
            raise self._error


def test_is_done_once_however_often_it_is_asked_for() -> None:
    load = Load()
    loading = BackgroundLoad(load, needs=())
    assert not loading.is_going_on
    loading.wait(BOUND_S)  # for nothing: none is under way
    for _ in range(3):
        loading.begin()
    assert load.begun.acquire(timeout=BOUND_S)
    assert loading.is_going_on
    loading.wait(0.0)
    assert loading.is_going_on
    load.may_end.set()
    loading.wait(BOUND_S)
    assert not loading.is_going_on
    loading.begin()
    assert (load.times, loading.is_going_on) == (1, False)


def test_what_cannot_be_loaded_is_not_waited_for() -> None:
    load = Load()
    missing = BackgroundLoad(load, needs=("json", "no_such_package_at_all"))
    missing.begin()
    assert (load.times, missing.is_going_on) == (0, False)
    broken = Load(ImportError("half installed"))
    broken.may_end.set()
    failing = BackgroundLoad(broken, needs=())
    failing.begin()
    failing.wait(BOUND_S)
    assert (broken.times, failing.is_going_on) == (1, False)


def test_a_load_that_breaks_is_over_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    broken = Load(RuntimeError("cannot cache function: no locator available"))
    broken.may_end.set()
    loading = BackgroundLoad(broken, needs=())
    loading.begin()
    loading.wait(BOUND_S)
    assert not loading.is_going_on
    assert "no locator available" in caplog.text
    assert "NUMBA_CACHE_DIR" in caplog.text


def test_a_load_for_which_there_is_no_thread_is_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    loading = BackgroundLoad(lambda: None, needs=())
    loading.begin()
    assert not loading.is_going_on
    assert "can't start new thread" in caplog.text


def test_a_load_that_is_waited_for_is_out_of_reach_of_interrupts() -> None:
    """Signals are handled in the main thread: a load there could be left half done."""
    assert threading.current_thread() is threading.main_thread()
    assert load_apart(threading.current_thread) is not threading.main_thread()
    with pytest.raises(KeyError, match="lost"):
        load_apart(lambda: dict[str, int]()["lost"])


def test_a_load_in_another_thread_stays_there() -> None:
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(load_apart(threading.current_thread) is thread))
    thread.start()
    thread.join(BOUND_S)
    assert found == [True]
