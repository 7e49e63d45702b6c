"""`ottla pipeline`: pipelines on Spark, run from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from ottla.cli.commands import Commands, on_cluster
from ottla.cli.session import CommandError, settings_of

app = Commands(
    help="Run data pipelines over topics, on Spark.",
    epilog="Begin with [bold]ottla pipeline new[/]. Needs Java 17 and [bold]pip install 'ottla\\[spark]'[/].",
)

DEFAULT_MASTER: Final = "local[*]"


@app.command("run")
@on_cluster
def run(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The pipeline: a .py or a .yaml file.", show_default=False)
    ],
    master: Annotated[
        str,
        typer.Option(
            "--master", "-m", metavar="MASTER", help="Where Spark runs: local\\[4], spark://host:7077, yarn, k8s://…"
        ),
    ] = DEFAULT_MASTER,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", "-c", metavar="KEY=VALUE", help="A setting of Spark's; may be given again and again."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Where it keeps its place; for a cluster, a folder that all of it reaches, as in s3a://….",
            show_default="ottla-checkpoints/FILE, beside the file",
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when all that is there now has been read.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what Spark says, and whole traces.")] = False,
) -> None:
    """Run a pipeline, and show how it fares: rows, rates, lag, watermark, state.

    A Python file has a function pipeline(spark), which returns what it writes, not yet started: frame.writeStream…,
    one, a list, or a dict by name. The variable OTTLA_BOOTSTRAP tells it the cluster; --bootstrap-server sets it.

    A YAML file names sources, transformations in SQL, and sinks. [bold]ottla pipeline new[/] writes examples.

    Ctrl-C ends it after the running batch, and the same command goes on from there: the checkpoint has its place. To
    begin anew, remove that folder, or name another. A failure ends it with the reason and exit code 1.

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
                f"--conf {pair}: write KEY=VALUE with a key of Spark's, as in spark.sql.shuffle.partitions=8"
            )
        settings[key] = value
    run_pipeline(RunOptions(file, master, settings, checkpoint, once, verbose, _named_cluster(context)))


@app.command("new")
def new(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Where to; made if it is not there.", show_default="this folder")
    ] = Path(),
    as_yaml: Annotated[bool, typer.Option("--yaml", help="In YAML and SQL, in place of Python.")] = False,
) -> None:
    """Write an example: a pipeline that works, data to try it on, and the commands to see it run.

    Orders in a topic are read as JSON, joined with a table of customers, and summed up by minute and city into another
    topic; what cannot be read goes to a third.
    """
    from ottla.base.errors import OttlaError
    from ottla.spark.pipelines.example_files import write_example

    try:
        written = write_example(folder, as_yaml=as_yaml)
    except OttlaError as error:
        raise CommandError(str(error)) from None
    for path in written:
        typer.echo(f"wrote {path}")
    typer.echo("\nTry it, with `ottla start` in another terminal:")
    for command in (
        "ottla topics create orders spending bad-orders",
        f"ottla produce orders < {written[2]}",
        f"ottla pipeline run {written[0]} --once",
        "ottla consume spending --from-beginning",
        "ottla consume bad-orders --from-beginning",
    ):
        typer.echo(f"  {command}")


def _named_cluster(context: typer.Context) -> str | None:
    """The cluster that is named in any way; None where it is the default."""
    return settings_of(context).named_bootstrap()
