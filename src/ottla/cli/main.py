"""The command `ottla`: its commands, what they share, and how it ends.

Modules of commands are imported with it, but what they need (a client, a broker, rich) only when they run: `ottla
--help` and `ottla start` must be quick.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from ottla import __version__
from ottla.cli import configs, consume, demo, groups, log_dump, pipeline, produce, start, topics
from ottla.cli.failures import explain
from ottla.cli.session import DEFAULT_BOOTSTRAP, Settings, settings_of

app = typer.Typer(
    name="ottla",
    help="Event streaming that speaks Kafka's protocol.",
    epilog="Begin with [bold]ottla start[/] in one terminal and [bold]ottla topics create orders[/] in another; "
    "[bold]ottla demo[/] shows it all by itself.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("start")(start.start)
app.add_typer(topics.app, name="topics")
app.add_typer(configs.app, name="configs")
app.add_typer(groups.app, name="groups")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(log_dump.app, name="log")
app.command("demo")(demo.demo)


@app.callback()
def everywhere(
    context: typer.Context,
    bootstrap: Annotated[
        str,
        typer.Option(
            "--bootstrap-server",
            "-b",
            envvar="OTTLA_BOOTSTRAP",
            metavar="HOST:PORT,…",
            help="Where to reach the cluster. May stand behind the command as well.",
        ),
    ] = DEFAULT_BOOTSTRAP,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="OTTLA_DEBUG", help="Show where in the code a failure came from.")
    ] = False,
) -> None:
    settings = settings_of(context)
    settings.bootstrap = bootstrap
    settings.debug = debug


@app.command()
def version() -> None:
    """Show which Ottla this is."""
    typer.echo(f"ottla {__version__} on Python {sys.version.split()[0]}")


def run(arguments: Sequence[str]) -> int:
    """Does what the arguments say; the exit code. Failures are told on standard error in a sentence or two: 1 where
    something could not be done, 2 where the command line is wrong."""
    settings = Settings()
    try:
        app(args=list(arguments), prog_name="ottla", obj=settings)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:
        if settings.debug:
            raise
        typer.secho("Error: ", fg="red", bold=True, err=True, nl=False)
        typer.echo(explain(error), err=True)
        return 1
    return 0


def main() -> None:
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
