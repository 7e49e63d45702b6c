"""AddPartitionsToTxn (24): makes partitions part of a transaction.

Producers send versions up to 3. Brokers send later ones: many transactions at once, possibly only to verify (KIP-890).
These are accepted only on the listener between brokers.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers import handles
from ottla.broker.requests.api import EncodedResponse, RequestContext
from ottla.broker.requests.between_brokers import check_from_broker
from ottla.controller.topic_names import is_internal
from ottla.coordinator.transactions.fast_add import FastAdd, add_fast, add_reader
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_BROKERS_SINCE: Final = 4


@handles(AddPartitionsToTxnRequest, reader=add_reader)
def add_partitions_to_txn(
    broker: Broker, request: AddPartitionsToTxnRequest | FastAdd, context: RequestContext
) -> AddPartitionsToTxnResponse | EncodedResponse | Coroutine[Any, Any, AddPartitionsToTxnResponse]:
    if isinstance(request, FastAdd):
        if not is_internal(request.partition.topic):
            answer = add_fast(broker.transactions.service, request)
            if answer is not None:
                return answer
        request = request.request
    if context.version >= _BROKERS_SINCE:
        check_from_broker(broker, "AddPartitionsToTxn", context)
    elif any(is_internal(topic.name) for topic in request.v3_and_below_topics):
        return _refused(request.v3_and_below_topics)
    return broker.transactions.service.add_partitions(request, context)


def _refused(topics: list[AddPartitionsToTxnTopic]) -> AddPartitionsToTxnResponse:
    """Producers cannot write to internal topics; if one partition is refused, none is added."""
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResponse(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResponse(
                        partition_index=index,
                        partition_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
                        if is_internal(topic.name)
                        else ErrorCode.OPERATION_NOT_ATTEMPTED,
                    )
                    for index in topic.partitions
                ],
            )
            for topic in topics
        ]
    )
