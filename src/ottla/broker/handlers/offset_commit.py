"""OffsetCommit (8): remembers how far a group has read."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ottla.broker.api import Deferred, EncodedResponse, RequestContext
from ottla.broker.handlers import handles
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.groups.plain_commit import PlainCommit, commit_reader
from ottla.coordinator.groups.service import refused_commit
from ottla.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(OffsetCommitRequest, reader=commit_reader)
def offset_commit(
    broker: Broker, request: OffsetCommitRequest | PlainCommit, context: RequestContext
) -> OffsetCommitResponse | Coroutine[Any, Any, OffsetCommitResponse] | Deferred:
    if not isinstance(request, PlainCommit):
        return broker.groups.commit_offsets(request, context)
    deferred = Deferred()

    def answer(response: bytes | CoordinatorError) -> None:
        if isinstance(response, bytes):
            deferred.answer(EncodedResponse(response))
        else:
            deferred.answer(refused_commit(request.as_request(), response.code))

    if broker.groups.commit_plainly(request, answer):
        return deferred
    return broker.groups.commit_offsets(request.as_request(), context)
