"""`ottla pipeline run`: reads the file, starts Spark, and hands the queries to `watch`."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.base.errors import OttlaError
from ottla.cli.output import note
from ottla.cli.session import CommandError
from ottla.spark.environment import check_java, check_pyspark
from ottla.spark.sessions import end, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.spark.pipelines.python_files import Runnable

CHECKPOINTS: Final = "ottla-checkpoints"
"""The directory next to the file for checkpoints, unless another one is given."""

_LOG: Final = "spark.log"
_OUR_ERROR_OUTPUT: Final = Path("/dev/stderr")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The values of the command line."""

    file: Path
    master: str
    conf: Mapping[str, str]
    checkpoint: str | None
    once: bool
    verbose: bool
    bootstrap: str | None
    """None if neither the command line nor the environment sets it."""


def run_pipeline(options: RunOptions) -> None:
    """Runs the pipeline until it ends or is stopped. Raises `CommandError` with the reason if it fails."""
    try:
        _run(options)
    except OttlaError as error:
        if options.verbose:
            note("".join(traceback.format_exception(error)))
            note(str(getattr(error, "trace", "")))
        raise CommandError(str(error)) from error


def _run(options: RunOptions) -> None:
    if options.bootstrap is not None:
        os.environ["OTTLA_BOOTSTRAP"] = options.bootstrap  # where Python pipelines look for it
    check_pyspark()
    name, make = _read(options)
    check_java()
    checkpoint = _checkpoint(options)
    log = _log_file(options, checkpoint)
    note(f"Starting Spark on {options.master} …")
    spark = _session(options, name, checkpoint, log)
    try:
        _work(spark, name, make, options, checkpoint)
    except (OttlaError, CommandError):
        if not options.verbose:
            note(f"Spark's log is in {log}. Use --verbose to print it here.")
        raise
    finally:
        end(spark)


def _read(options: RunOptions) -> tuple[str, Callable[[SparkSession], Mapping[str, Runnable]]]:
    """The name of the pipeline and a function that creates its queries; everything that can be checked without Spark is
    checked."""
    file = options.file
    if not file.is_file():
        raise CommandError(f"{file} does not exist. Create an example with `ottla pipeline new`")
    if file.suffix in (".yaml", ".yml"):
        from ottla.spark.pipelines.yaml_spec import read_spec

        spec = read_spec(file, options.bootstrap)

        def build(spark: SparkSession) -> Mapping[str, Runnable]:
            from ottla.spark.pipelines import yaml_build

            return yaml_build.build(spec, spark)

        return spec.name, build
    if file.suffix == ".py":
        from ottla.spark.pipelines.python_files import check_file, load_function, queries_of

        check_file(file)
        return file.stem, lambda spark: queries_of(load_function(file), spark, file)
    raise CommandError(f"{file} is not a pipeline: use a .py or .yaml file")


def _checkpoint(options: RunOptions) -> str:
    place = options.checkpoint or str(options.file.parent / CHECKPOINTS / options.file.name)
    place = place if "://" in place else str(Path(place).absolute())
    is_new = "://" not in place and not any(Path(place).glob("*/offsets"))
    note(f"Checkpoint: {_shown(place)} ({'new' if is_new else 'continuing from it'})")
    return place


def _shown(place: str) -> str:
    return place.removeprefix(f"{Path.cwd()}{os.sep}")


def _log_file(options: RunOptions, checkpoint: str) -> Path:
    if options.verbose:
        return _OUR_ERROR_OUTPUT
    if "://" in checkpoint:
        return Path(tempfile.mkdtemp(prefix="ottla-pipeline-")) / _LOG
    folder = Path(checkpoint)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"the checkpoint directory {folder} cannot be created: {error.strerror}") from None
    return folder / _LOG


def _session(options: RunOptions, name: str, checkpoint: str, log: Path) -> SparkSession:
    from ottla.spark.pipelines.causes import root_cause
    from ottla.spark.pipelines.running import CHECKPOINTS as CHECKPOINT_KEY

    # Java starts the workers with our environment, so they find modules next to the file.
    beside = str(options.file.absolute().parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [beside, os.environ.get("PYTHONPATH")]))
    settings: dict[str, object] = {CHECKPOINT_KEY: checkpoint, **options.conf}
    if options.verbose:
        settings = {"spark.log.level": "WARN", **settings}
    try:
        return session(options.master, name, java_output=log, **settings)
    except OttlaError:
        raise
    except Exception as error:  # anything between Python and Java
        raise CommandError(
            f"Spark did not start on {options.master}: {root_cause(error)}. Its log is in {log}"
        ) from error


def _work(
    spark: SparkSession,
    name: str,
    make: Callable[[SparkSession], Mapping[str, Runnable]],
    options: RunOptions,
    checkpoint: str,
) -> None:
    from ottla.cli.pipeline.screen import Heading
    from ottla.cli.pipeline.watch import run_queries
    from ottla.spark.pipelines.running import start

    runnables = make(spark)
    if not runnables:
        note("Done: there is nothing to stream.")
        return
    run_queries(start(runnables, once=options.once), Heading(name, options.master, _shown(checkpoint)))
