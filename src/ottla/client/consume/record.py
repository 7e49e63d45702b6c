"""A consumed record."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple

from ottla.records import Header, RecordLists

NO_TIMESTAMP_TYPE: Final = -1
"""Records of magic 0 have no timestamp."""


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """A record of a partition; key and value are deserialized, or bytes without a deserializer, or None.

    `timestamp` is in milliseconds since the epoch, -1 if there is none; `timestamp_type` is 0 if the producer set it, 1
    if the broker did. `leader_epoch` is -1 if it is not known.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: K
    value: V
    headers: tuple[Header, ...] = ()
    leader_epoch: int = -1


def make_records(
    topic: str, partition: int, timestamp_type: int, leader_epoch: int, lists: RecordLists
) -> Iterator[ConsumerRecord]:
    """The records of a partition in these lists, created on demand."""
    fields = zip(
        repeat(topic),
        repeat(partition),
        lists.offsets,
        lists.timestamps_ms,
        repeat(timestamp_type),
        lists.keys,
        lists.values,
        lists.headers,
        repeat(leader_epoch),
        strict=False,
    )
    # What calling the class does, without executing Python code.
    return map(tuple.__new__, repeat(ConsumerRecord), fields)
