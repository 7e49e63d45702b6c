"""What operators see: DescribeTransactions and ListTransactions (KIP-664)."""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.transactions.id_pattern import id_matcher
from ottla.coordinator.transactions.shard import TransactionShard
from ottla.coordinator.transactions.states import BY_TITLE
from ottla.coordinator.transactions.transaction import Transaction
from ottla.wire.messages.describe_transactions import DescribedTransaction, DescribedTransactionTopic
from ottla.wire.messages.list_transactions import ListedTransaction, ListTransactionsRequest


def describe(shard: TransactionShard, transactional_id: str) -> DescribedTransaction:
    transaction = shard.transactions.get(transactional_id)
    if transaction is None:
        return DescribedTransaction(error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=transactional_id)
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(index)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=transaction.state.title,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[DescribedTransactionTopic(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
    )


def listed(shard: TransactionShard, includes: Callable[[Transaction], bool]) -> list[ListedTransaction]:
    return [
        ListedTransaction(
            transactional_id=each.transactional_id,
            producer_id=each.producer_id,
            transaction_state=each.state.title,
        )
        for each in shard.transactions.values()
        if includes(each)
    ]


def list_filter(request: ListTransactionsRequest, now_ms: int) -> tuple[Callable[[Transaction], bool], list[str]]:
    """Whether the response includes a transaction, and the names of states that do not exist. Raises
    `CoordinatorError` for an invalid pattern."""
    states = {BY_TITLE[name] for name in request.state_filters if name in BY_TITLE}
    unknown = [name for name in request.state_filters if name not in BY_TITLE]
    producer_ids = set(request.producer_id_filters)
    pattern = request.transactional_id_pattern
    matches = id_matcher(pattern) if pattern else None

    def includes(transaction: Transaction) -> bool:
        if producer_ids and transaction.producer_id not in producer_ids:
            return False
        if request.state_filters and transaction.state not in states:
            return False
        if request.duration_filter >= 0 and now_ms - transaction.start_ms <= request.duration_filter:
            return False
        return matches is None or matches(transaction.transactional_id)

    return includes, unknown
