"""`ottla zookeeper`: the embedded ZooKeeper in a process of its own."""

from __future__ import annotations

import asyncio
import errno
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from ottla.cli.session import CommandError

_BIND_FAILURES: Final = {
    errno.EADDRINUSE: "another process uses the port. Choose another one with --listen, or stop that process.",
    errno.EADDRNOTAVAIL: "this machine does not have the address. Choose another one with --listen.",
}


def zookeeper(
    listen: Annotated[
        str,
        typer.Option("--listen", "-l", metavar="HOST:PORT", help="Listen on this address; port 0 takes a free one."),
    ] = "127.0.0.1:2181",
    data: Annotated[Path, typer.Option("--data", "-d", help="Keep the tree in this folder.")] = Path("ottla-zookeeper"),
    tick_ms: Annotated[
        int,
        typer.Option("--tick-ms", min=10, help="Allow session timeouts of 2 to 20 ticks, as Apache ZooKeeper does."),
    ] = 2000,
) -> None:
    """Start a ZooKeeper server for development and small clusters. Ctrl-C stops it.

    It speaks the protocol of Apache ZooKeeper, so that Kafka brokers, kazoo and zookeeper-shell can use it. It is a
    single server: for production, run an ensemble of Apache ZooKeeper.

    [bold]Examples[/]

    ottla zookeeper

    ottla zookeeper --listen 127.0.0.1:2182 --data /var/lib/ottla-zookeeper
    """
    from ottla.broker.observability.logging_setup import configure
    from ottla.zookeeper.server.core import ServerSettings
    from ottla.zookeeper.server.run import serve

    host, port = _address(listen)
    configure("text", "INFO")

    def tell(actual_port: int) -> None:
        typer.echo(f"ZooKeeper is ready at {host}:{actual_port}")
        typer.echo(f"  data in {data}")
        typer.echo("  one server only: run an ensemble of Apache ZooKeeper in production")
        sys.stdout.flush()

    try:
        asyncio.run(serve(data, host.strip("[]"), port, ServerSettings(2 * tick_ms, 20 * tick_ms), tell))
    except OSError as error:
        reason = _BIND_FAILURES.get(error.errno or 0)
        if reason is None:
            raise
        raise CommandError(f"Cannot listen on {listen}: {reason}") from error


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise CommandError(f"--listen {text!r} is not an address. Write it as HOST:PORT, for example 127.0.0.1:2181.")
    return host, int(port)
