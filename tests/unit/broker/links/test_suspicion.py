"""When a broker counts as gone."""

from __future__ import annotations

from ottla.broker.links.suspicion import REFUSED_FOR_S, STARTING_S, Suspicion


def reached() -> Suspicion:
    suspicion = Suspicion()
    suspicion.answered()
    return suspicion


def test_refusals_over_some_time_are_evidence() -> None:
    suspicion = reached()
    assert [suspicion.refused(now_s) for now_s in (0.0, 0.1, 0.2, REFUSED_FOR_S)] == [False, False, False, True]
    assert suspicion.is_silent


def test_many_refusals_at_once_are_not() -> None:
    suspicion = reached()
    assert not any(suspicion.refused(5.0) for _ in range(50))


def test_few_refusals_are_not() -> None:
    suspicion = reached()
    assert [suspicion.refused(now_s) for now_s in (5.0, 6.0)] == [False, False]


def test_silence_is_reported_once() -> None:
    suspicion = reached()
    assert [suspicion.refused(now_s) for now_s in (5.0, 5.2, 5.4, 5.6, 9.0)] == [False, False, True, False, False]


def test_a_timeout_ends_the_series() -> None:
    suspicion = reached()
    suspicion.refused(5.0)
    suspicion.refused(5.2)
    suspicion.unclear()
    assert not suspicion.refused(5.4)
    assert not suspicion.refused(5.5)
    assert suspicion.refused(5.8)


def test_an_answer_ends_the_series_and_the_silence() -> None:
    suspicion = reached()
    suspicion.refused(5.0)
    suspicion.refused(5.2)
    assert not suspicion.answered()
    assert not suspicion.refused(5.4)
    assert [suspicion.refused(now_s) for now_s in (5.6, 5.8)] == [False, True]
    assert suspicion.answered()
    assert not suspicion.is_silent


def test_a_broker_that_was_never_reached_may_be_starting() -> None:
    suspicion = Suspicion()
    assert [suspicion.refused(now_s) for now_s in (5.0, 5.2, 5.4, 5.6)] == [False] * 4
    assert suspicion.refused(5.0 + STARTING_S)


def test_one_that_registered_long_ago_is_not_starting() -> None:
    suspicion = Suspicion(may_be_starting=False)
    assert [suspicion.refused(now_s) for now_s in (0.0, 0.1, REFUSED_FOR_S)] == [False, False, True]
