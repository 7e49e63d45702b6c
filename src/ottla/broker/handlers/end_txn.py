"""EndTxn (26): commits or aborts a transaction."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(EndTxnRequest)
def end_txn(
    broker: Broker, request: EndTxnRequest, context: RequestContext
) -> EndTxnResponse | Coroutine[Any, Any, EndTxnResponse]:
    answer = broker.transactions.service.end(request, context)
    # Consumers that wait for the end of the transaction are woken before its producer, which may begin the next one.
    broker.replicas.fetches.look_now()
    return answer
