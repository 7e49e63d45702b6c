"""The command `ottla`: registers its subcommands and shared options, and turns failures into exit codes.

Subcommand modules are imported at start, but their dependencies (a client, a broker, rich) only when they run, so that
`ottla --help` and `ottla start` are quick.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from ottla import __version__
from ottla.cli import (
    cluster,
    configs,
    consume,
    elect,
    groups,
    log_dump,
    produce,
    start,
    topics,
    transactions,
    zookeeper,
)
from ottla.cli.commands import Commands, on_cluster
from ottla.cli.demo import command as demo
from ottla.cli.failures import explain
from ottla.cli.pipeline import command as pipeline
from ottla.cli.reassign import command as reassign
from ottla.cli.session import CommandError, Settings, settings_of
from ottla.cli.streams import command as streams

app = Commands(
    name="ottla",
    help="Run and administer an event-streaming broker that speaks the Kafka protocol.",
    epilog="To get started, run [bold]ottla start[/] in one terminal and [bold]ottla topics create orders[/] in "
    "another, or run [bold]ottla demo[/].",
)
app.command("start")(start.start)
app.add_typer(cluster.app, name="cluster")
app.add_typer(topics.app, name="topics")
app.add_typer(configs.app, name="configs")
app.add_typer(groups.app, name="groups")
app.add_typer(transactions.app, name="transactions")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.add_typer(reassign.app, name="reassign")
app.add_typer(elect.app, name="elect")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(streams.app, name="streams")
app.add_typer(log_dump.app, name="log")
app.command("zookeeper")(zookeeper.zookeeper)
app.command("demo")(demo.demo)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"ottla {__version__} on Python {sys.version.split()[0]}")
        raise typer.Exit


@app.callback()
@on_cluster
def everywhere(
    context: typer.Context,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="OTTLA_DEBUG", help="Print a traceback when a command fails.")
    ] = False,
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", "-V", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    settings_of(context).debug = debug


@app.command()
def version() -> None:
    """Show the version."""
    _show_version(True)


def run(arguments: Sequence[str]) -> int:
    """Runs the command line and returns the exit code. Prints failures to standard error: 1 if the command failed, 2 if
    the command line is wrong."""
    settings = Settings()
    try:
        app(args=list(arguments), prog_name="ottla", obj=settings)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:
        if settings.debug:
            raise
        typer.secho("Error: ", fg="red", bold=True, err=True, nl=False)
        typer.echo(explain(error, _named_bootstrap(settings)), err=True)
        return 1
    return 0


def _named_bootstrap(settings: Settings) -> str | None:
    try:
        return settings.named_bootstrap()
    except CommandError:
        return None  # the config file cannot be read; that error is the one to report


def main() -> None:
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
