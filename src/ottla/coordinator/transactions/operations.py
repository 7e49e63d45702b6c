"""The decisions about one transactional id, as operations on its shard: what each request writes and answers.

They raise `CoordinatorError` for a refused request, `StillCompletingError` if the previous transaction has to be
completed first, and `NewIdNeededError` if a producer id is needed: `decisions` gets what is missing and asks again.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.shards import WriteOutcome
from ottla.coordinator.transactions.shard import TransactionShard
from ottla.coordinator.transactions.states import TransactionState
from ottla.coordinator.transactions.transaction import NewId, ProducerIdentity, Transaction
from ottla.wire.messages.init_producer_id import InitProducerIdResponse


class Initialization(NamedTuple):
    """What InitProducerId asks for."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdentity | None
    keep_prepared: bool


def initialize(
    shard: TransactionShard, asked: Initialization, new_id: NewId
) -> WriteOutcome[InitProducerIdResponse | None]:
    """None if the open transaction is aborted first: ask again when that is completed."""
    now_ms = shard.now_ms
    before = shard.transactions.get(asked.transactional_id)
    if before is None:
        created = Transaction.created(asked.transactional_id, new_id(), asked.timeout_ms, now_ms)
        return shard.changed(created, _initialized(created))
    if before.state is not TransactionState.ONGOING:
        after = before.initialized(asked.expected, asked.timeout_ms, now_ms, new_id)
        return WriteOutcome(_initialized(after)) if after is before else shard.changed(after, _initialized(after))
    if asked.keep_prepared:
        after = before.taken_over(asked.timeout_ms, now_ms, new_id)
        return shard.changed(after, _initialized(after))
    before.check_may_abort(asked.expected)
    aborted = before.aborted_by_coordinator(now_ms, owner_goes_on=asked.expected is not None)
    return _fence(shard, aborted)


def _fence(shard: TransactionShard, aborted: Transaction) -> WriteOutcome[InitProducerIdResponse | None]:
    def appended() -> None:
        shard.counts.fenced += 1
        shard.appended(aborted)

    return shard.write_of(None, shard.records_of(aborted), appended)


def _initialized(transaction: Transaction) -> InitProducerIdResponse:
    owner = transaction.owner
    response = InitProducerIdResponse(producer_id=owner.producer_id, producer_epoch=owner.producer_epoch)
    if transaction.is_taken_over:
        response.ongoing_txn_producer_id = transaction.producer_id
        response.ongoing_txn_producer_epoch = transaction.producer_epoch
    return response


def add_partitions(
    shard: TransactionShard,
    transactional_id: str,
    identity: ProducerIdentity,
    partitions: Set[TopicPartition],
    version: int,
) -> WriteOutcome[dict[TopicPartition, ErrorCode]]:
    before = _known(shard, transactional_id)
    after = before.with_partitions(identity, partitions, version, shard.now_ms)
    added = dict.fromkeys(partitions, ErrorCode.NONE)
    return WriteOutcome(added) if after is before else shard.changed(after, added)


def verify_partitions(
    shard: TransactionShard, transactional_id: str, identity: ProducerIdentity, partitions: Set[TopicPartition]
) -> WriteOutcome[dict[TopicPartition, ErrorCode]]:
    missing = _known(shard, transactional_id).missing(identity, partitions)
    return WriteOutcome(
        {each: ErrorCode.TRANSACTION_ABORTABLE if each in missing else ErrorCode.NONE for each in partitions}
    )


def end(
    shard: TransactionShard,
    transactional_id: str,
    identity: ProducerIdentity,
    new_id: NewId,
    *,
    committed: bool,
    version: int,
) -> WriteOutcome[ProducerIdentity]:
    """Answers with the identity with which the producer goes on."""
    before = _known(shard, transactional_id)
    now_ms = shard.now_ms
    after = before.ended(identity, committed=committed, version=version, now_ms=now_ms, new_id=new_id)
    return WriteOutcome(after.owner) if after is before else shard.changed(after, after.owner)


def _known(shard: TransactionShard, transactional_id: str) -> Transaction:
    transaction = shard.transactions.get(transactional_id)
    if transaction is None:
        raise CoordinatorError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"The transactional id {transactional_id!r} is unknown or expired."
        )
    return transaction
