"""Runs a broker until it is stopped: the loop, the signals, the exit code."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
from collections.abc import Callable

from ottla.base.clock import SystemClock
from ottla.broker.broker import Broker, ReadyInfo
from ottla.broker.configs.broker_config import BrokerConfig
from ottla.broker.configs.config_warnings import warnings_of
from ottla.broker.observability.logging_setup import configure
from ottla.log.local_disk import LocalDisk

_logger = logging.getLogger(__name__)


def run_broker(config: BrokerConfig, on_ready: Callable[[ReadyInfo], None]) -> int:
    """Runs the broker and returns the exit code. Raises if the broker cannot start."""
    configure(config["ottla.log.format"], config["ottla.log.level"])
    for warning in warnings_of(config):
        _logger.warning("%s", warning)
    _allow_many_files()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(config, on_ready))


async def _serve(config: BrokerConfig, on_ready: Callable[[ReadyInfo], None]) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    broker = await Broker.start(config, LocalDisk(), SystemClock())
    # Objects from the start live as long as the process: the garbage collector need not check them again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    on_ready(broker.ready)
    await _first(stop, broker.has_failed)
    _logger.info("stopping")
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.remove_signal_handler(number)  # a second signal ends the process immediately
    await broker.stop()
    _logger.info("stopped")
    return 1 if broker.has_failed.is_set() else 0


async def _first(*events: asyncio.Event) -> None:
    tasks = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _allow_many_files() -> None:
    """Raises the limit of open files to the maximum that the system allows: logs keep their files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
