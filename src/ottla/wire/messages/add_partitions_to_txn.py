"""AddPartitionsToTxn (24): make partitions part of a transaction before they are written to.

Producers speak v0-3, one transaction a request; brokers v4 and later, many of them, and may only verify (KIP-890).
PRODUCER_FENCED is answered since v2 (KIP-588), TRANSACTION_ABORTABLE since v5 (KIP-890).
"""

from __future__ import annotations

from ottla.wire.schema import INT32, Request, Response, Struct, array, boolean, int16, int32, int64, string


class AddPartitionsToTxnTopic(Struct):
    name: str = string(key=True)
    partitions: list[int] = array(INT32)


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = string(key=True)
    producer_id: int = int64()
    producer_epoch: int = int16()
    verify_only: bool = boolean()
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


class AddPartitionsToTxnRequest(Request, api_key=24, versions="0-5", flexible="3+"):
    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+")
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3")


class AddPartitionsToTxnPartitionResponse(Struct):
    partition_index: int = int32(key=True)
    partition_error_code: int = int16()


class AddPartitionsToTxnTopicResponse(Struct):
    name: str = string(key=True)
    results_by_partition: list[AddPartitionsToTxnPartitionResponse] = array(AddPartitionsToTxnPartitionResponse)


class AddPartitionsToTxnTransactionResponse(Struct):
    transactional_id: str = string(key=True)
    topic_results: list[AddPartitionsToTxnTopicResponse] = array(AddPartitionsToTxnTopicResponse)


class AddPartitionsToTxnResponse(Response, api_key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32()
    error_code: int = int16("4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnTransactionResponse] = array(
        AddPartitionsToTxnTransactionResponse, "4+"
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResponse] = array(AddPartitionsToTxnTopicResponse, "0-3")
