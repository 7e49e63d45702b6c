"""Another broker as this one sees it: requests and responses. The interface through which the controller, followers and
leaders talk to each other; `ottla.broker.links` implements it with sockets, tests with queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

from ottla.wire.schema import Request, Response

AnyResponse = TypeVar("AnyResponse", bound=Response)


class PeerError(Exception):
    """The broker could not be reached, or the connection broke: the request may or may not have taken effect."""

    def __init__(self, reason: str, *, is_refused: bool = False) -> None:
        super().__init__(reason)
        self.is_refused = is_refused
        """Whether nothing listens at its address: its process is gone."""


class Peer(Protocol):
    """One connection to one broker, made again when it breaks. Belongs to one event loop."""

    async def send(
        self,
        request: Request,
        response: type[AnyResponse],
        *,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> AnyResponse:
        """Connects if necessary, and sends in the highest version that both sides know, or in the given version.
        Responses come in the order of the requests. Raises `PeerError`; the next call connects again."""
        ...

    async def version_of(self, request: type[Request]) -> int:
        """Connects if necessary. The highest version of the request that both sides know; -1 if the broker does not
        serve it. Raises `PeerError`."""
        ...

    def close(self) -> None:
        """Requests in flight fail with `PeerError`. Idempotent."""
        ...


class FrameSender(Protocol):
    """Sends encoded requests of one kind over a connection, one at a time."""

    def send(self, frame: bytearray) -> None:
        """A whole request frame, size included; its correlation id is filled in. The last one must be answered."""
        ...

    def close(self) -> None:
        """Nothing is called any more. Idempotent."""
        ...


@runtime_checkable
class FramePeer(Protocol):
    """A peer that can also exchange encoded frames, for callers that cannot afford a task per answer."""

    def exchange(
        self,
        request: type[Request],
        *,
        answered: Callable[[bytes | memoryview], None],
        failed: Callable[[Exception], None],
        timeout_s: float,
    ) -> tuple[FrameSender, str] | None:
        """The sender, and the client id for the frames; None while there is no connection. `answered` gets response
        frames without their size, in the turn of the loop in which they arrive; `failed` a `PeerError`, once, after
        which nothing else is called. Neither may raise."""
        ...
