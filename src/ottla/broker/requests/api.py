"""The types that handlers work with: contexts, errors, and responses that come later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from ottla.base.error_codes import ErrorCode
from ottla.wire.schema import Request, Response
from ottla.wire.versions import Versions

EncodedResponse: TypeAlias = bytes
"""A response that is already encoded, except for the frame's header."""


class BrokerError(Exception):
    """A request, or a part of it, is refused: Kafka's error code and a message."""

    def __init__(self, code: ErrorCode, reason: str | None = None) -> None:
        super().__init__(reason or code.description)
        self.code = code


class Deferred:
    """A response that comes later, and is sent immediately then: cheaper than a future, which waits for the loop."""

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
        """Sets a callback for a connection that closes before the response, to stop waiting. A later response is
        dropped."""
        self._cancel = cancel

    def cancel(self) -> None:
        """Called by the dispatcher when the connection closed before the response."""
        cancel = getattr(self, "_cancel", None)  # a subclass with its own constructor has none
        self._forget()
        if cancel is not None:
            cancel()

    def _forget(self) -> None:
        """Breaks the reference cycles with the request and the waiting operation: the response's memory is freed when
        it is sent, not at the next garbage collection."""
        self._take = self._cancel = None


RequestReader = Callable[[int], Callable[[memoryview], Any]]
"""Returns the decoder of request bodies of a version."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The client and connection of a request. The same object for all requests of a connection and version."""

    version: int
    client_id: str | None
    client_host: str
    listener: str
    connection_id: int


@dataclass(frozen=True, slots=True)
class HandlerEntry:
    """A handler, with the versions that it serves and advertises."""

    request: type[Request]
    served: Versions
    advertised: Versions
    function: Callable[..., Any]
    reader: RequestReader | None = None
