"""TxnOffsetCommit (28): stores the offsets of a group, pending until a transaction ends.

First the transaction coordinator confirms that the group's partition of `__consumer_offsets` belongs to the
transaction. Since version 5 producers do not send AddOffsetsToTxn: then the question adds the partition (KIP-890).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.broker.transactions.verification import VerifiedBatch, known_to_producers
from ottla.controller.topic_names import OFFSETS_TOPIC
from ottla.coordinator.errors import CoordinatorError
from ottla.log.errors import LogError
from ottla.records.layout import NO_SEQUENCE
from ottla.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_ABORTABLE_SINCE: Final = 4
"""Clients know TRANSACTION_ABORTABLE."""
_ADDS_SINCE: Final = 5

Answer = TxnOffsetCommitResponse | Coroutine[Any, Any, TxnOffsetCommitResponse]


@handles(TxnOffsetCommitRequest)
def txn_offset_commit(broker: Broker, request: TxnOffsetCommitRequest, context: RequestContext) -> Answer:
    groups = broker.groups
    if not request.group_id:
        return groups.refuse_in_transaction(request, ErrorCode.INVALID_GROUP_ID, context)
    try:
        index = groups.runtime.partition_of(request.group_id)
    except CoordinatorError as error:
        return groups.refuse_in_transaction(request, error.code, context)
    partition = broker.replicas.get(OFFSETS_TOPIC, index)
    if partition is None or not partition.is_leader:
        return groups.refuse_in_transaction(request, ErrorCode.NOT_COORDINATOR, context)
    producer = request.producer_id, request.producer_epoch, NO_SEQUENCE
    verifier = broker.transactions.verifier
    batch = verifier.part(partition, request.transactional_id, producer, adds=context.version >= _ADDS_SINCE)
    if batch is None:
        return groups.commit_in_transaction(request, context)
    if batch.is_settled():
        return _commit(broker, request, context, batch)
    return _commit_later(broker, request, context, batch)


async def _commit_later(
    broker: Broker, request: TxnOffsetCommitRequest, context: RequestContext, batch: VerifiedBatch
) -> TxnOffsetCommitResponse:
    settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tell() -> None:
        if not settled.done():
            settled.set_result(None)

    if not batch.is_settled():  # the coordinator may have answered before this coroutine began
        batch.when_settled(tell)
        await settled
    answer = _commit(broker, request, context, batch)
    return await answer if isinstance(answer, Coroutine) else answer


def _commit(broker: Broker, request: TxnOffsetCommitRequest, context: RequestContext, batch: VerifiedBatch) -> Answer:
    """No await until the offsets are appended: a marker must not come in between."""
    error = known_to_producers(batch.failure_code, abortable=context.version >= _ABORTABLE_SINCE)
    if not error:
        try:
            batch.check()
        except LogError as failure:
            error = failure.code
    if error is ErrorCode.NETWORK_EXCEPTION:
        # Clients retry after this one, and do not look for another coordinator.
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if error:
        return broker.groups.refuse_in_transaction(request, error, context)
    return broker.groups.commit_in_transaction(request, context)
