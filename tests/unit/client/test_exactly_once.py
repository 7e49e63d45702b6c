"""What `exactly_once` decides without a broker."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, Self

import pytest

from ottla.base.ids import TopicPartition
from ottla.client.config import ConsumerConfig, ProducerConfig
from ottla.client.consume import Consumer, ConsumerRecord
from ottla.client.errors import (
    ArgumentError,
    ArgumentTypeError,
    CallTimeoutError,
    FencedError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from ottla.client.exactly_once import _member, _Progress, exactly_once
from ottla.client.membership import GroupMetadata
from ottla.client.offsets import OffsetAndMetadata
from ottla.client.produce import Producer

PRODUCER = {"bootstrap.servers": "a:1", "transactional.id": "t"}
CONSUMER = {
    "bootstrap.servers": "a:1",
    "group.id": "g",
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
}


def progress(attempts: int = 3, changes: dict[str, object] | None = None) -> _Progress:
    consumer = ConsumerConfig.parse({**CONSUMER, **(changes or {})})
    return _Progress(consumer, ProducerConfig.parse(PRODUCER), attempts)


def test_only_offsets_that_moved_are_committed() -> None:
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    some = progress()
    positions = {first: OffsetAndMetadata(3), second: OffsetAndMetadata(5)}
    assert some.offsets(positions) == positions
    some.committed(positions, 8)
    positions[first] = OffsetAndMetadata(4)
    assert some.offsets(positions) == {first: OffsetAndMetadata(4)}
    some.committed(some.offsets(positions), 1)
    assert some.count == 9
    assert some.offsets(positions) == {}


def test_a_transaction_that_fails_is_tried_a_few_times() -> None:
    some = progress(attempts=3)
    error = TransactionAbortableError("failed")
    assert some.failed(error) == 0.0
    assert some.failed(TransactionAbortedError("failed")) > 0.0
    with pytest.raises(TransactionAbortableError):
        some.failed(error)
    some.committed({}, 1)
    assert some.failed(error) == 0.0


@pytest.mark.parametrize("error", [ValueError("mine"), FencedError("fenced"), KeyboardInterrupt()])
def test_what_is_not_the_fault_of_the_transaction_is_raised(error: BaseException) -> None:
    with pytest.raises(type(error)):
        progress().failed(error)


def test_a_consumer_that_is_not_a_member_cannot_commit() -> None:
    member = GroupMetadata("g", 5, "member")
    assert _member(member, {"t"}) is member
    by_hand = GroupMetadata("g")
    assert _member(by_hand, ()) is by_hand
    with pytest.raises(TransactionAbortableError, match="the consumer has left the group"):
        _member(by_hand, {"t"})


def test_clients_of_the_wrong_kind() -> None:
    with pytest.raises(ArgumentTypeError, match="exactly_once needs a Consumer and a Producer, not str and int"):
        exactly_once("consumer", 5, print)  # type: ignore[call-overload]
    with pytest.raises(ArgumentError, match="attempts must be at least 1, not 0"):
        progress(attempts=0)
    with pytest.raises(ArgumentError, match=r"the consumer needs a group\.id"):
        progress(3, {"group.id": None})


# Commits that fail.

PLACE = TopicPartition("t", 0)
END = 4


class OnePartition(Consumer[bytes, bytes]):
    """Reads an endless partition, two records at a time, up to the end that `seek` set."""

    config = ConsumerConfig.parse(CONSUMER)

    def __init__(self) -> None:
        self.at = 0
        self.until: int | None = END
        self.committed_offset: int | None = None

    def __del__(self) -> None:
        pass

    def poll(self, *_: object) -> list[ConsumerRecord[bytes, bytes]]:
        assert self.until is not None, "nothing ends this partition any more"
        first, self.at = self.at, min(self.at + 2, self.until)
        return [record(offset) for offset in range(first, self.at)]

    @property
    def is_done(self) -> bool:
        return self.at == self.until

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset({PLACE})

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {PLACE: OffsetAndMetadata(self.at)}

    def ends(self) -> dict[TopicPartition, int]:
        return {} if self.until is None else {PLACE: self.until}

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        found = None if self.committed_offset is None else OffsetAndMetadata(self.committed_offset)
        return dict.fromkeys(partitions, found)

    def seek(self, _: object, offset: int | OffsetAndMetadata, *, until: int | None = None) -> None:
        self.at = offset if isinstance(offset, int) else offset.offset
        self.until = until

    def group_metadata(self) -> GroupMetadata:
        return GroupMetadata("g", 5, "member")

    def subscription(self) -> frozenset[str]:
        return frozenset({"t"})


class Scripted(Producer[bytes, bytes]):
    """Its commits raise what the test says, having taken effect or not."""

    config = ProducerConfig.parse(PRODUCER)
    is_initialized = True
    is_committing = False

    def __init__(self, consumer: OnePartition, *commits: tuple[bool, BaseException | None]) -> None:
        self._consumer = consumer
        self._commits = list(commits)
        self._offsets: dict[TopicPartition, Any] = {}

    def __del__(self) -> None:
        pass

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        yield self
        has_effect, error = self._commits.pop(0) if self._commits else (True, None)
        if has_effect:
            self.commit_transaction()
        if error is not None:
            self.is_committing = isinstance(error, CallTimeoutError)
            raise error

    def send_offsets_to_transaction(self, offsets: Any, _: object) -> None:
        self._offsets = offsets

    def commit_transaction(self) -> None:
        self.is_committing = False
        self._consumer.committed_offset = self._offsets[PLACE].offset


def record(offset: int) -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord("t", 0, offset, 0, 0, b"", b"")


def processed(consumer: OnePartition, producer: Scripted) -> list[int]:
    seen: list[int] = []
    exactly_once(consumer, producer, lambda records: seen.extend(one.offset for one in records))
    return seen


def test_the_end_stays_when_records_are_read_again() -> None:
    consumer = OnePartition()
    producer = Scripted(consumer, (False, TransactionAbortableError("once")))
    assert processed(consumer, producer) == [0, 1, 0, 1, 2, 3]
    assert consumer.committed_offset == END


@pytest.mark.parametrize("error", [KeyboardInterrupt(), FencedError("fenced")])
@pytest.mark.parametrize("is_committed", [False, True])
def test_a_commit_that_raised_is_looked_for_before_its_records_are_processed_again(
    is_committed: bool, error: BaseException
) -> None:
    consumer = OnePartition()
    with pytest.raises(type(error)):
        processed(consumer, Scripted(consumer, (is_committed, error)))
    assert processed(consumer, Scripted(consumer)) == ([2, 3] if is_committed else [0, 1, 2, 3])


def test_a_commit_that_did_not_finish_is_finished_first() -> None:
    consumer = OnePartition()
    producer = Scripted(consumer, (False, CallTimeoutError("no answer")))
    with pytest.raises(CallTimeoutError):
        processed(consumer, producer)
    assert producer.is_committing
    assert processed(consumer, producer) == [2, 3]
    assert not producer.is_committing


def test_a_coroutine_function_is_refused_instead_of_skipping_the_records() -> None:
    async def function(_: object) -> None:
        pass

    consumer = OnePartition()
    with pytest.raises(ArgumentTypeError, match="use async_exactly_once"):
        exactly_once(consumer, Scripted(consumer), function)
    assert (consumer.at, consumer.committed_offset) == (0, None)
