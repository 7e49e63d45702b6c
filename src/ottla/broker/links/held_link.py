"""A connection that is held open to notice at once when the other broker's process ends.

When it ends, new ones are tried until one is answered, also while there is nothing to send: first at short intervals,
which collect the evidence that the process is gone (`suspicion`), later at longer ones. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ottla.broker.links.broker_peer import BrokerPeer
from ottla.broker.links.suspicion import Suspicion
from ottla.net.client_connection import Address, ConnectionOptions
from ottla.wire.peer import AnyResponse, PeerError
from ottla.wire.schema import Request

_logger = logging.getLogger(__name__)

PROBE_S: Final = 0.1
"""Between attempts while evidence is collected."""
_PROBE_MAX_S: Final = 1.0


class HeldLink:
    """See the module; implements `ottla.wire.peer.Peer`, and holds the connection from the start."""

    def __init__(
        self,
        name: str,
        address: Address | None,
        options: ConnectionOptions,
        *,
        on_silent: Callable[[], None],
        on_answer: Callable[[], None] = lambda: None,
        may_be_starting: bool = True,
    ) -> None:
        self._suspicion = Suspicion(may_be_starting=may_be_starting)
        self._on_silent = on_silent
        self._on_answer = on_answer
        self._loop = asyncio.get_running_loop()
        self._peer = BrokerPeer(name, lambda: address, options, on_attempt=self._attempted)
        self._is_closed = False
        self._holding = self._loop.create_task(self._hold(), name=f"holding a connection to {name}")

    @property
    def is_silent(self) -> bool:
        return self._suspicion.is_silent

    async def send(
        self,
        request: Request,
        response: type[AnyResponse],
        *,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> AnyResponse:
        return await self._peer.send(request, response, version=version, timeout_s=timeout_s)

    async def version_of(self, request: type[Request]) -> int:
        return await self._peer.version_of(request)

    def close(self) -> None:
        """No callback is called any more."""
        self._is_closed = True
        self._holding.cancel()
        self._peer.close()

    async def _hold(self) -> None:
        """Until it is closed: whatever goes wrong, without this nobody would notice that the process is gone."""
        pause_s = PROBE_S
        while not self._is_closed:
            try:
                connection = await self._peer.connect()
            except PeerError as error:
                is_evidence = error.is_refused and not self._suspicion.is_silent
                pause_s = PROBE_S if is_evidence else min(pause_s * 2, _PROBE_MAX_S)
                await asyncio.sleep(pause_s)
                continue
            except (Exception, asyncio.CancelledError) as error:
                if self._is_closed:
                    raise
                _logger.error("%s: connecting failed, and is tried again", self._peer.name, exc_info=error)
                await asyncio.sleep(_PROBE_MAX_S)
                continue
            since_s = self._loop.time()
            reason = await connection.wait_closed()
            _logger.debug("%s; connecting again", reason)
            if self._loop.time() - since_s >= _PROBE_MAX_S:
                pause_s = PROBE_S
            else:  # whatever answers there must not keep this busy
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _PROBE_MAX_S)

    def _attempted(self, error: PeerError | None) -> None:
        if self._is_closed:
            return
        suspicion, name = self._suspicion, self._peer.name
        if error is None:
            if suspicion.answered():
                _logger.info("%s answers again", name)
                self._call(self._on_answer)
        elif not error.is_refused:
            suspicion.unclear()
        elif suspicion.refused(self._loop.time()):
            _logger.info("%s: its process is gone: connections are refused (%s)", name, error)
            self._call(self._on_silent)

    def _call(self, callback: Callable[[], None]) -> None:
        """Never raises: the link must go on."""
        try:
            callback()
        except Exception:
            _logger.exception("%s: could not report a change", self._peer.name)
