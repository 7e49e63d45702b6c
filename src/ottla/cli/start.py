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
        typer.Argument(metavar="CONFIG_FILE", help="Read this server.properties, as Kafka does.", show_default=False),
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option("--override", "-o", metavar="KEY=VALUE", help="Set a config; overrides the value from the file."),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", "-d", help="Keep the data here.", show_default="./ottla-data")
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            help="Listen on this address; 0.0.0.0 accepts connections from other machines.",
            show_default="127.0.0.1 without a config file",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", "-p", min=0, max=65535, help="Listen on this port; 0 takes any free one.", show_default="9092"
        ),
    ] = None,
) -> None:
    """Start a broker. Ctrl-C stops it cleanly.

    Without any argument it listens on 127.0.0.1:9092, for programs on this machine only, and keeps its data in
    ./ottla-data.

    [bold]Examples[/]

    ottla start

    ottla start --data-dir /var/lib/ottla --port 19092

    ottla start --host 0.0.0.0

    ottla start server.properties --override log.retention.hours=24
    """
    from ottla.broker.configs.broker_config import load_config
    from ottla.broker.run import run_broker

    overrides = list(override or [])
    if data_dir is not None:
        overrides.append(f"ottla.data.dir={data_dir}")
    config = load_config(config_file, overrides, os.environ, host=host, port=port, is_private=True)
    raise typer.Exit(run_broker(config, _tell))


def _tell(ready: ReadyInfo) -> None:
    """What to know and what to try, on standard output; programs that start a broker read the first line."""
    first = ready.listeners[0]
    host = f"[{first.host}]" if ":" in first.host else first.host
    address = f"{host}:{first.port}"
    typer.echo(f"Ottla is {READY} {address}")
    typer.echo(f"  broker {ready.broker_id} of cluster {ready.cluster_id}, {_topics(ready.topic_count)}")
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


def _topics(count: int) -> str:
    return f"{count} topic" if count == 1 else f"{count} topics"
