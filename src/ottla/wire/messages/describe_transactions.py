"""DescribeTransactions (65): what the coordinator knows of given transactional ids (KIP-664)."""

from __future__ import annotations

from ottla.wire.schema import INT32, STRING, Request, Response, Struct, array, int16, int32, int64, string


class DescribeTransactionsRequest(Request, api_key=65, versions="0", flexible="0+"):
    transactional_ids: list[str] = array(STRING)


class DescribedTransactionTopic(Struct):
    topic: str = string(key=True)
    partitions: list[int] = array(INT32)


class DescribedTransaction(Struct):
    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[DescribedTransactionTopic] = array(DescribedTransactionTopic)


class DescribeTransactionsResponse(Response, api_key=65, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    transaction_states: list[DescribedTransaction] = array(DescribedTransaction)
