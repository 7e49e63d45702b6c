"""The fast path of `records.record_of`: consecutive records of a producer differ only in a few numbers.

The codec writes the rest once, with gaps for these numbers, so only the codec knows the format. What is rare or long is
left to `records.record_of`; both make the same bytes.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from ottla.base.ids import TopicPartition
from ottla.coordinator.key_values import KeyValue
from ottla.coordinator.transactions import records
from ottla.coordinator.transactions.records import TransactionRecord
from ottla.coordinator.transactions.states import TransactionState
from ottla.coordinator.transactions.transaction import NO_EPOCH, NO_ID, Transaction

PARTITIONS_MAX: Final = 8
"""Templates of transactions with more partitions would take too much memory."""
_REMEMBERED: Final = 4096
_PRODUCER: Final = Struct(">qh")
_TIMES: Final = Struct(">qq")
_ANY_PRODUCER: Final = 0x5A00_0000_0000_0001, 0x5A02
_ANY_TIMES: Final = 0x5A00_0000_0000_0003, 0x5A00_0000_0000_0004

_key_of = lru_cache(_REMEMBERED)(records.key_of)
_new_record: Final = tuple.__new__


class ValueTemplate:
    """A value with gaps for producer id, producer epoch, and the times of the last update and of the start."""

    __slots__ = ("_body", "_head", "_middle", "_tail")

    def __init__(self, head: bytes, middle: bytes, tail: bytes) -> None:
        self._head, self._middle, self._tail = head, middle, tail
        self._body = Struct(f">{len(head)}sqh{len(middle)}sqq{len(tail)}s")

    def fill(self, producer_id: int, producer_epoch: int, last_update_ms: int, start_ms: int) -> bytes:
        middle = self._middle
        return self._body.pack(self._head, producer_id, producer_epoch, middle, last_update_ms, start_ms, self._tail)


@lru_cache(_REMEMBERED)
def _template(
    state: TransactionState, partitions: frozenset[TopicPartition], timeout_ms: int, client_version: int
) -> ValueTemplate:
    value = records.value_of(
        Transaction(
            "",
            *_ANY_PRODUCER,
            timeout_ms,
            state,
            partitions,
            last_update_ms=_ANY_TIMES[0],
            start_ms=_ANY_TIMES[1],
            client_version=client_version,
        )
    )
    head, _, rest = value.partition(_PRODUCER.pack(*_ANY_PRODUCER))
    middle, _, tail = rest.rpartition(_TIMES.pack(*_ANY_TIMES))
    return ValueTemplate(head, middle, tail)


def record_of(transaction: Transaction) -> KeyValue:
    """The record that stores the transaction."""
    (
        transactional_id,
        producer_id,
        producer_epoch,
        timeout_ms,
        state,
        partitions,
        start_ms,
        last_update_ms,
        previous_id,
        next_id,
        next_epoch,
        client_version,
        _,
    ) = transaction
    if previous_id != NO_ID or next_id != NO_ID or next_epoch != NO_EPOCH or len(partitions) > PARTITIONS_MAX:
        return records.record_of(transaction)
    template = _template(state, partitions, timeout_ms, client_version)
    value = template.fill(producer_id, producer_epoch, last_update_ms, start_ms)
    record: TransactionRecord = _new_record(TransactionRecord, (_key_of(transactional_id), value))
    record.transaction = transaction
    return record
