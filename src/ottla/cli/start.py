"""`ottla start`: start a broker in the foreground."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.session import CommandError

if TYPE_CHECKING:
    from ottla.broker.broker import ReadyInfo

READY = "ready at"
"""Part of the first line that a broker prints to standard output, before its address."""


def start(
    config_file: Annotated[
        Path | None,
        typer.Argument(
            metavar="CONFIG_FILE", help="Read broker configs from this server.properties file.", show_default=False
        ),
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--override", "-o", metavar="KEY=VALUE", help="Set a config; overrides the value from the file. Repeatable."
        ),
    ] = None,
    brokers: Annotated[
        int | None,
        typer.Option(
            "--brokers",
            "-n",
            min=1,
            max=100,
            help="Start a cluster of this many brokers and a ZooKeeper, for development.",
            show_default=False,
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            "--data",
            "-d",
            help="Store data in this directory.",
            show_default="./ottla-data; with --brokers, ./ottla-cluster",
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            help="Listen on this address; use 0.0.0.0 to accept connections from other machines.",
            show_default="127.0.0.1 without a config file",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            "-p",
            min=0,
            max=65535,
            help="Listen on this port; 0 picks a free one. With --brokers, the port of the first broker.",
            show_default="9092",
        ),
    ] = None,
) -> None:
    """Start a broker, or a cluster of brokers for development. Stop it with Ctrl-C.

    By default it listens on 127.0.0.1:9092, which only this machine can reach, and stores its data in ./ottla-data.

    With --brokers, it starts several brokers, on ports 9092, 9093, …, and a ZooKeeper, each in its own process.

    A local cluster is for development. In production, run brokers on several machines, and a ZooKeeper ensemble.

    [bold]Examples[/]

    ottla start

    ottla start --data-dir /var/lib/ottla --port 19092

    ottla start --host 0.0.0.0

    ottla start --brokers 3

    ottla start server.properties --override log.retention.hours=24
    """
    if brokers is not None:
        from ottla.cli.local_cluster.command import run_cluster

        raise typer.Exit(
            run_cluster(brokers, config_file, override or [], os.environ, directory=data_dir, host=host, port=port)
        )
    from ottla.broker.configs.broker_config import load_config
    from ottla.broker.run import run_broker

    overrides = list(override or [])
    if data_dir is not None:
        from ottla.cli.local_cluster.plan import is_cluster

        if is_cluster(data_dir):
            raise CommandError(
                f"{data_dir} has the data of a cluster. Start it with --brokers, or choose another directory with "
                "--data-dir."
            )
        overrides.append(f"ottla.data.dir={data_dir}")
    config = load_config(config_file, overrides, os.environ, host=host, port=port, is_private=True)
    raise typer.Exit(run_broker(config, _tell))


def _tell(ready: ReadyInfo) -> None:
    """Prints the address and commands to try. Programs that start a broker parse the first line."""
    first = ready.listeners[0]
    host = f"[{first.host}]" if ":" in first.host else first.host
    address = f"{host}:{first.port}"
    typer.echo(f"Ottla is {READY} {address}")
    topics = "" if ready.topic_count is None else f", {_topics(ready.topic_count)}"
    typer.echo(f"  broker {ready.broker_id} of cluster {ready.cluster_id}{topics}")
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
