"""Fast commits: the same records and answers as on the general path."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.groups.fast.fast_commit import FastCommit, commit_fast, commit_reader
from ottla.coordinator.key_values import iter_key_values
from ottla.wire.codec import decode, encode, reader_of
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)
from support.coordinators.classic_members import FakeCaller
from support.coordinators.committers import Committers, in_loop

_INT32 = st.integers(-(2**31), 2**31 - 1)
_NAMES = st.one_of(st.text(max_size=5), st.text(alphabet="a", min_size=120, max_size=140))
_TOPICS = st.lists(
    st.builds(
        OffsetCommitTopic,
        name=_NAMES,
        partitions=st.lists(
            st.builds(
                OffsetCommitPartition,
                partition_index=_INT32,
                committed_offset=st.integers(-(2**63), 2**63 - 1),
                committed_leader_epoch=_INT32,
                committed_metadata=st.sampled_from(["", "", "", None, "m"]),
            ),
            max_size=4,
        ),
    ),
    max_size=3,
)
_REQUESTS = st.builds(
    OffsetCommitRequest,
    group_id=_NAMES,
    generation_id_or_member_epoch=_INT32,
    member_id=_NAMES,
    group_instance_id=st.none() | _NAMES,
    topics=_TOPICS,
)


def frame_of(request: OffsetCommitRequest, version: int = 9) -> memoryview:
    return memoryview(encode(request, version))


def bare(request: OffsetCommitRequest, version: int = 9) -> FastCommit:
    commit = commit_reader(version)(frame_of(request, version))
    assert isinstance(commit, FastCommit)
    return commit


def started(groups: Committers, commit: FastCommit, answer: Callable[[Any], None] = lambda _: None) -> bool:
    commit.answer = answer
    return commit_fast(groups.coordinator, commit)


def codes(answers: list[OffsetCommitResponse]) -> list[int]:
    """The error of the first partition of each."""
    return [answer.topics[0].partitions[0].error_code for answer in answers]


def simple(partitions: int = 2, topic: str = "t", first_offset: int = 7, **fields: Any) -> OffsetCommitRequest:
    offsets = [
        OffsetCommitPartition(partition_index=index, committed_offset=first_offset + index, committed_metadata="")
        for index in range(partitions)
    ]
    return OffsetCommitRequest(
        **{"group_id": "g", "topics": [OffsetCommitTopic(name=topic, partitions=offsets)]} | fields
    )


@given(request=_REQUESTS, version=st.sampled_from([7, 8, 9, 10]))
def test_reads_what_the_codec_reads(request: OffsetCommitRequest, version: int) -> None:
    data = encode(request, version)
    expected = decode(OffsetCommitRequest, version, data)
    read = commit_reader(version)(memoryview(data))
    if isinstance(read, FastCommit):
        for topic in expected.topics:
            for partition in topic.partitions:
                partition.committed_metadata = ""  # for which null stands as well
        read = read.as_request()
    assert read == expected


_PARTITION = st.builds(
    OffsetCommitPartition,
    partition_index=st.integers(0, 2),
    committed_offset=st.integers(0, 2**40),
    committed_leader_epoch=st.integers(-1, 3),
    committed_metadata=st.sampled_from(["", "", "", None, "m"]),
)


@given(
    partitions=st.lists(st.lists(_PARTITION, min_size=1, max_size=2), min_size=2, max_size=10),
    version=st.sampled_from([8, 9, 10]),
    flips=st.lists(st.none() | st.integers(0, 60), min_size=10, max_size=10),
)
def test_commits_of_the_same_consumer_are_distinguished(
    partitions: list[list[OffsetCommitPartition]], version: int, flips: list[int | None]
) -> None:
    """What was kept of one is used for the next, which may differ in anything; and may be broken."""
    read, expect = commit_reader(version), reader_of(OffsetCommitRequest, version)
    for some, flip in zip(partitions, flips, strict=False):
        data = bytearray(encode(simple(topics=[OffsetCommitTopic(name="t", partitions=some)]), version))
        if flip is not None:
            data[min(flip, len(data) - 1)] ^= 1
        assert read_or_error(read, bytes(data)) == read_or_error(expect, bytes(data))


def read_or_error(read: Callable[[memoryview], Any], frame: bytes) -> Any:
    """Null metadata is read as none."""
    try:
        request = read(memoryview(frame))
    except (ProtocolError, IndexError) as error:
        return type(error), str(error)
    request = request.as_request() if isinstance(request, FastCommit) else request
    for topic in request.topics:
        for partition in topic.partitions:
            partition.committed_metadata = partition.committed_metadata or ""
    return request


@given(
    data=st.binary(max_size=80), version=st.sampled_from([8, 9, 10]), at=st.integers(0, 200), byte=st.integers(0, 255)
)
def test_invalid_requests_are_refused_like_in_the_codec(data: bytes, version: int, at: int, byte: int) -> None:
    spoilt = bytearray(frame_of(simple(3), version))
    at %= len(spoilt)
    spoilt[at] = byte
    for frame in (data, bytes(spoilt), bytes(spoilt[:at])):
        expected = read_or_error(reader_of(OffsetCommitRequest, version), frame)
        assert read_or_error(commit_reader(version), frame) == expected


@in_loop
@pytest.mark.parametrize("version", [8, 9, 10])
async def test_appends_the_bytes_and_answers_what_the_long_way_does(version: int) -> None:
    short, long = Committers(), Committers()
    for count in (1, 3, 4):
        request = simple(count, topic="t")
        topic_id = short.topics.topic_id("t")
        assert topic_id is not None
        request.topics[0].topic_id = topic_id
        answers: list[Any] = []
        assert started(short, bare(request, version), answers.append)
        short.time.advance_ms(0)
        expected = long.coordinator.commit_offsets(
            decode(OffsetCommitRequest, version, frame_of(request, version)), FakeCaller(version)
        )
        assert isinstance(expected, OffsetCommitResponse)
        assert answers == [encode(expected, version)]
    assert short.log.batches == long.log.batches
    assert await short.offsets() == await long.offsets() == {("t", index): 7 + index for index in range(4)}


@given(
    turns=st.lists(
        st.lists(st.tuples(st.sampled_from([1, 2, 63, 64, 65, 200]), st.integers(0, 2**60)), min_size=1, max_size=3),
        min_size=1,
        max_size=3,
    ),
    waits_ms=st.lists(st.integers(0, 70_000), min_size=3, max_size=3),
)
@in_loop
async def test_commits_of_many_partitions_write_what_the_long_way_does(
    turns: list[list[tuple[int, int]]], waits_ms: list[int]
) -> None:
    """By one reader, which knows the forms of those before; the first of a batch, and behind others."""
    short, long = Committers(), Committers()
    read = commit_reader(9)
    for groups in (short, long):
        groups.topics.put("w", 200)
    for turn, wait_ms in zip(turns, waits_ms, strict=False):
        for count, first_offset in turn:
            request = simple(count, "w", first_offset, group_id=f"of {count}")
            commit = read(frame_of(request))
            assert isinstance(commit, FastCommit)
            assert started(short, commit)
            long.coordinator.commit_offsets(request, FakeCaller(9))
        for groups in (short, long):
            groups.time.advance_ms(wait_ms)
    assert written(short) == written(long)
    again = await short.loaded_again()
    for count, _ in turns[-1]:
        assert await again.offsets(f"of {count}") == await short.offsets(f"of {count}")
        assert await short.offsets(f"of {count}") == await long.offsets(f"of {count}")


def written(groups: Committers) -> list[Any]:
    """Every record: offset, time, key, value."""
    found: list[Any] = []
    for batch in groups.log.batches[0]:
        for _, records in iter_key_values(batch):
            assert isinstance(records, list)
            found += records
    return found


@in_loop
async def test_those_of_one_turn_share_a_batch_and_are_answered_each() -> None:
    groups = Committers()
    answers: dict[str, Any] = {}
    for name in ("a", "b", "c"):
        commit = bare(simple(2, group_id=name))
        assert started(groups, commit, partial(answers.__setitem__, name))
    assert not answers
    assert not groups.log.batches[0]
    groups.time.advance_ms(0)
    assert list(answers) == ["a", "b", "c"]
    (batch,) = groups.log.batches[0]
    ((_, records),) = iter_key_values(batch)
    assert isinstance(records, list)
    assert [offset for offset, *_ in records] == list(range(6))
    again = await groups.loaded_again()
    for name in answers:
        assert await again.offsets(name) == await groups.offsets(name) == {("t", 0): 7, ("t", 1): 8}


@in_loop
async def test_operations_in_between_see_them() -> None:
    groups = Committers()
    assert started(groups, bare(simple(1)))
    assert await groups.offsets() == {("t", 0): 7}
    assert started(groups, bare(simple(1, first_offset=9)))
    assert await groups.commit({("t", 0): 11}, metadata="not bare") == [ErrorCode.NONE]
    groups.time.advance_ms(0)
    assert await groups.offsets() == {("t", 0): 11}


@in_loop
async def test_an_append_that_fails_is_reported_to_all_and_changes_nothing() -> None:
    groups = Committers()
    answers: list[Any] = []
    for name in ("a", "b"):
        assert started(groups, bare(simple(1, group_id=name)), answers.append)
    groups.log.refuse_appends = ErrorCode.NOT_COORDINATOR
    groups.time.advance_ms(0)
    assert codes(answers) == [ErrorCode.NOT_COORDINATOR] * 2
    groups.log.refuse_appends = None
    assert await groups.offsets("a") == {}


@in_loop
async def test_answers_wait_for_the_commit_of_the_records() -> None:
    groups = Committers()
    groups.log.hold_commits()
    answers: list[Any] = []
    assert started(groups, bare(simple(1)), answers.append)
    groups.time.advance_ms(0)
    assert not answers
    groups.log.commit()
    assert [type(answer) for answer in answers] == [bytes]


@in_loop
async def test_unloading_a_shard_answers_waiting_commits() -> None:
    groups = Committers()
    answers: list[Any] = []
    assert started(groups, bare(simple(1)), answers.append)
    groups.coordinator.resign(0)
    groups.time.advance_ms(0)
    await asyncio.sleep(0)
    assert codes(answers) == [ErrorCode.NOT_COORDINATOR]
    assert not groups.log.batches[0]


@in_loop
@pytest.mark.parametrize(
    "request_",
    [simple(5), simple(1, topic="nowhere"), simple(1, generation_id_or_member_epoch=3, member_id="m")],
    ids=["no such partition", "no such topic", "no such member"],
)
async def test_commits_to_refuse_take_the_general_path(request_: OffsetCommitRequest) -> None:
    groups = Committers()
    assert not started(groups, bare(request_))
    groups.time.advance_ms(0)
    assert not groups.log.batches[0]


@in_loop
async def test_a_batch_stays_below_what_a_topic_takes() -> None:
    groups = Committers()
    groups.topics.put("w", 1500)
    for name in ("a", "b", "c"):
        assert started(groups, bare(simple(1500, "w", group_id=name)))
    groups.time.advance_ms(0)
    assert [len(batch) < 1 << 20 for batch in groups.log.batches[0]] == [True] * 3
    assert len(await groups.offsets("c")) == 1500
