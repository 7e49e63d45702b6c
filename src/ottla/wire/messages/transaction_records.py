"""The records of `__transaction_state`: the state of each transactional id.

Key and value each begin with their version as an int16. The tagged fields, for transactions that end with a new epoch
of the producer, came with KIP-890 in a version that older brokers can read (KIP-915).
"""

from __future__ import annotations

from ottla.wire.schema import INT32, Data, Struct, array, int8, int16, int32, int64, string


class TransactionLogKey(Data, versions="0"):
    transactional_id: str = string()


class TransactionLogPartitions(Struct):
    topic: str = string()
    partition_ids: list[int] = array(INT32)


class TransactionLogValue(Data, versions="0-1", flexible="1+"):
    """Null partitions: the id has had no transaction yet."""

    producer_id: int = int64()
    previous_producer_id: int = int64("1+", tag=0, default=-1)
    next_producer_id: int = int64("1+", tag=1, default=-1)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16("1+", tag=3, default=-1)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[TransactionLogPartitions] | None = array(TransactionLogPartitions, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", tag=2)
