"""The epoch at which each partition was assigned to its member (KIP-1251): who commits with an older epoch than its own
may, for what it has owned since then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import Uuid
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.groups.consumer.member import MemberState, Standing
from ottla.coordinator.groups.consumer.records import standing_of, standing_record
from ottla.coordinator.groups.records import value_of
from ottla.wire.messages.group_records import ConsumerGroupCurrentMemberAssignmentValue, CurrentTopicPartitions
from support.coordinators.committers import Committers, Offsets
from support.coordinators.consumer_members import Consumer, Coordinated, settle

NONE = ErrorCode.NONE
STALE = ErrorCode.STALE_MEMBER_EPOCH
T0, T1, T2, T3, U0 = ("t", 0), ("t", 1), ("t", 2), ("t", 3), ("u", 0)


def commit(coordinated: Coordinated, offsets: Offsets, member_id: str, epoch: int, **fields: Any) -> list[ErrorCode]:
    async def commit() -> list[ErrorCode]:
        committers = Committers(beside=coordinated)
        return await committers.commit(offsets, member_id=member_id, generation_id_or_member_epoch=epoch, **fields)

    return asyncio.run(commit())


def epochs(coordinated: Coordinated, member_id: str) -> dict[tuple[str, int], int]:
    """By names, in order."""
    standing = coordinated.group().members[member_id].standing
    named = {
        (coordinated.topics.topic_name(topic_id) or "", index): epoch
        for (topic_id, index), epoch in standing.assignment_epochs.items()
    }
    return dict(sorted(named.items()))


def grown() -> Coordinated:
    """Member `a` in epoch 3: two partitions are its own since 1, two since 3, which another gave up."""
    coordinated = Coordinated()
    first, second = Consumer(coordinated, "a"), Consumer(coordinated, "b")
    first.join()
    second.join()
    settle(first, second)
    assert epochs(coordinated, "a") == {T0: 1, T1: 1}
    assert epochs(coordinated, "b") == {T2: 2, T3: 2}
    second.leave()
    settle(first)
    assert (first.epoch, epochs(coordinated, "a")) == (3, {T0: 1, T1: 1, T2: 3, T3: 3})
    return coordinated


# --- which commits are accepted -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "metadata"), [(9, ""), (10, ""), (9, "long way"), (10, "long way")])
@pytest.mark.parametrize(
    ("epoch", "places", "errors"),
    [
        (3, [T0, T2], [NONE, NONE]),
        # With the member's epoch nobody asks whose the partitions are.
        (3, [U0], [NONE]),
        (2, [T0, T1], [NONE, NONE]),
        (1, [T0], [NONE]),
        (2, [T2], [STALE]),
        # One that is too new refuses all.
        (2, [T0, T2], [STALE, STALE]),
        (2, [T0, U0], [STALE, STALE]),
        # What is not there is nobody's, and not asked for.
        (2, [T0, ("t", 9)], [NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        (2, [T2, ("t", 9)], [STALE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        (0, [T0], [STALE]),
        (-1, [T0], [STALE]),
        (4, [T0], [STALE]),
    ],
)
def test_older_epochs_commit_what_was_assigned_before(
    epoch: int, places: list[tuple[str, int]], errors: list[ErrorCode], version: int, metadata: str
) -> None:
    coordinated = grown()
    offsets = dict.fromkeys(places, 7)
    assert commit(coordinated, offsets, "a", epoch, version=version, metadata=metadata) == errors
    stored = asyncio.run(Committers(beside=coordinated).offsets())
    assert stored == {place: 7 for place, error in zip(places, errors, strict=True) if not error}


def test_a_partition_that_is_refused_for_its_metadata_is_not_asked_for() -> None:
    coordinated = grown()
    metadata = "m" * (coordinated.coordinator.settings.offset_metadata_max_bytes + 1)
    assert commit(coordinated, {T2: 7}, "a", 2, metadata=metadata) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]


@pytest.mark.parametrize(
    ("epoch", "places", "error"),
    [
        (3, [T0, T2], NONE),
        (2, [T0, T1], NONE),
        (2, [T0, T2], ErrorCode.ILLEGAL_GENERATION),
        (4, [T0], ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_so_do_transactions(epoch: int, places: list[tuple[str, int]], error: ErrorCode) -> None:
    coordinated = grown()
    assert commit_in_transaction(coordinated, places, member_id="a", generation_id=epoch) is error


def test_a_transaction_that_names_no_member_is_not_held_to_the_group() -> None:
    coordinated = grown()
    assert commit_in_transaction(coordinated, [T0]) is NONE
    assert commit_in_transaction(coordinated, [T0], group_instance_id="i") is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_in_transaction(coordinated, [T0], generation_id=3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(coordinated, {T0: 7}, "", -1) == [ErrorCode.UNKNOWN_MEMBER_ID]


def commit_in_transaction(coordinated: Coordinated, places: list[tuple[str, int]], **fields: Any) -> ErrorCode:
    """What all partitions are told."""

    async def commit() -> list[ErrorCode]:
        return await Committers(beside=coordinated).commit_in_transaction(1, dict.fromkeys(places, 7), **fields)

    try:
        errors = asyncio.run(commit())
    except CoordinatorError as error:
        return error.code
    assert len(set(errors)) == 1
    return errors[0]


# --- which epochs partitions get ------------------------------------------------------------------------------------


def test_partitions_to_be_revoked_can_be_committed_until_then() -> None:
    coordinated = Coordinated()
    first, second = Consumer(coordinated, "a"), Consumer(coordinated, "b")
    first.join()
    first.subscribe("t", "u")
    assert first.epoch == 2
    second.join()
    first.idle_beat()
    standing = coordinated.group().members["a"].standing
    assert (standing.epoch, standing.state) == (2, MemberState.UNREVOKED_PARTITIONS)
    assert epochs(coordinated, "a") == {(topic, index): 1 + (topic == "u") for topic in "tu" for index in range(4)}
    (given_up, *_) = sorted(index for topic, index in standing.revoking if topic == coordinated.topics.topic_id("t"))
    assert commit(coordinated, {("t", given_up): 7}, "a", 1) == [NONE]
    assert commit(coordinated, {U0: 7}, "a", 1) == [STALE]
    settle(first, second)
    assert first.epoch == 3
    assert commit(coordinated, {("t", given_up): 8}, "a", 2) == [STALE]
    assert commit(coordinated, {("t", given_up): 8}, "b", 3) == [NONE]


def test_partitions_that_were_revoked_and_come_back_are_assigned_again() -> None:
    coordinated = Coordinated()
    first, second = Consumer(coordinated, "a"), Consumer(coordinated, "b")
    first.join()
    second.join()
    first.idle_beat()
    second.leave()
    first.beat()
    assert epochs(coordinated, "a") == {T0: 1, T1: 1, T2: 3, T3: 3}


def test_what_waits_for_a_static_member_is_older_than_every_epoch() -> None:
    coordinated = Coordinated()
    Consumer(coordinated, "other", ["u"]).join()
    member = Consumer(coordinated, "a", instance_id="i")
    member.join()
    assert (member.epoch, set(epochs(coordinated, "a").values())) == (2, {2})
    member.leave(-2)
    assert set(epochs(coordinated, "a").values()) == {0}
    assert commit(coordinated, {T0: 7}, "a", 2) == [STALE]
    back = Consumer(coordinated, "back", instance_id="i")
    back.join()
    assert (back.epoch, set(epochs(coordinated, "back").values())) == (2, {0})
    assert commit(coordinated, {T0: 7}, "back", 1) == [NONE]


# --- the log --------------------------------------------------------------------------------------------------------

_TOPIC = Uuid(bytes(15) + b"\x01")


def test_epochs_are_written_beside_their_partitions() -> None:
    written = {(_TOPIC, 4): 2, (_TOPIC, 0): 5, (_TOPIC, 1): 3}
    standing = Standing(
        7, 6, MemberState.UNREVOKED_PARTITIONS, frozenset([(_TOPIC, 4), (_TOPIC, 0)]), frozenset([(_TOPIC, 1)]), written
    )
    data = standing_record("g", "m", standing).value
    assert data is not None
    value = value_of(ConsumerGroupCurrentMemberAssignmentValue, data)
    (assigned,), (revoking,) = value.assigned_partitions, value.partitions_pending_revocation
    assert (assigned.partitions, assigned.assignment_epochs) == ([0, 4], [5, 2])
    assert (revoking.partitions, revoking.assignment_epochs) == ([1], [3])
    assert standing_of(value) == standing
    # Tag 0 of the topic, of 5 bytes: one epoch.
    assert data.endswith(b"\x02" + _TOPIC + b"\x02\x00\x00\x00\x01" + b"\x01\x00\x05\x02\x00\x00\x00\x03" + b"\x00")


@pytest.mark.parametrize("written", [None, [], [1], [1, 1, 1]], ids=["null", "absent", "too few", "too many"])
@pytest.mark.parametrize(("member_epoch", "expected"), [(7, 7), (-2, 0)])
def test_without_epochs_the_members_own_is_taken(member_epoch: int, expected: int, written: list[int] | None) -> None:
    topic = CurrentTopicPartitions(topic_id=_TOPIC, partitions=[0, 1], assignment_epochs=written)
    value = ConsumerGroupCurrentMemberAssignmentValue(member_epoch=member_epoch, assigned_partitions=[topic])
    assert standing_of(value).assignment_epochs == {(_TOPIC, 0): expected, (_TOPIC, 1): expected}


def test_epochs_come_back_from_the_log() -> None:
    coordinated = grown()
    again = coordinated.loaded_again()
    assert epochs(again, "a") == {T0: 1, T1: 1, T2: 3, T3: 3}
    assert commit(again, {T0: 7}, "a", 1) == [NONE]
