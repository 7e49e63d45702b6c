"""EndTxn (26): commit or abort a transaction.

PRODUCER_FENCED is answered since v2 (KIP-588), TRANSACTION_ABORTABLE since v4. Since v5 the epoch rises with every
transaction, and the answer says with which id and epoch the producer goes on (KIP-890).
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, boolean, int16, int32, int64, string


class EndTxnRequest(Request, api_key=26, versions="0-5", flexible="3+"):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Response, api_key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
