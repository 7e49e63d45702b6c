"""The fast path for AddPartitionsToTxn: a producer that writes to one partition sends the same bytes for each of its
transactions.

The codec reads them once, and they are recognised from then on. What cannot be accepted is left to
`TransactionCoordinatorService.add_partitions` before anything is done; both give the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.shards import WriteOutcome
from ottla.coordinator.transactions import operations
from ottla.coordinator.transactions.answers import OTHERS_KNOW_FENCED, known_as, topic_results
from ottla.coordinator.transactions.service import BATCHED_SINCE, OLD_VERSION, Errors, TransactionCoordinatorService
from ottla.coordinator.transactions.shard import TransactionShard
from ottla.coordinator.transactions.transaction import ProducerIdentity, StillCompletingError
from ottla.wire.codec import encode, reader_of
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

_REMEMBERED_MAX: Final = 4096
_LONGEST: Final = 1024
"""Longer requests are not remembered."""


class FastAdd(NamedTuple):
    """A request for one partition, and the encoded response that accepts it."""

    request: AddPartitionsToTxnRequest
    version: int
    identity: ProducerIdentity
    partition: TopicPartition
    accepted: bytes

    def run(self, shard: TransactionShard) -> WriteOutcome[Errors]:
        transactional_id = self.request.v3_and_below_transactional_id
        partitions = frozenset((self.partition,))
        return operations.add_partitions(shard, transactional_id, self.identity, partitions, OLD_VERSION)

    def response(self, error: ErrorCode) -> AddPartitionsToTxnResponse:
        topics = self.request.v3_and_below_topics
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topic_results(topics, {self.partition: error}))


def add_reader(version: int) -> Callable[[memoryview], FastAdd | AddPartitionsToTxnRequest]:
    """Reads requests of that version."""
    read: Callable[[memoryview], AddPartitionsToTxnRequest] = reader_of(AddPartitionsToTxnRequest, version)
    if version >= BATCHED_SINCE:
        return read
    known: dict[bytes, FastAdd] = {}

    def read_any(frame: memoryview) -> FastAdd | AddPartitionsToTxnRequest:
        data = bytes(frame)
        found = known.get(data)
        if found is not None:
            return found
        request = read(frame)
        found = _fast_form(request, version)
        if found is None or len(data) > _LONGEST:
            return request
        if len(known) >= _REMEMBERED_MAX:
            known.clear()
        known[data] = found
        return found

    return read_any


def _fast_form(request: AddPartitionsToTxnRequest, version: int) -> FastAdd | None:
    topics = request.v3_and_below_topics
    if len(topics) != 1 or len(topics[0].partitions) != 1 or not request.v3_and_below_transactional_id:
        return None
    identity = ProducerIdentity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    partition = TopicPartition(topics[0].name, topics[0].partitions[0])
    form = FastAdd(request, version, identity, partition, b"")
    return form._replace(accepted=encode(form.response(ErrorCode.NONE), version))


def add_fast(
    service: TransactionCoordinatorService, asked: FastAdd
) -> bytes | Coroutine[Any, Any, AddPartitionsToTxnResponse] | None:
    """The response; a coroutine if other replicas are awaited. None, with nothing done, if the general path has to
    answer: the request is refused, or the previous transaction is not completed."""
    if not service.partition_exists(asked.partition):
        return None
    try:
        added = service.runtime.write_now(asked.request.v3_and_below_transactional_id, asked.run)
    except (CoordinatorError, StillCompletingError):
        return None
    return _committed(asked, added) if isinstance(added, Coroutine) else asked.accepted


async def _committed(asked: FastAdd, added: Coroutine[Any, Any, Errors]) -> AddPartitionsToTxnResponse:
    try:
        await added
    except CoordinatorError as error:
        return asked.response(known_as(error.code, asked.version, OTHERS_KNOW_FENCED))
    return asked.response(ErrorCode.NONE)
