"""AddOffsetsToTxn (25): makes the offsets of a group part of a transaction.

This may be the first request that needs the topic of the groups: a producer can name a group that nobody has joined.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ottla.broker.coordinators import coordinator_topics
from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.controller.topic_names import OFFSETS_TOPIC
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(AddOffsetsToTxnRequest)
def add_offsets_to_txn(
    broker: Broker, request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse | Coroutine[Any, Any, AddOffsetsToTxnResponse]:
    if coordinator_topics.is_missing(broker, OFFSETS_TOPIC):
        return _with_new_topic(broker, request, context)
    return broker.transactions.service.add_offsets(request, context)


async def _with_new_topic(
    broker: Broker, request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse:
    await coordinator_topics.create(broker, OFFSETS_TOPIC)
    answer = broker.transactions.service.add_offsets(request, context)
    return answer if isinstance(answer, AddOffsetsToTxnResponse) else await answer
