"""AddOffsetsToTxn (25): make a group's offsets part of a transaction before they are committed in it.

PRODUCER_FENCED is answered since v2 (KIP-588), TRANSACTION_ABORTABLE since v4 (KIP-890).
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, int16, int32, int64, string


class AddOffsetsToTxnRequest(Request, api_key=25, versions="0-4", flexible="3+"):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Response, api_key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
