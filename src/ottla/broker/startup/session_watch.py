"""Keeps a broker in its cluster when its ZooKeeper session expires: registers it again in the new session.

| session | what happens |
| --- | --- |
| DISCONNECTED | nothing but a log line: the broker may still be registered |
| EXPIRED | `on_expired` is called at once: the registration, the controller's node and all watches are gone |
| CONNECTED after it | the broker registers; then `on_registered` is awaited with its new epoch |

A registration that fails is tried again. Belongs to one loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from ottla.base.coordination import Coordination, SessionExpiredError, SessionState
from ottla.broker.startup.registration import Registrar

_logger = logging.getLogger(__name__)

_RETRY_S: Final = 1.0


class SessionWatch:
    """`start` after the first registration, `close` before the session is closed."""

    def __init__(
        self,
        tree: Coordination,
        registrar: Registrar,
        on_expired: Callable[[], None],
        on_registered: Callable[[int], Awaitable[None]],
    ) -> None:
        self.is_connected = True
        self._tree = tree
        self._registrar = registrar
        self._on_expired = on_expired
        self._on_registered = on_registered
        self._expiries = 0
        self._handled = 0
        """How many of the expiries the broker has registered after."""
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def start(self) -> None:
        self._tree.on_session(self._changed)

    async def close(self) -> None:
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _changed(self, state: SessionState) -> None:
        if self._is_closed:
            return
        match state:
            case SessionState.DISCONNECTED:
                self.is_connected = False
                _logger.warning("the connection to ZooKeeper is lost; the session lasts for a while without it")
            case SessionState.EXPIRED:
                self.is_connected = False
                self._expiries += 1
                _logger.warning("the session with ZooKeeper has expired: broker %d left", self._registrar.broker_id)
                self._on_expired()
            case SessionState.CONNECTED:
                if not self.is_connected:
                    _logger.info("connected to ZooKeeper again")
                self.is_connected = True
                if self._expiries > self._handled and self._task is None:
                    self._task = asyncio.create_task(self._rejoin(), name="registering again")

    async def _rejoin(self) -> None:
        """A session may expire again meanwhile: then once more."""
        try:
            while self._handled < self._expiries:
                expiries = self._expiries
                try:
                    epoch = await self._registrar.reregister()
                    await self._on_registered(epoch)
                except SessionExpiredError:
                    await asyncio.sleep(0)  # requests wait for the next connection
                except Exception:
                    _logger.exception("broker %d could not register again, and will retry", self._registrar.broker_id)
                    await asyncio.sleep(_RETRY_S)
                else:
                    self._handled = expiries
        finally:
            self._task = None
