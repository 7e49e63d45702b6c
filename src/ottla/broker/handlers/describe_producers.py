"""DescribeProducers: the state of a partition's idempotent and transactional producers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers import handles
from ottla.broker.requests.api import BrokerError, RequestContext
from ottla.broker.requests.partition_access import hosted_partition
from ottla.controller.topic_names import fault_of_name
from ottla.log.producer_entry import ProducerEntry
from ottla.wire.messages.describe_producers import (
    ActiveProducer,
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(DescribeProducersRequest)
def describe_producers(
    broker: Broker, request: DescribeProducersRequest, _: RequestContext
) -> DescribeProducersResponse:
    """The state of this broker's replica, leader or not: each replica has its own."""
    return DescribeProducersResponse(
        topics=[
            DescribeProducersTopicResponse(
                name=topic.name, partitions=[_answer(broker, topic.name, index) for index in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _answer(broker: Broker, topic: str, index: int) -> DescribeProducersPartitionResponse:
    try:
        if (fault := fault_of_name(topic)) is not None:
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
        log = hosted_partition(broker, topic, index).log
        if log is None:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)
    except BrokerError as error:
        return DescribeProducersPartitionResponse(
            partition_index=index, error_code=error.code, error_message=str(error)
        )
    producers = [_describe(entry) for entry in log.producers.entries.values()]
    return DescribeProducersPartitionResponse(partition_index=index, active_producers=producers)


def _describe(entry: ProducerEntry) -> ActiveProducer:
    row = entry.row()
    return ActiveProducer(
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        last_sequence=row.last_sequence,
        last_timestamp=row.timestamp_ms,
        coordinator_epoch=row.coordinator_epoch,
        current_txn_start_offset=row.current_transaction_first_offset,
    )
