"""OffsetCommit (8): remembers how far a group has read."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ottla.broker.api import RequestContext
from ottla.broker.handlers import handles
from ottla.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(OffsetCommitRequest)
def offset_commit(
    broker: Broker, request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | Coroutine[Any, Any, OffsetCommitResponse]:
    return broker.groups.commit_offsets(request, context)
