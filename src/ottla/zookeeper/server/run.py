"""Runs the embedded ZooKeeper in a process of its own, until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from pathlib import Path

from ottla.base.clock import SystemClock
from ottla.zookeeper.server.core import ServerSettings
from ottla.zookeeper.server.listener import TreeListener
from ottla.zookeeper.server.tree_thread import TreeThread

_logger = logging.getLogger(__name__)

TREE_NAME = "tree.db"


async def serve(data: Path, host: str, port: int, settings: ServerSettings, on_ready: Callable[[int], None]) -> None:
    """Until SIGINT or SIGTERM; `on_ready` is given the port. What keeps it from starting raises."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    thread = await TreeThread.open(data / TREE_NAME, SystemClock(), settings)
    try:
        listener = await TreeListener.start(thread, host, port)
        try:
            thread.perform = listener.perform
            on_ready(listener.port)
            await stop.wait()
            _logger.info("stopping")
        finally:
            await listener.close()
    finally:
        await thread.close()
