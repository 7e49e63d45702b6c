"""The responses to producers: which error code each version of a request knows, and partitions with their errors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any, Final, TypeVar

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.coordinator.errors import CoordinatorError
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResponse,
)

R = TypeVar("R")
T = TypeVar("T")

INIT_KNOWS_FENCED: Final = 4
"""The version of InitProducerId that knows PRODUCER_FENCED (KIP-588)."""
OTHERS_KNOW_FENCED: Final = 2
"""The version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn that knows it."""


def known_as(error: ErrorCode, version: int, knows_fenced: int) -> ErrorCode:
    """PRODUCER_FENCED, or INVALID_PRODUCER_EPOCH for older clients."""
    if error is ErrorCode.PRODUCER_FENCED and version < knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def answered(
    ask: Callable[[], T | Coroutine[Any, Any, T]], success: Callable[[T], R], refused: Callable[[ErrorCode], R]
) -> R | Coroutine[Any, Any, R]:
    """The response for a result or a `CoordinatorError`; itself, or a coroutine if the result has to be waited for."""
    try:
        result = ask()
    except CoordinatorError as error:
        return refused(error.code)
    if not isinstance(result, Coroutine):
        return success(result)

    async def later(waiting: Coroutine[Any, Any, T]) -> R:
        try:
            return success(await waiting)
        except CoordinatorError as error:
            return refused(error.code)

    return later(result)


def partitions_of(topics: Iterable[AddPartitionsToTxnTopic]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)


def same_error(partitions: Collection[TopicPartition], error: ErrorCode) -> dict[TopicPartition, ErrorCode]:
    return dict.fromkeys(partitions, error)


def topic_results(
    topics: Iterable[AddPartitionsToTxnTopic], errors: Mapping[TopicPartition, ErrorCode]
) -> list[AddPartitionsToTxnTopicResponse]:
    """In the order of the request."""
    return [
        AddPartitionsToTxnTopicResponse(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResponse(
                    partition_index=index, partition_error_code=errors[TopicPartition(topic.name, index)]
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
