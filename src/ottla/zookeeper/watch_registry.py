"""The watches of one client: what to call when an event comes. Belongs to the client's loop."""

from __future__ import annotations

import logging

from ottla.base.coordination import EventKind, Watch, WatchEvent

_logger = logging.getLogger(__name__)


class WatchRegistry:
    """A watch is called once, by the first event that meets it, however often it was set. `nodes` and `absent` are data
    watches of nodes that existed, or did not, when the watch was set: a client that connects again tells its server
    which."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[Watch, None]] = {}
        self.absent: dict[str, dict[Watch, None]] = {}
        self.children: dict[str, dict[Watch, None]] = {}

    def clear(self) -> None:
        self.nodes.clear()
        self.absent.clear()
        self.children.clear()

    def fire(self, event: WatchEvent) -> None:
        """Whatever one of them raises, the others are called."""
        watches: dict[Watch, None] = {}
        if event.kind is not EventKind.CHILDREN:
            watches |= self.nodes.pop(event.path, {}) | self.absent.pop(event.path, {})
        if event.kind in (EventKind.CHILDREN, EventKind.DELETED):
            watches |= self.children.pop(event.path, {})
        for watch in watches:
            try:
                watch(event)
            except Exception:
                _logger.exception("A watch of %s failed", event.path)
