"""Each judge passes a good history and fails each bad one."""

from __future__ import annotations

from array import array

import pytest

from support.cluster.checker import (
    NO_OFFSET,
    BatchMark,
    Place,
    Replica,
    Run,
    Seen,
    Sent,
    in_brief,
    judge_complete,
    judge_offsets,
    judge_records,
    judge_replicas,
    judge_seen,
    mark_of,
    number_of,
    producer_of,
)

A = Place("orders", 0)
B = Place("orders", 1)


def run(*marks: int, start: int = 0) -> Run:
    return Run(start, array("q", marks))


def sent(count: int, producer: int = 0) -> Sent:
    history = Sent(producer)
    for _ in range(count):
        history.send()
    return history


def acknowledged(*places: tuple[Place, int], producer: int = 0) -> Sent:
    """Record n is acknowledged at place n."""
    history = sent(len(places), producer)
    for number, (place, offset) in enumerate(places):
        history.acknowledge(number, place, offset)
    return history


def test_a_mark_has_producer_and_number() -> None:
    mark = mark_of(7, 123_456_789)
    assert (producer_of(mark), number_of(mark)) == (7, 123_456_789)


# --- records ----------------------------------------------------------------------------------------------------------


def test_a_good_history_passes() -> None:
    first = acknowledged((A, 0), (B, 0), (A, 2))
    second = acknowledged((A, 1), (B, NO_OFFSET), producer=1)
    stored = {A: run(mark_of(0, 0), mark_of(1, 0), mark_of(0, 2)), B: run(mark_of(0, 1), mark_of(1, 1))}
    assert judge_records([first, second], stored) == []
    assert judge_offsets([first, second]) == []


def test_unknown_records_may_be_there_or_not() -> None:
    assert judge_records([sent(2)], {A: run(mark_of(0, 1))}) == []


@pytest.mark.parametrize(
    ("stored", "what"),
    [
        ({A: run()}, "is LOST"),
        ({A: run(mark_of(0, 1), mark_of(0, 0))}, "is at orders-0, offset 1"),
        ({A: run(), B: run(mark_of(0, 0))}, "is at orders-1"),
        ({A: run(mark_of(0, 0), mark_of(0, 0))}, "is stored twice"),
        ({A: run(mark_of(0, 0)), B: run(mark_of(0, 0))}, "is stored twice"),
        ({A: run(mark_of(0, 0), mark_of(0, 2), mark_of(0, 1))}, "behind record 2"),
        ({A: run(mark_of(0, 0), mark_of(0, 9))}, "which nobody sent"),
        ({A: run(mark_of(0, 0), mark_of(3, 0))}, "which nobody sent"),
    ],
)
def test_a_bad_log_fails(stored: dict[Place, Run], what: str) -> None:
    history = sent(4)
    history.acknowledge(0, A, 0)
    wrong = judge_records([history], stored)
    assert any(what in each for each in wrong), wrong


def test_a_record_that_failed_must_not_be_there() -> None:
    history = sent(1)
    history.fail(0)
    assert judge_records([history], {A: run()}) == []
    assert "which had failed" in judge_records([history], {A: run(mark_of(0, 0))})[0]
    assert history.counts() == (0, 1, 0)


def test_an_offset_must_not_be_acknowledged_twice() -> None:
    wrong = judge_offsets([acknowledged((A, 4)), acknowledged((B, 4), (A, 4), producer=1)])
    assert wrong == ["orders-0: offset 4 was acknowledged for record 0 of producer 0 and record 1 of producer 1"]


def test_the_longest_wait_is_of_records_sent_in_that_time() -> None:
    history = Sent(0)
    for sent_s, told_s in ((1.0, 2.0), (5.0, 9.0), (20.0, 60.0)):
        history.acknowledge(history.send(sent_s), A, 0, told_s)
    assert history.longest_wait_s(0.0, 10.0) == pytest.approx(4.0)
    assert history.longest_wait_s(30.0, 40.0) == 0.0


# --- consumers --------------------------------------------------------------------------------------------------------


def reader(*seen: tuple[Place, int, int]) -> Seen:
    consumer = Seen("reader")
    for each in seen:
        consumer.see(*each)
    return consumer


def test_what_was_seen_and_is_there_passes() -> None:
    assert judge_seen([reader((A, 0, 5), (A, 1, 6), (B, 0, 7))], {A: run(5, 6, 8), B: run(7)}) == []


def test_what_was_seen_and_deleted_since_passes() -> None:
    assert judge_seen([reader((A, 0, 5), (A, 1, 6))], {A: run(6, start=1)}) == []


@pytest.mark.parametrize(
    ("stored", "what"),
    [(run(5), "it is gone"), (run(5, 9), "now there is record 9")],
)
def test_what_was_seen_and_changed_fails(stored: Run, what: str) -> None:
    assert what in judge_seen([reader((A, 0, 5), (A, 1, 6))], {A: stored})[0]


@pytest.mark.parametrize("next_offset", [0, 2])
def test_a_consumer_that_jumps_fails(next_offset: int) -> None:
    wrong = judge_seen([reader((A, 0, 5), (A, next_offset, 7 if next_offset else 5))], {A: run(5, 6, 7)})
    assert wrong == [f"reader: orders-0: offset {next_offset} came where 1 was due"]


def test_a_consumer_may_jump_once_after_a_restart() -> None:
    consumer = reader((A, 0, 5), (A, 1, 6))
    consumer.restart(A)
    for offset, mark in ((0, 5), (1, 6)):
        consumer.see(A, offset, mark)
    assert judge_seen([consumer], {A: run(5, 6)}) == []
    assert consumer.position(A) == 2
    consumer.see(A, 5, 9)
    assert len(consumer.jumps) == 1


def test_a_consumer_must_not_begin_before_what_was_committed() -> None:
    consumer = reader((A, 0, 5), (A, 1, 6))
    assert consumer.positions() == {A: 2}
    consumer.restart(A, 2)
    assert consumer.positions() == {}
    consumer.see(A, 1, 6)
    assert consumer.jumps == ["reader: orders-0: began at 1, although 2 had been committed"]


def test_consumers_together_must_have_seen_everything() -> None:
    stored = {A: run(5, 6, 7)}
    one, other = reader((A, 0, 5), (A, 1, 6)), reader((A, 2, 7))
    assert judge_complete([one, other], stored, "the group") == []
    missing = judge_complete([one], stored, "the group")
    assert missing == ["the group never saw 1 records of orders-0, the first at offset 2"]


# --- replicas ---------------------------------------------------------------------------------------------------------


def batch(base: int, last: int, epoch: int = 0, crc: int = 1, *, is_whole: bool = True) -> BatchMark:
    return BatchMark(base, last, epoch, crc, is_whole)


LOG = (batch(0, 4), batch(5, 5, 1), batch(6, 9, 3))


def test_equal_replicas_pass() -> None:
    assert judge_replicas(A, [Replica(1, 0, LOG), Replica(2, 0, LOG)], 10) == []


def test_replicas_may_differ_before_the_highest_log_start_and_after_the_high_watermark() -> None:
    replicas = [Replica(1, 0, LOG), Replica(2, 6, (batch(6, 9, 3), batch(10, 10, 3)))]
    assert judge_replicas(A, replicas, 10) == []


@pytest.mark.parametrize(
    ("log", "what"),
    [
        ((batch(0, 4), batch(5, 5, 2), batch(6, 9, 3)), "replicas differ"),
        ((batch(0, 4), batch(5, 5, 1, crc=2), batch(6, 9, 3)), "replicas differ"),
        ((batch(0, 4), batch(5, 9, 1)), "replicas differ"),
        ((batch(0, 4), batch(5, 5, 1)), "below the high watermark"),
        ((batch(0, 3), batch(5, 5, 1), batch(6, 9, 3)), "offset 5 follows 3"),
        ((batch(0, 4, 4), batch(5, 5, 1), batch(6, 9, 3)), "epoch 1 follows 4"),
        ((batch(0, 4), batch(5, 5, 1), batch(6, 9, 3, is_whole=False)), "damaged"),
    ],
)
def test_a_bad_replica_fails(log: tuple[BatchMark, ...], what: str) -> None:
    wrong = judge_replicas(A, [Replica(1, 0, LOG), Replica(2, 0, log)], 10)
    assert any(what in each for each in wrong), wrong


def test_many_findings_are_shown_in_brief() -> None:
    assert in_brief(["a", "b", "c"], 2) == "a\nb\n... and 1 more"


def test_a_record_may_be_there_twice_if_that_is_excused() -> None:
    stored = {A: run(mark_of(0, 0), mark_of(0, 1), mark_of(0, 0))}
    history = acknowledged((A, 2), (A, 1))
    assert judge_records([history], stored, lambda _, one, other: (one, other) == ((A, 0), (A, 2))) == []
    assert len(judge_records([history], stored)) == 1


def test_a_replica_knows_who_wrote_an_offset() -> None:
    replica = Replica(1, 0, [BatchMark(0, 4, 0, 1, True, (7, 0)), BatchMark(5, 5, 0, 1, True, (8, 2))])
    assert [replica.producer_at(offset) for offset in (0, 4, 5, 6)] == [(7, 0), (7, 0), (8, 2), None]
