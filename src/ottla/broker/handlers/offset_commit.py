"""OffsetCommit (8): remembers how far a group has read."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ottla.broker.api import Deferred, RequestContext
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
    if type(request) is not PlainCommit:
        assert isinstance(request, OffsetCommitRequest)
        return broker.groups.commit_offsets(request, context)
    commit = _GatheredCommit(request)
    if broker.groups.commit_plainly(request, commit.take):
        return commit
    return broker.groups.commit_offsets(request.as_request(), context)


class _GatheredCommit(Deferred):
    """Answered when the commits of this turn of the loop are in the log."""

    __slots__ = ("_commit",)

    def __init__(self, commit: PlainCommit) -> None:
        self._response = self._take = None
        self._commit = commit

    def take(self, response: bytes | CoordinatorError) -> None:
        take = self._take
        if take is not None and type(response) is bytes:  # all of them, but for trouble
            take(response)
        elif isinstance(response, CoordinatorError):
            self.answer(refused_commit(self._commit.as_request(), response.code))
        else:
            self.answer(response)
