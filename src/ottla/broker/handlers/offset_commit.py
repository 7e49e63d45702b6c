"""OffsetCommit (8): stores the offsets that a group commits.

Bare commits are handled by `fast_commit`, all others by the group coordinator's general path.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ottla.broker.handlers import handles
from ottla.broker.requests.api import Deferred, EncodedResponse, RequestContext
from ottla.coordinator.groups.fast.fast_commit import FastCommit, commit_fast, commit_reader
from ottla.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.wire.schema import Response

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(OffsetCommitRequest, reader=commit_reader)
def offset_commit(
    broker: Broker, request: OffsetCommitRequest | FastCommit, context: RequestContext
) -> OffsetCommitResponse | Coroutine[Any, Any, OffsetCommitResponse] | Deferred:
    if not isinstance(request, FastCommit):
        return broker.groups.commit_offsets(request, context)
    if commit_fast(broker.groups, request):
        return _GatheredCommit(request)
    return broker.groups.commit_offsets(request.as_request(), context)


class _GatheredCommit(Deferred):
    """The response comes when the commits of this iteration of the loop are in the log, never immediately."""

    __slots__ = ("_commit",)

    def __init__(self, commit: FastCommit) -> None:
        self._commit = commit

    def when_answered(self, take: Callable[[Response | EncodedResponse], None]) -> None:
        self._commit.answer = take
