"""OffsetFetch (9): returns the offsets that groups have committed.

Requests for one topic of one group are mostly answered by `fast_fetch`, all others by the general path.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ottla.broker.handlers import handles
from ottla.broker.requests.api import EncodedResponse, RequestContext
from ottla.coordinator.groups.fast.fast_fetch import fetch_fast
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(OffsetFetchRequest)
def offset_fetch(
    broker: Broker, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse | EncodedResponse | Coroutine[Any, Any, OffsetFetchResponse]:
    return fetch_fast(broker.groups, request, context.version) or broker.groups.fetch_offsets(request, context)
