"""ListTransactions (66): the transactional ids of a coordinator, filtered (KIP-664).

Filters by how long a transaction runs since v1 (KIP-994), by a pattern of the transactional id since v2 (KIP-1152).
"""

from __future__ import annotations

from ottla.wire.schema import INT64, STRING, Request, Response, Struct, array, int16, int32, int64, string


class ListTransactionsRequest(Request, api_key=66, versions="0-2", flexible="0+"):
    state_filters: list[str] = array(STRING)
    producer_id_filters: list[int] = array(INT64)
    duration_filter: int = int64("1+", default=-1)  # milliseconds; negative: of any age
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)


class ListedTransaction(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(Response, api_key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(STRING)
    transaction_states: list[ListedTransaction] = array(ListedTransaction)
