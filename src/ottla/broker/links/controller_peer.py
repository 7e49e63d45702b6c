"""A peer that is whichever broker is the controller at the time of each request."""

from __future__ import annotations

from collections.abc import Callable

from ottla.wire.peer import AnyResponse, Peer, PeerError
from ottla.wire.schema import Request

_NONE = -1


class ControllerPeer:
    """Implements `ottla.wire.peer.Peer`. Connects on demand, and drops the connection to an earlier controller."""

    def __init__(self, controller_id: Callable[[], int], open_peer: Callable[[int], Peer]) -> None:
        self._controller_id = controller_id
        self._open_peer = open_peer
        self._current: tuple[int, Peer] | None = None
        self._is_closed = False

    async def send(
        self,
        request: Request,
        response: type[AnyResponse],
        *,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> AnyResponse:
        return await self._peer().send(request, response, version=version, timeout_s=timeout_s)

    async def version_of(self, request: type[Request]) -> int:
        return await self._peer().version_of(request)

    def _peer(self) -> Peer:
        if self._is_closed:
            raise PeerError("the link to the controller is closed")
        self.controller_changed()
        if self._current is None:
            controller = self._controller_id()
            if controller == _NONE:
                raise PeerError("there is no controller now")
            self._current = controller, self._open_peer(controller)
        return self._current[1]

    def controller_changed(self) -> None:
        """Requests to an earlier controller fail at once: it may be paused, and would never answer."""
        if self._current is not None and self._current[0] != self._controller_id():
            self._drop()

    def close(self) -> None:
        self._is_closed = True
        self._drop()

    def _drop(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            current[1].close()
