"""Follows the configs that other brokers and Kafka's tools change, by the notifications in `/config/changes`.

A notification names an entity; its node is read again, so the order of notifications does not matter, and one that is
read twice does no harm. A new listener reads all that are there: what changed between reading the configs and the first
look is among them. Notifications older than 15 minutes are removed, as Kafka does. After a session has expired, all
configs are read again.

Belongs to one loop.
"""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import suppress
from typing import Final, Protocol

from ottla.base.clock import Clock
from ottla.base.coordination import (
    ConnectionLossError,
    Coordination,
    CoordinationError,
    NoNodeError,
    SessionState,
    WatchEvent,
)
from ottla.zookeeper.node_json import ZnodeError
from ottla.zookeeper.paths import CONFIG_CHANGE_PREFIX, CONFIG_CHANGES
from ottla.zookeeper.znodes import decode_config_change

_logger = logging.getLogger(__name__)

EXPIRY_MS: Final = 15 * 60 * 1000
_RETRY_S: Final = 1.0
_NAME: Final = re.compile(rf"{CONFIG_CHANGE_PREFIX.rpartition('/')[2]}(-?\d+)")


class Configs(Protocol):
    """What is kept up to date: the `ConfigStore`."""

    async def load(self) -> None: ...
    async def reread(self, entity: str) -> None: ...


class ConfigChangeListener:
    """`start` after the configs were loaded, `close` at the end."""

    def __init__(self, tree: Coordination, configs: Configs, clock: Clock) -> None:
        self._tree = tree
        self._configs = configs
        self._clock = clock
        self._last = -1
        """The number of the newest notification that was handled."""
        self._created_ms: dict[str, int] = {}
        self._is_woken = asyncio.Event()
        self._must_reload = False
        self._has_expired = False
        self._is_closed = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._tree.on_session(self._session_changed)
        await self._look()
        self._task = asyncio.create_task(self._run(), name="config changes")

    async def close(self) -> None:
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._has_expired = True
        elif state is SessionState.CONNECTED and self._has_expired:
            self._has_expired = False
            self._must_reload = True
            self._is_woken.set()

    def _changed(self, _: WatchEvent) -> None:
        self._is_woken.set()

    async def _run(self) -> None:
        while not self._is_closed:
            await self._is_woken.wait()
            self._is_woken.clear()
            try:
                if self._must_reload:
                    self._must_reload = False
                    await self._reload()
                await self._look()
            except CoordinationError as error:
                _logger.warning("could not follow changes of configs, and will try again: %s", error)
                await self._try_again()
            except Exception:
                _logger.exception("could not follow changes of configs, and will try again")
                await self._try_again()

    async def _reload(self) -> None:
        try:
            await self._configs.load()
        except ZnodeError as error:
            _logger.error("configs could not be read after a session expired: %s", error)
        except BaseException:
            self._must_reload = True
            raise

    async def _try_again(self) -> None:
        await asyncio.sleep(_RETRY_S)
        self._is_woken.set()

    async def _look(self) -> None:
        """Handles what is new. The watch is set by the same request that reads the names: no change is missed."""
        names = {
            name: int(match[1])
            for name in await self._tree.children(CONFIG_CHANGES, self._changed)
            if (match := _NAME.fullmatch(name))
        }
        self._created_ms = {name: at_ms for name, at_ms in self._created_ms.items() if name in names}
        # Also those that were read, but not handled because of an error.
        unseen = sorted(
            (name for name, number in names.items() if number > self._last or name not in self._created_ms),
            key=names.__getitem__,
        )
        nodes = await self._tree.get_many([f"{CONFIG_CHANGES}/{name}" for name in unseen])
        entities: dict[str, None] = {}
        for name, node in zip(unseen, nodes, strict=True):
            if node is None:
                continue  # another broker has removed it: it was old
            self._created_ms[name] = node.created_ms
            if names[name] > self._last:
                entities |= dict.fromkeys(_entities(f"{CONFIG_CHANGES}/{name}", node.data))
        for entity in entities:
            await self._reread(entity)
        self._last = max(self._last, *names.values()) if names else self._last
        await self._purge()

    async def _reread(self, entity: str) -> None:
        try:
            await self._configs.reread(entity)
        except (ZnodeError, ValueError) as error:
            _logger.error("changed configs of %s cannot be used: %s", entity, error)

    async def _purge(self) -> None:
        """Every broker does this, so others may be faster."""
        now_ms = self._clock.now_ms()
        for name in [name for name, at_ms in self._created_ms.items() if now_ms - at_ms > EXPIRY_MS]:
            with suppress(NoNodeError, ConnectionLossError):
                await self._tree.delete(f"{CONFIG_CHANGES}/{name}")
            del self._created_ms[name]


def _entities(path: str, data: bytes) -> tuple[str, ...]:
    """The entity that a notification names; none if it cannot be read: other programs may have written it."""
    try:
        return (decode_config_change(path, data),)
    except ZnodeError as error:
        _logger.warning("ignoring a notification: %s", error)
        return ()
