"""Writes the example of `ottla pipeline new`."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

from ottla.spark.pipelines.errors import PipelineError

_PACKAGE: Final = "ottla.spark.pipelines.example"
_DATA: Final = ("customers.csv", "orders.jsonl")


def write_example(folder: Path, *, as_yaml: bool) -> list[Path]:
    """Writes the pipeline and sample data; returns the paths, the pipeline's first. Never overwrites a file."""
    names = ("spending.yaml" if as_yaml else "spending.py", *_DATA)
    for name in names:
        if (folder / name).exists():
            raise PipelineError(f"{folder / name} already exists: choose another directory, or delete it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / name).write_text(files(_PACKAGE).joinpath(name).read_text("utf-8"), "utf-8")
    except OSError as error:
        raise PipelineError(f"{error.filename or folder}: {error.strerror}") from None
    return [folder / name for name in names]
