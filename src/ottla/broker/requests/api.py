"""What handlers are given and may raise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from ottla.base.error_codes import ErrorCode
from ottla.wire.schema import Request, Response
from ottla.wire.versions import Versions

EncodedResponse: TypeAlias = bytes
"""A response that is bytes already, but for the frame's head: for answers that are all alike."""


class BrokerError(Exception):
    """A request, or a part of it, that is refused: Kafka's code, and a sentence for people."""

    def __init__(self, code: ErrorCode, reason: str | None = None) -> None:
        super().__init__(reason or code.description)
        self.code = code


class Deferred:
    """An answer that comes later, and leaves in the moment it does: cheaper than a future, which waits for the loop."""

    __slots__ = ("_cancel", "_response", "_take")

    def __init__(self) -> None:
        self._response: Response | EncodedResponse | None = None
        self._take: Callable[[Response | EncodedResponse], None] | None = None
        self._cancel: Callable[[], object] | None = None

    def answer(self, response: Response | EncodedResponse) -> None:
        take = self._take
        if take is None:
            self._response = response
        else:
            self._forget()
            take(response)

    def when_answered(self, take: Callable[[Response | EncodedResponse], None]) -> None:
        if self._response is None:
            self._take = take
        else:
            self._forget()
            take(self._response)

    def when_cancelled(self, cancel: Callable[[], object]) -> None:
        """Sets what to call, once, if the connection closes before the answer: stop waiting, nobody will read it. An
        answer given after that is dropped."""
        self._cancel = cancel

    def cancel(self) -> None:
        """The connection closed and the request is still unanswered. Called by the dispatcher."""
        cancel = getattr(self, "_cancel", None)  # a subclass with its own constructor has none
        self._forget()
        if cancel is not None:
            cancel()

    def _forget(self) -> None:
        """Breaks the cycles with the request and the operation that waits: the answer's bytes are freed when it was
        sent, not when the garbage collector comes by."""
        self._take = self._cancel = None


RequestReader = Callable[[int], Callable[[memoryview], Any]]
"""Gives what reads the bodies of requests of a version."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Whose request it is, and what it came in. The same object for all requests of a connection and version."""

    version: int
    client_id: str | None
    client_host: str
    listener: str
    connection_id: int


@dataclass(frozen=True, slots=True)
class HandlerEntry:
    """A handler, and the versions it serves and tells of."""

    request: type[Request]
    served: Versions
    advertised: Versions
    function: Callable[..., Any]
    reader: RequestReader | None = None
