"""The records of `__transaction_state` as bytes: the transactional id is the key, where it stands is the value.

A value has version 0, which every Kafka reads, unless it needs one of the tagged fields of version 1 (Kafka 3.8 and
newer): the transaction version, and producer ids before and after the present one.
"""

from __future__ import annotations

import logging
from typing import Final

from ottla.base.ids import TopicPartition
from ottla.coordinator.key_values import KeyValue
from ottla.coordinator.transactions.states import TransactionState
from ottla.coordinator.transactions.transaction import NO_EPOCH, NO_ID, Transaction
from ottla.wire.codec import decode_versioned, encode_versioned
from ottla.wire.messages.transaction_records import TransactionLogKey, TransactionLogPartitions, TransactionLogValue

_logger = logging.getLogger(__name__)

_KEY_VERSION: Final = 0


class TransactionRecord(KeyValue):
    """A record that was just made, with the transaction that it stores: replay need not decode it."""

    transaction: Transaction


def record_of(transaction: Transaction) -> KeyValue:
    record = TransactionRecord(key_of(transaction.transactional_id), value_of(transaction))
    record.transaction = transaction
    return record


def tombstone_of(transactional_id: str) -> KeyValue:
    return KeyValue(key_of(transactional_id), None)


def key_of(transactional_id: str) -> bytes:
    return encode_versioned(TransactionLogKey(transactional_id=transactional_id), _KEY_VERSION)


def id_of(key: bytes) -> str | None:
    """The transactional id; None for a key of a kind that a newer Kafka may have added."""
    if key[:2] != b"\0\0":
        _logger.warning("Skipped a record of an unknown kind: key %r.", key[:40])
        return None
    return decode_versioned(TransactionLogKey, key)[0].transactional_id


def transaction_of(transactional_id: str, value: bytes) -> Transaction:
    """Raises `ValueError` or a decoding error for a value that this version cannot read."""
    found, _ = decode_versioned(TransactionLogValue, value)
    return Transaction(
        transactional_id=transactional_id,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        timeout_ms=found.transaction_timeout_ms,
        state=TransactionState(found.transaction_status),
        partitions=frozenset(
            TopicPartition(topic.topic, index)
            for topic in found.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        start_ms=found.transaction_start_timestamp_ms,
        last_update_ms=found.transaction_last_update_timestamp_ms,
        previous_producer_id=found.previous_producer_id,
        next_producer_id=found.next_producer_id,
        next_producer_epoch=found.next_producer_epoch,
        client_version=found.client_transaction_version,
    )


def value_of(transaction: Transaction) -> bytes:
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        next_producer_epoch=transaction.next_producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=_by_topic(transaction),
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
    )
    return encode_versioned(value, 1 if _needs_tags(transaction) else 0)


def _needs_tags(transaction: Transaction) -> bool:
    return (
        transaction.client_version > 0
        or transaction.previous_producer_id != NO_ID
        or transaction.next_producer_id != NO_ID
        or transaction.next_producer_epoch != NO_EPOCH
    )


def _by_topic(transaction: Transaction) -> list[TransactionLogPartitions] | None:
    if transaction.state is TransactionState.EMPTY:
        return None
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(index)
    return [TransactionLogPartitions(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()]
