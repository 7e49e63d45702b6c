"""`ottla start`: a broker, here and now."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ottla.broker.broker import ReadyInfo

READY = "ready at"
"""Stands in the first line that a broker says on standard output, before its address."""


def start(
    config_file: Annotated[
        Path | None,
        typer.Argument(metavar="[CONFIG_FILE]", help="A server.properties as Kafka has it.", show_default=False),
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option("--override", "-o", metavar="KEY=VALUE", help="A config; it counts more than the file's."),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", "-d", help="Where the data lies.", show_default="./ottla-data")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", "-p", min=0, max=65535, help="The port; 0 for any free one.", show_default="9092"),
    ] = None,
) -> None:
    """Start a broker. Ctrl-C stops it in good order.

    Without any argument it listens on port 9092 and keeps its data in ./ottla-data.

    [bold]Examples[/]

    ottla start

    ottla start --data-dir /var/lib/ottla --port 19092

    ottla start server.properties --override log.retention.hours=24
    """
    from ottla.broker.config import load_config
    from ottla.broker.run import run_broker

    overrides = list(override or [])
    if data_dir is not None:
        overrides.append(f"ottla.data.dir={data_dir}")
    if port is not None:
        overrides.append(f"listeners=PLAINTEXT://:{port}")
    code = run_broker(load_config(config_file, overrides, os.environ), _tell)
    raise typer.Exit(code)


def _tell(ready: ReadyInfo) -> None:
    """What to know and what to try, on standard output; programs that start a broker read the first line."""
    first = ready.listeners[0]
    host = f"[{first.host}]" if ":" in first.host else first.host
    address = f"{host}:{first.port}"
    typer.echo(f"Ottla is {READY} {address}")
    typer.echo(f"  broker {ready.broker_id} of cluster {ready.cluster_id}, {ready.topic_count} topics")
    typer.echo(f"  data in {ready.data}")
    if ready.metrics_port is not None:
        typer.echo(f"  metrics on port {ready.metrics_port}")
    if sys.stdout.isatty():
        server = "" if first.port == 9092 else f" -b {address}"
        typer.echo("\nTry in another terminal:")
        typer.echo(f"  ottla topics create orders --partitions 3{server}")
        typer.echo(f"  ottla produce orders{server}")
        typer.echo(f"  ottla consume orders --from-beginning{server}")
        typer.echo(f"  kcat -b {address} -L")
        typer.echo("\nCtrl-C stops the broker.")
    sys.stdout.flush()
