"""InitProducerId (22): get a producer id and epoch; with a transactional id, fence the producer that held it before.

A producer may bring its id and epoch to go on after an error since v3 (KIP-360), PRODUCER_FENCED is answered since v4
(KIP-588), TRANSACTION_ABORTABLE since v5 (KIP-890). v6, two-phase commit (KIP-939), is not stable in Kafka 4.3.
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, boolean, int16, int32, int64, string


class InitProducerIdRequest(Request, api_key=22, versions="0-6", flexible="2+", unstable="6"):
    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")


class InitProducerIdResponse(Response, api_key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
