"""Runs `ottla start --brokers N`."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ottla.broker.configs.broker_config import BROKER_CONFIG
from ottla.broker.configs.sources import collect_settings
from ottla.cli.local_cluster.launcher import Launcher, ZooKeeperEndedError
from ottla.cli.local_cluster.plan import (
    DEFAULT_DIRECTORY,
    ClusterPlan,
    plan_cluster,
    refuse_contradictions,
    refuse_other_data,
)
from ottla.cli.local_cluster.screen import Display, Lines, Screen
from ottla.cli.local_cluster.state import ClusterState, shown_path
from ottla.cli.local_cluster.tree_watch import TreeWatch
from ottla.cli.output import is_terminal, note
from ottla.cli.session import CommandError

_ZOOKEEPER_PORTS: Final = range(2181, 2281)
_LOCK: Final = "cluster.lock"
_TRIES: Final = 5
"""Ports for ZooKeeper that are tried."""


def run_cluster(
    size: int,
    config_file: Path | None,
    overrides: Sequence[str],
    environ: Mapping[str, str],
    *,
    directory: Path | None,
    host: str | None,
    port: int | None,
) -> int:
    """Runs the cluster until it is interrupted, and returns the exit code."""
    given = collect_settings(config_file, overrides, environ, BROKER_CONFIG)
    refuse_contradictions(given)
    directory = directory or DEFAULT_DIRECTORY
    refuse_other_data(directory)
    plan = plan_cluster(size, directory, given, host=host, port=port, zookeeper_port=_zookeeper_port())
    directory.mkdir(parents=True, exist_ok=True)
    with _locked(directory):
        check_ports(plan)
        for _ in range(_TRIES - 1):
            plan.write()
            try:
                return asyncio.run(_run(plan))
            except ZooKeeperEndedError:
                taken = plan.zookeeper.bind[1]
                if _bind_error("127.0.0.1", taken) is None:
                    raise  # for another reason
                # Another program, perhaps another cluster that starts, took the port after it was chosen.
                chosen = _zookeeper_port()
                note(f"Port {taken} was taken by another program. Trying port {chosen} for ZooKeeper.")
                plan = plan_cluster(size, directory, given, host=host, port=port, zookeeper_port=chosen)
        plan.write()
        return asyncio.run(_run(plan))


async def _run(plan: ClusterPlan) -> int:
    state = ClusterState.of(plan)
    watch = TreeWatch(plan.zookeeper.address)
    display: Display = Screen(state, shown_path(plan.directory)) if is_terminal() else Lines(state)
    launcher = Launcher(plan, state, display, watch)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, launcher.interrupt)
    watch.start()
    try:
        with display:
            for warning in plan.warnings:
                display.warn("config", warning, is_error=False)
            if left_out := plan.left_out():
                named = ", ".join(map(str, left_out))
                display.tell(f"{shown_path(plan.directory)} also has data of brokers that are not started: {named}")
            return await launcher.run()
    finally:
        await watch.close()


def _zookeeper_port() -> int:
    """The first free one: brokers and tools are told where it is."""
    for port in _ZOOKEEPER_PORTS:
        if _bind_error("127.0.0.1", port) is None:
            return port
    raise CommandError(f"no port from {_ZOOKEEPER_PORTS[0]} to {_ZOOKEEPER_PORTS[-1]} is free for ZooKeeper")


def check_ports(plan: ClusterPlan) -> None:
    """Raises if a broker could not listen: clients expect every broker where the command line says."""
    for broker in plan.brokers:
        host, port = broker.bind
        if port and (error := _bind_error(host, port)) is not None:
            why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror or error}"
            raise CommandError(
                f"{broker.name} cannot start: {host}:{port} {why}. Choose another first port with --port, or stop the "
                "process that uses it."
            )


def _bind_error(host: str, port: int) -> OSError | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Only one launcher may use a directory."""
    path = directory / _LOCK
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise CommandError(
                f"a cluster is already running in {directory} (process {holder}). Stop it, or choose another directory "
                "with --data-dir."
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            with suppress(OSError):
                file.truncate(0)
