"""`ottla pipeline`: run Spark pipelines from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from ottla.cli.commands import Commands, on_cluster
from ottla.cli.session import CommandError, settings_of

app = Commands(
    help="Create and run Spark pipelines.",
    epilog="Start with [bold]ottla pipeline new[/]. Needs Java 17 and [bold]pip install 'ottla\\[spark]'[/].",
)

DEFAULT_MASTER: Final = "local[*]"


@app.command("run")
@on_cluster
def run(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Pipeline file, .py or .yaml.", show_default=False)],
    master: Annotated[
        str,
        typer.Option(
            "--master",
            "-m",
            metavar="MASTER",
            help="Run on this Spark master, for example local\\[4] or spark://host:7077.",
        ),
    ] = DEFAULT_MASTER,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", "-c", metavar="KEY=VALUE", help="Set a Spark config. Repeatable."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Store the checkpoint here; on a cluster all nodes must be able to access it, for example s3a://….",
            show_default="ottla-checkpoints/FILE, next to the file",
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Process all available records, then exit.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print Spark's log and full stack traces.")] = False,
) -> None:
    """Run a pipeline and show its progress: rows, rates, lag, watermark, state.

    A Python file defines a function pipeline(spark) that returns one or more writers that are not started yet:
    frame.writeStream…, a list of them, or a dict of names and writers. It finds the brokers in the environment variable
    OTTLA_BOOTSTRAP, which --bootstrap-server sets.

    A YAML file defines sources, SQL transformations and sinks. Create an example with [bold]ottla pipeline new[/].

    Press Ctrl-C to stop after the running micro-batch; the same command continues from the checkpoint. To start over,
    delete the checkpoint directory or choose another one. If a query fails, the exit code is 1.

    [bold]Examples[/]

    ottla pipeline run spending.yaml

    ottla pipeline run spending.py --once --bootstrap-server broker:9092

    ottla pipeline run spending.py --master spark://host:7077 --checkpoint s3a://lake/spending -c spark.cores.max=8
    """
    from ottla.cli.pipeline.run import RunOptions, run_pipeline

    settings: dict[str, str] = {}
    for pair in conf or ():
        key, equals, value = pair.partition("=")
        if not equals or not key.startswith("spark."):
            raise CommandError(
                f"--conf {pair}: use KEY=VALUE with a Spark config, for example spark.sql.shuffle.partitions=8"
            )
        settings[key] = value
    run_pipeline(RunOptions(file, master, settings, checkpoint, once, verbose, _named_cluster(context)))


@app.command("new")
def new(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="[DIR]",
            help="Directory for the files; created if it does not exist.",
            show_default="current directory",
        ),
    ] = Path(),
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Write YAML and SQL instead of Python.")] = False,
) -> None:
    """Write an example pipeline with sample data, and print the commands to try it.

    It reads orders as JSON from a topic, joins them with a table of customers, and sums them by minute and city into
    another topic; bad records go to a third topic.
    """
    from ottla.base.errors import OttlaError
    from ottla.spark.pipelines.example_files import write_example

    try:
        written = write_example(folder, as_yaml=as_yaml)
    except OttlaError as error:
        raise CommandError(str(error)) from None
    for path in written:
        typer.echo(f"wrote {path}")
    typer.echo("\nTo try it, run `ottla start` in another terminal, then:")
    for command in (
        "ottla topics create orders spending bad-orders",
        f"ottla produce orders < {written[2]}",
        f"ottla pipeline run {written[0]} --once",
        "ottla consume spending --from-beginning",
        "ottla consume bad-orders --from-beginning",
    ):
        typer.echo(f"  {command}")


def _named_cluster(context: typer.Context) -> str | None:
    """The bootstrap servers that the user chose; None for the default."""
    return settings_of(context).named_bootstrap()
