"""The checker of isolation: correct histories pass, and each anomaly that is planted in one is found."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from support.cluster.checker import Place
from support.examples import examples
from support.isolation.anomalies import Anomaly
from support.isolation.checker import check, in_brief
from support.isolation.history import (
    History,
    Observation,
    Outcome,
    Read,
    Reader,
    Restart,
    Transaction,
    Write,
)
from support.isolation.simulated import simulated_history

A, B = Place("in", 0), Place("in", 1)
OUT = Place("out", 0)
SEEDS = st.integers(0, 2**32)


def found(history: History) -> set[Anomaly]:
    return {finding.anomaly for finding in check(history)}


def written(
    number: int, outcome: Outcome, *writes: Write, began_ns: int = 0, told: bool = True, **more: Any
) -> Transaction:
    """Begins at `began_ns`, asks to commit 2 later and is over 4 later."""
    is_over = outcome is not Outcome.UNKNOWN
    asked_ns = None if outcome is Outcome.ABORTED else began_ns + 2
    ended_ns = began_ns + 4 if told and is_over else None
    own = {"began_ns": began_ns, "asked_ns": asked_ns, "ended_ns": ended_ns, "writes": list(writes)} | more
    return Transaction(number, f"writer-{number}", outcome, **own)


def small() -> History:
    """Two committed transactions and an aborted one, in two partitions; a reader that saw all; a processor."""
    first = written(1, Outcome.COMMITTED, Write(A, 10, 0), Write(B, 11, 0), began_ns=100)
    aborted = written(2, Outcome.ABORTED, Write(A, 20, 2), Write(B, 21, 2), began_ns=200)
    second = written(3, Outcome.COMMITTED, Write(A, 30, 4), Write(B, 31, 4), began_ns=300)
    processed = written(
        4,
        Outcome.COMMITTED,
        Write(OUT, 40, 0, source=10),
        Write(OUT, 41, 1, source=30),
        began_ns=400,
        reads=[Read(A, 0, 10, 401), Read(A, 4, 30, 401)],
        offsets={A: 5},
    )
    visible = {A: [(0, 10), (4, 30)], B: [(0, 11), (4, 31)], OUT: [(0, 40), (1, 41)]}
    events: list[Read | Restart] = [
        Read(place, offset, value, 500) for place, records in visible.items() for offset, value in records
    ]
    return History(
        transactions=[first, aborted, second, processed],
        readers=[Reader("reader", events)],
        stored={A: {0: 10, 2: 20, 4: 30}, B: {0: 11, 2: 21, 4: 31}, OUT: {0: 40, 1: 41}},
        visible=visible,
        markers={A: frozenset({1, 3, 5}), B: frozenset({1, 3, 5}), OUT: frozenset({2})},
        group_offsets={A: 5},
        observations=[Observation(A, 5, 600, 601)],
    )


def test_the_small_history_is_correct() -> None:
    assert check(small()) == []


@settings(max_examples=examples(60), deadline=None)
@given(SEEDS, st.integers(1, 150))
def test_correct_histories_pass(seed: int, steps: int) -> None:
    findings = check(simulated_history(random.Random(seed), steps))
    assert not findings, in_brief(findings)


# --- planted by hand --------------------------------------------------------------------------------------------------


def test_an_aborted_read() -> None:
    history = small()
    history.readers[0].events.insert(1, Read(A, 2, 20, 500))
    assert found(history) == {Anomaly.ABORTED_READ}


def test_an_aborted_read_of_a_producer_that_died_before_it_asked_to_commit() -> None:
    history = small()
    history.transactions[1].ended_ns = None
    history.readers[0].events.insert(1, Read(A, 2, 20, 500))
    assert found(history) == {Anomaly.ABORTED_READ}


def test_a_read_before_the_commit() -> None:
    history = small()
    history.readers[0].events[0] = Read(A, 0, 10, 101)
    assert found(history) == {Anomaly.DIRTY_READ}


def test_a_value_from_nowhere() -> None:
    history = small()
    history.readers[0].events.insert(1, Read(A, 1, 99, 500))
    assert found(history) == {Anomaly.INVENTED}


def test_a_torn_transaction() -> None:
    history = small()
    history.transactions[2].outcome = Outcome.UNKNOWN
    history.transactions[2].ended_ns = None
    history.readers[0].events.remove(Read(B, 4, 31, 500))
    assert found(replace(history, visible={**history.visible, B: [(0, 11)]})) == {Anomaly.TORN}


def test_an_unknown_transaction_that_is_not_visible_at_all_is_no_anomaly() -> None:
    history = small()
    unclear = written(9, Outcome.UNKNOWN, Write(B, 91), Write(OUT, 92), began_ns=900)
    assert check(replace(history, transactions=[*history.transactions, unclear])) == []


def test_a_lost_write() -> None:
    history = small()
    lost = written(9, Outcome.COMMITTED, Write(B, 91), began_ns=900)
    assert found(replace(history, transactions=[*history.transactions, lost])) == {Anomaly.LOST}


def test_a_doubled_write() -> None:
    history = small()
    history = replace(
        history,
        stored={**history.stored, B: {**history.stored[B], 6: 31}},
        visible={**history.visible, B: [*history.visible[B], (6, 31)]},
    )
    assert Anomaly.DUPLICATE in found(history)


def test_an_offset_that_the_producer_was_not_told() -> None:
    history = small()
    history.transactions[0].writes[0] = Write(A, 10, 4)
    assert found(history) == {Anomaly.MOVED}


def test_two_readers_that_disagree() -> None:
    history = small()
    other = Reader("other", [Read(A, 0, 30, 500)])
    assert found(replace(history, readers=[*history.readers, other])) == {Anomaly.DISAGREEMENT}


def test_a_producer_whose_writes_are_in_another_order() -> None:
    history = small()
    history.transactions[0].writes[:] = [Write(A, 30, None), Write(A, 10, None), Write(B, 11, 0)]
    history.transactions[2].writes[:] = [Write(B, 31, 4)]
    assert found(history) == {Anomaly.REORDERED}


def test_a_reader_that_goes_back() -> None:
    history = small()
    history.readers[0].events.append(Read(A, 0, 10, 501))
    assert found(history) == {Anomaly.BACKWARDS}
    history.readers[0].events.insert(-1, Restart(A, 0))  # which it may, if it sought
    assert found(history) == set()


def test_a_reader_that_skips_a_record() -> None:
    history = small()
    history.readers[0].events.remove(Read(A, 0, 10, 500))
    assert found(history) == {Anomaly.SKIPPED}


def test_an_offset_with_nothing() -> None:
    history = small()
    assert found(replace(history, markers={**(history.markers or {}), A: frozenset({1, 5})})) == {Anomaly.HOLE}


def test_transactions_that_read_each_other() -> None:
    history = small()
    history.transactions[0].reads.append(Read(B, 4, 31, 350))
    history.transactions[2].reads.append(Read(A, 0, 10, 350))
    assert found(history) == {Anomaly.CYCLE}
    (finding,) = check(history)
    assert finding.what.count("-wr->") == 2


def test_a_cycle_of_three() -> None:
    history = small()
    first, _, second, processed = history.transactions
    first.reads.append(Read(OUT, 0, 40, 450))
    del processed.reads[0]
    processed.offsets.clear()
    second.reads.append(Read(B, 0, 11, 350))
    assert Anomaly.CYCLE in found(history)


def test_an_order_that_contradicts_time() -> None:
    """The second was over before the first began, and comes later in the log."""
    history = small()
    second = history.transactions[2]
    second.began_ns, second.asked_ns, second.ended_ns = 10, 12, 14
    assert found(history) == {Anomaly.CYCLE}


def test_overlapping_transactions_may_interleave() -> None:
    """As Kafka allows: one is first in this partition, the other in that."""
    one = written(1, Outcome.COMMITTED, Write(A, 10), Write(B, 11), began_ns=100, ended_ns=900)
    other = written(2, Outcome.COMMITTED, Write(B, 20), Write(A, 21), began_ns=101, ended_ns=901)
    visible = {A: [(0, 10), (1, 21)], B: [(0, 20), (1, 11)]}
    stored = {place: dict(records) for place, records in visible.items()}
    assert check(History([one, other], [], stored, visible)) == []


def test_an_input_that_is_processed_twice() -> None:
    history = small()
    history.transactions[3].writes[1] = Write(OUT, 41, 1, source=10)
    assert found(history) == {Anomaly.PROCESSED_TWICE, Anomaly.NOT_PROCESSED}


def test_an_input_that_is_not_processed() -> None:
    history = small()
    history.transactions[3].writes[1] = Write(OUT, 41, 1)
    assert found(history) == {Anomaly.NOT_PROCESSED}


def test_a_range_that_was_not_consumed() -> None:
    history = small()
    del history.transactions[3].reads[1]
    assert found(history) == {Anomaly.NOT_PROCESSED}


def test_an_output_without_its_offset() -> None:
    history = small()
    history.transactions[3].outcome = Outcome.UNKNOWN
    assert found(replace(history, group_offsets={A: 4}, observations=[])) == {Anomaly.OFFSET_INCONSISTENT}


def test_a_committed_offset_that_goes_back() -> None:
    history = small()
    later = [Observation(A, 5, 600, 601), Observation(A, 1, 602, 603)]
    assert found(replace(history, observations=later)) == {Anomaly.OFFSET_REGRESSED}
    at_once = [Observation(A, 5, 600, 604), Observation(A, 1, 602, 605)]  # which may have been answered in this order
    assert found(replace(history, observations=at_once)) == set()


def test_a_transaction_that_commits_an_older_offset() -> None:
    history = small()
    again = written(5, Outcome.COMMITTED, Write(OUT, 50, 3), began_ns=500, offsets={A: 1})
    history = replace(
        history,
        transactions=[*history.transactions, again],
        stored={**history.stored, OUT: {0: 40, 1: 41, 3: 50}},
        visible={**history.visible, OUT: [(0, 40), (1, 41), (3, 50)]},
    )
    assert found(history) == {Anomaly.OFFSET_REGRESSED}


# --- prepared transactions --------------------------------------------------------------------------------------------


def prepared(decision: bool | None, *, visible: bool) -> History:
    """Two writes of a prepared transaction, which nobody said to have completed."""
    outcome = Outcome.ABORTED if decision is False else Outcome.UNKNOWN
    one = written(1, outcome, Write(A, 10, 0), Write(B, 11, 0), is_prepared=True, told=False)
    stored = {A: {0: 10}, B: {0: 11}}
    shown = {A: [(0, 10)], B: [(0, 11)]} if visible else {A: [], B: []}
    decisions = {} if decision is None else {1: decision}
    return History([one], [], stored, shown, decisions=decisions)


@pytest.mark.parametrize(("decision", "visible"), [(True, True), (False, False), (None, False)])
def test_prepared_transactions_that_end_as_decided(decision: bool | None, visible: bool) -> None:
    assert check(prepared(decision, visible=visible)) == []


def test_a_prepared_transaction_that_was_decided_to_commit_and_is_gone() -> None:
    assert found(prepared(True, visible=False)) == {Anomaly.DECISION_BROKEN}


def test_a_prepared_transaction_that_is_committed_without_a_decision() -> None:
    assert found(prepared(None, visible=True)) == {Anomaly.DECISION_BROKEN}


def test_a_prepared_transaction_that_is_committed_against_the_decision() -> None:
    assert found(prepared(False, visible=True)) == {Anomaly.DECISION_BROKEN, Anomaly.ABORTED_READ}


def test_a_prepared_transaction_of_which_a_part_is_gone() -> None:
    history = prepared(True, visible=True)
    assert found(replace(history, visible={A: [(0, 10)], B: []})) == {Anomaly.DECISION_BROKEN, Anomaly.TORN}


# --- compaction -------------------------------------------------------------------------------------------------------

LATEST = Place("latest", 0)
OLDER, ABORTED, NEWER, OTHER = 10, 20, 30, 31


def compacted(*values: int, is_tombstone: bool = False) -> History:
    """Key 1 has a committed value, an aborted one and another committed one; key 2 has one. Of these, the values are
    left."""
    spots = {OLDER: 0, ABORTED: 2, NEWER: 4, OTHER: 5}
    left = [(spots[value], value) for value in values]
    transactions = [
        written(1, Outcome.COMMITTED, Write(LATEST, OLDER, 0, key=1), began_ns=100),
        written(2, Outcome.ABORTED, Write(LATEST, ABORTED, 2, key=1), began_ns=200),
        written(
            3,
            Outcome.COMMITTED,
            Write(LATEST, NEWER, 4, key=1, is_tombstone=is_tombstone),
            Write(LATEST, OTHER, 5, key=2),
            began_ns=300,
        ),
    ]
    return History(
        transactions,
        [],
        {LATEST: dict(left)},
        {LATEST: left},
        compacted=frozenset({LATEST}),
        markers={LATEST: frozenset()},
    )


def test_compaction_may_remove_what_has_a_later_value() -> None:
    assert check(compacted(OLDER, NEWER, OTHER)) == []
    assert check(compacted(NEWER, OTHER)) == []


def test_a_key_without_its_last_value() -> None:
    assert found(compacted(OLDER, OTHER)) == {Anomaly.LATEST_LOST}
    assert found(compacted(NEWER)) == {Anomaly.LATEST_LOST}


def test_an_aborted_value_that_compaction_took_for_the_last_one() -> None:
    assert found(compacted(ABORTED, OTHER)) == {Anomaly.LATEST_LOST, Anomaly.ABORTED_READ}


def test_an_aborted_tombstone_that_deleted_a_value() -> None:
    history = compacted(OTHER)
    history.transactions[1].writes[:] = [Write(LATEST, ABORTED, 2, key=1, is_tombstone=True)]
    del history.transactions[2].writes[0]
    assert found(history) == {Anomaly.LATEST_LOST}


def test_a_tombstone_may_go_only_with_everything_before_it() -> None:
    assert check(compacted(OTHER, is_tombstone=True)) == []
    assert check(compacted(OLDER, NEWER, OTHER, is_tombstone=True)) == []
    assert found(compacted(OLDER, OTHER, is_tombstone=True)) == {Anomaly.LATEST_LOST}


def test_a_tombstone_of_which_nobody_knows_whether_it_was_committed() -> None:
    history = compacted(OTHER)
    unclear = written(4, Outcome.UNKNOWN, Write(LATEST, 40, 7, key=1, is_tombstone=True), began_ns=400)
    history = replace(history, transactions=[*history.transactions, unclear])
    assert check(history) == []
    unclear.writes[0] = unclear.writes[0]._replace(offset=3)  # before the value that is gone
    assert found(history) == {Anomaly.LATEST_LOST}


def test_a_replica_that_has_lost_the_last_value_of_a_key() -> None:
    history = compacted(NEWER, OTHER)
    right = replace(history, replicas={"broker 1": {LATEST: [(2, ABORTED), (4, NEWER), (5, OTHER)]}})
    assert check(right) == []
    wrong = replace(history, replicas={"broker 1": {LATEST: [(0, OLDER), (2, ABORTED), (5, OTHER)]}})
    assert found(wrong) == {Anomaly.LATEST_LOST}


def test_the_last_value_of_a_transaction_whose_outcome_shows_elsewhere() -> None:
    """Nobody was told that it was committed, but another of its writes is visible."""
    history = compacted(NEWER, OTHER)
    unclear = written(4, Outcome.UNKNOWN, Write(LATEST, 40, 7, key=1), Write(A, 41, 0), began_ns=400)
    history = replace(
        history,
        transactions=[*history.transactions, unclear],
        stored={**history.stored, A: {0: 41}},
        visible={**history.visible, A: [(0, 41)]},
        markers=None,
    )
    assert found(history) == {Anomaly.LATEST_LOST}


# --- planted by chance ------------------------------------------------------------------------------------------------

Mutation = Callable[[History, random.Random], History | None]


def _visible_writes(history: History, outcome: Outcome = Outcome.COMMITTED) -> list[tuple[Transaction, Write]]:
    return [(one, write) for one in history.transactions if one.outcome is outcome for write in _kept(history, one)]


def _without(history: History, values: set[int]) -> History:
    return replace(
        history,
        visible={
            place: [record for record in records if record[1] not in values]
            for place, records in history.visible.items()
        },
    )


def _offset_of(history: History, write: Write) -> int | None:
    return next((at for at, value in history.stored[write.place].items() if value == write.value), None)


def _show_aborted(history: History, chance: random.Random) -> History | None:
    candidates = _visible_writes(history, Outcome.ABORTED)
    if not candidates:
        return None
    _, write = chance.choice(candidates)
    records = [*history.visible[write.place], (_offset_of(history, write) or 0, write.value)]
    return replace(history, visible={**history.visible, write.place: sorted(records)})


def _read_early(history: History, chance: random.Random) -> History | None:
    writers = history.writers()
    spots = [
        (reader, at)
        for reader in history.readers
        for at, event in enumerate(reader.events)
        if isinstance(event, Read) and writers[event.value][0].asked_ns
    ]
    if not spots:
        return None
    reader, at = chance.choice(spots)
    event = reader.events[at]
    assert isinstance(event, Read)
    reader.events[at] = event._replace(at_ns=(writers[event.value][0].asked_ns or 0) - 1)
    return history


def _kept(history: History, one: Transaction) -> list[Write]:
    """Its writes that compaction does not remove."""
    return [write for write in one.writes if write.place not in history.compacted]


def _tear(history: History, chance: random.Random) -> History | None:
    candidates = [
        kept
        for one in history.transactions
        if one.outcome is Outcome.COMMITTED and len(kept := _kept(history, one)) > 1
    ]
    if not candidates:
        return None
    return _without(history, {chance.choice(chance.choice(candidates)).value})


def _lose(history: History, chance: random.Random) -> History | None:
    candidates = [one for one in history.transactions if one.outcome is Outcome.COMMITTED and _kept(history, one)]
    if not candidates:
        return None
    return _without(history, {write.value for write in chance.choice(candidates).writes})


def _double(history: History, chance: random.Random) -> History | None:
    candidates = _visible_writes(history)
    if not candidates:
        return None
    _, write = chance.choice(candidates)
    records = [*history.visible[write.place], (max(history.stored[write.place]) + 100, write.value)]
    return replace(history, visible={**history.visible, write.place: records})


def _move(history: History, chance: random.Random) -> History | None:
    candidates = [(one, write) for one, write in _visible_writes(history) if write.offset is not None]
    if not candidates:
        return None
    one, write = chance.choice(candidates)
    one.writes[one.writes.index(write)] = write._replace(offset=(write.offset or 0) + 1)
    return history


def _swap(history: History, chance: random.Random) -> History | None:
    """Two values of one producer and partition change places, for everyone."""
    by_producer: dict[tuple[str, Place], list[Write]] = {}
    for one in history.transactions:
        for write in one.writes:
            by_producer.setdefault((one.producer, write.place), []).append(write)
    candidates = [writes for writes in by_producer.values() if len(writes) > 1]
    if not candidates:
        return None
    one_write, other = chance.sample(chance.choice(candidates), 2)
    place = one_write.place
    swapped = {one_write.value: other.value, other.value: one_write.value}
    stored = {offset: swapped.get(value, value) for offset, value in history.stored[place].items()}
    return replace(history, stored={**history.stored, place: stored})


def _go_back(history: History, chance: random.Random) -> History | None:
    reader = chance.choice(history.readers)
    read = [event for event in reader.events if isinstance(event, Read)]
    if not read:
        return None
    reader.events.append(read[-1])
    return history


def _skip(history: History, chance: random.Random) -> History | None:
    reader = chance.choice(history.readers)
    spots = [
        at
        for at, event in enumerate(reader.events)
        if isinstance(event, Read)
        and event.place not in history.compacted
        and any(isinstance(later, Read) for later in reader.events[at + 1 : at + 2] if later.place == event.place)
    ]
    if not spots:
        return None
    del reader.events[chance.choice(spots)]
    return history


def _read_each_other(history: History, chance: random.Random) -> History | None:
    candidates = [one for one in history.transactions if one.outcome is Outcome.COMMITTED and _kept(history, one)]
    if len(candidates) < 2:
        return None
    one, other = chance.sample(candidates, 2)
    for reader, writer in ((one, other), (other, one)):
        write = _kept(history, writer)[0]
        reader.reads.append(Read(write.place, _offset_of(history, write) or 0, write.value, 2**62))
    return history


def _lose_a_marker(history: History, chance: random.Random) -> History | None:
    markers = dict(history.markers or {})
    # The last offset of a log could not be missed.
    places = [place for place, offsets in markers.items() if len(offsets) > 1 and place not in history.compacted]
    if not places:
        return None
    place = chance.choice(places)
    gone = chance.choice(sorted(markers[place])[:-1])
    return replace(history, markers={**markers, place: markers[place] - {gone}})


def _forget_output(history: History, chance: random.Random) -> History | None:
    candidates = [(one, write) for one, write in _visible_writes(history) if write.source is not None]
    if not candidates:
        return None
    one, write = chance.choice(candidates)
    one.writes[one.writes.index(write)] = write._replace(source=None)
    return history


def _process_again(history: History, chance: random.Random) -> History | None:
    candidates = [(one, write) for one, write in _visible_writes(history) if write.source is not None]
    if len(candidates) < 2:
        return None
    (one, write), (_, other) = chance.sample(candidates, 2)
    one.writes[one.writes.index(write)] = write._replace(source=other.source)
    return history


def _rewind_group(history: History, chance: random.Random) -> History | None:
    if not history.group_offsets:
        return None
    place = chance.choice(sorted(history.group_offsets))
    return replace(history, group_offsets={**history.group_offsets, place: 0})


def _fetch_older(history: History, chance: random.Random) -> History | None:
    candidates = [each for each in history.observations if each.offset > 0]
    if not candidates:
        return None
    older = chance.choice(candidates)
    again = Observation(older.place, older.offset - 1, 2**62, 2**62 + 1)
    return replace(history, observations=[*history.observations, again])


def _last_of_keys(history: History) -> list[tuple[Place, int]]:
    """The values that each key must have, unless it may have been deleted."""
    writers = history.writers()
    last: dict[tuple[Place, int | None], Write] = {}
    for place in history.compacted:
        for _, value in history.visible[place]:
            last[place, writers[value][1].key] = writers[value][1]
    committed = {
        write.value
        for one in history.transactions
        if one.outcome is Outcome.COMMITTED or history.decisions.get(one.number)
        for write in one.writes
    }
    deleted = {
        write.key
        for one in history.transactions
        for write in one.writes
        if write.is_tombstone and one.outcome is not Outcome.ABORTED
    }
    due = [write for (_, key), write in last.items() if write.value in committed and key not in deleted]
    return [(write.place, write.value) for write in due]


def _compact_too_much(history: History, chance: random.Random) -> History | None:
    candidates = _last_of_keys(history)
    return _without(history, {chance.choice(candidates)[1]}) if candidates else None


def _compact_too_much_on_a_replica(history: History, chance: random.Random) -> History | None:
    candidates = _last_of_keys(history)
    if not candidates:
        return None
    place, gone = chance.choice(candidates)
    left = [record for record in history.replicas["broker 1"][place] if record[1] != gone]
    return replace(history, replicas={"broker 1": {place: left}})


def _decide_otherwise(history: History, chance: random.Random) -> History | None:
    candidates = [
        one
        for one in history.transactions
        if one.number in history.decisions and any(write.place not in history.compacted for write in one.writes)
    ]
    if not candidates:
        return None
    number = chance.choice(candidates).number
    return replace(history, decisions={**history.decisions, number: not history.decisions[number]})


MUTATIONS: list[tuple[Mutation, Anomaly]] = [
    (_show_aborted, Anomaly.ABORTED_READ),
    (_read_early, Anomaly.DIRTY_READ),
    (_tear, Anomaly.TORN),
    (_lose, Anomaly.LOST),
    (_double, Anomaly.DUPLICATE),
    (_move, Anomaly.MOVED),
    (_swap, Anomaly.REORDERED),
    (_go_back, Anomaly.BACKWARDS),
    (_skip, Anomaly.SKIPPED),
    (_read_each_other, Anomaly.CYCLE),
    (_lose_a_marker, Anomaly.HOLE),
    (_forget_output, Anomaly.NOT_PROCESSED),
    (_process_again, Anomaly.PROCESSED_TWICE),
    (_rewind_group, Anomaly.OFFSET_INCONSISTENT),
    (_fetch_older, Anomaly.OFFSET_REGRESSED),
    (_decide_otherwise, Anomaly.DECISION_BROKEN),
    (_compact_too_much, Anomaly.LATEST_LOST),
    (_compact_too_much_on_a_replica, Anomaly.LATEST_LOST),
]


@pytest.mark.parametrize(("mutation", "anomaly"), MUTATIONS, ids=[mutation.__name__[1:] for mutation, _ in MUTATIONS])
@settings(max_examples=examples(15), deadline=None)
@given(seed=SEEDS)
def test_what_is_planted_is_found(mutation: Mutation, anomaly: Anomaly, seed: int) -> None:
    chance = random.Random(seed)
    history = mutation(simulated_history(chance, 150), chance)
    assume(history is not None)
    assert history is not None
    assert anomaly in found(history)
