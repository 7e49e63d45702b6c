"""DescribeTransactions (65): the state of transactional ids that this broker coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(DescribeTransactionsRequest)
async def describe_transactions(
    broker: Broker, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    return await broker.transactions.service.describe(request)
