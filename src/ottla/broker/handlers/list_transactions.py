"""ListTransactions (66): the transactional ids that this broker coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(ListTransactionsRequest)
async def list_transactions(
    broker: Broker, request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    return await broker.transactions.service.list(request)
