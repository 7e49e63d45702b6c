"""WriteTxnMarkers (27): a transaction coordinator has this broker end transactions in partitions that it leads.

Brokers send it, and operators who abort a hanging transaction (KIP-664). Accepted only on the listener between brokers.
The response leaves when every marker is committed or has failed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.broker.handlers import handles
from ottla.broker.requests.api import Deferred, RequestContext
from ottla.broker.requests.between_brokers import check_from_broker
from ottla.coordinator.transactions.seams import EndMarker
from ottla.wire.messages.write_txn_markers import (
    TxnMarker,
    TxnMarkerPartitionResponse,
    TxnMarkerResponse,
    TxnMarkerTopicResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(WriteTxnMarkersRequest)
def write_txn_markers(
    broker: Broker, request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse | Deferred:
    check_from_broker(broker, "WriteTxnMarkers", context)
    outcomes = _Outcomes()
    response = WriteTxnMarkersResponse(markers=[_append(broker, marker, outcomes) for marker in request.markers])
    return outcomes.answer(response)


class _Outcomes:
    """Counts the markers that other replicas do not have yet."""

    def __init__(self) -> None:
        self._open_count = 0
        self._waiting: tuple[Deferred, WriteTxnMarkersResponse] | None = None

    def append(self, broker: Broker, name: TopicPartition, marker: EndMarker) -> TxnMarkerPartitionResponse:
        answer = TxnMarkerPartitionResponse(partition_index=name.partition)
        if marker.producer_id < 0 or marker.producer_epoch < 0:  # of no producer; Kafka does not write it either
            answer.error_code = ErrorCode.INVALID_REQUEST
            return answer
        outcome = broker.transactions.appender.append(name, marker, partial(self._settled, answer))
        if outcome is None:
            self._open_count += 1
        else:
            answer.error_code = outcome
        return answer

    def _settled(self, answer: TxnMarkerPartitionResponse, outcome: ErrorCode) -> None:
        answer.error_code = outcome
        self._open_count -= 1
        if not self._open_count and self._waiting is not None:
            deferred, response = self._waiting
            deferred.answer(response)

    def answer(self, response: WriteTxnMarkersResponse) -> WriteTxnMarkersResponse | Deferred:
        if not self._open_count:
            return response
        deferred = Deferred()
        self._waiting = deferred, response
        return deferred


def _append(broker: Broker, told: TxnMarker, outcomes: _Outcomes) -> TxnMarkerResponse:
    marker = EndMarker(
        told.producer_id,
        told.producer_epoch,
        told.transaction_result,
        told.coordinator_epoch,
        told.transaction_version,
    )
    return TxnMarkerResponse(
        producer_id=told.producer_id,
        topics=[
            TxnMarkerTopicResponse(
                name=topic.name,
                partitions=[
                    outcomes.append(broker, TopicPartition(topic.name, index), marker)
                    for index in topic.partition_indexes
                ],
            )
            for topic in told.topics
        ],
    )
