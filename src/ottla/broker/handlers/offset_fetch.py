"""OffsetFetch (9): how far groups have read."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ottla.broker.handlers import handles
from ottla.broker.requests.api import EncodedResponse, RequestContext
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(OffsetFetchRequest)
def offset_fetch(
    broker: Broker, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse | EncodedResponse | Coroutine[Any, Any, OffsetFetchResponse]:
    return broker.groups.fetch_plainly(request, context) or broker.groups.fetch_offsets(request, context)
