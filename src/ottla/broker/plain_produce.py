"""Produce requests as most producers send them, read without an object for each of their parts.

A request is *plain* if it is of a version with compact fields and has one batch for one partition, outside of any
transaction. All that stands before the batch is then the same in every request of a producer to that partition: it is
read once, by the codec, and recognised from then on. What is not plain is read as it is declared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.base.ids import Uuid
from ottla.wire.codec import reader_of
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic

PLAIN_SINCE: Final = 9
"""The first version with compact fields."""
TOPIC_IDS_SINCE: Final = 13

_NAME_AT: Final = 8
"""Behind the transactional id, acks, timeout and the number of topics."""
_BEHIND_TOPIC: Final = 5
"""The number of partitions, and the index of the only one."""
_ID_SIZE: Final = 16
_EMPTY_BATCH: Final = b"\x01"
_NO_TAGS: Final = b"\x00\x00\x00"
"""Of the partition, the topic and the request."""
_LONGER: Final = 0x80
"""In a byte of a number: more follow."""
_REMEMBERED_MAX: Final = 20_000


class ProduceTarget(NamedTuple):
    """Where a batch goes, and how it is answered."""

    version: int
    acks: int
    timeout_ms: int
    name: str
    topic_id: Uuid
    partition: int


class PlainProduce(NamedTuple):
    """A request; its batch is a view of the frame it came in."""

    target: ProduceTarget
    records: memoryview

    def as_request(self) -> ProduceRequest:
        """The same as it is declared."""
        target = self.target
        partition = ProducePartition(index=target.partition, records=self.records)
        topic = ProduceTopic(name=target.name, topic_id=target.topic_id, partition_data=[partition])
        return ProduceRequest(acks=target.acks, timeout_ms=target.timeout_ms, topic_data=[topic])


def produce_reader(version: int) -> Callable[[memoryview], PlainProduce | ProduceRequest]:
    """Reads requests of that version."""
    read: Callable[[memoryview], ProduceRequest] = reader_of(ProduceRequest, version)
    if version < PLAIN_SINCE:
        return read
    by_id = version >= TOPIC_IDS_SINCE
    targets: dict[bytes, ProduceTarget | None] = {}
    behind_id = _NAME_AT + _ID_SIZE + _BEHIND_TOPIC
    new = tuple.__new__

    def learn(start: bytes) -> ProduceTarget | None:
        if len(targets) >= _REMEMBERED_MAX:
            targets.clear()
        targets[start] = target = _target_of(start, read, version)
        return target

    def read_any(frame: memoryview) -> PlainProduce | ProduceRequest:
        size = len(frame)
        if size <= behind_id:  # no topic's name is shorter with a batch behind it
            return read(frame)
        # A name's size is its length and one more.
        at = behind_id if by_id else _NAME_AT + frame[_NAME_AT] + _BEHIND_TOPIC
        start = bytes(frame[:at])
        target = targets[start] if start in targets else learn(start)
        if target is None or at + 3 > size:
            return read(frame)
        length = frame[at]
        at += 1
        if length >= _LONGER:
            shift = 7
            length &= 0x7F
            while at < size:
                byte = frame[at]
                at += 1
                length |= (byte & 0x7F) << shift
                if byte < _LONGER:
                    break
                shift += 7
        behind = at + length - 1
        if behind <= at or behind + 3 != size or bytes(frame[behind:]) != _NO_TAGS:
            return read(frame)
        return new(PlainProduce, (target, frame[at:behind]))

    return read_any


def _target_of(start: bytes, read: Callable[[memoryview], ProduceRequest], version: int) -> ProduceTarget | None:
    """None for what is not plain, or no beginning of a request."""
    try:
        request = read(memoryview(start + _EMPTY_BATCH + _NO_TAGS))
    except (ProtocolError, IndexError):
        return None
    if request.transactional_id is not None or len(request.topic_data) != 1:
        return None
    topic = request.topic_data[0]
    if len(topic.partition_data) != 1:
        return None
    partition = topic.partition_data[0].index
    return ProduceTarget(version, request.acks, request.timeout_ms, topic.name, topic.topic_id, partition)
