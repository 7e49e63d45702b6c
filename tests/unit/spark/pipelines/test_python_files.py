"""Pipelines in Python files, as far as they go without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.example_files import write_example
from ottla.spark.pipelines.python_files import check_file, load_function, queries_of

NO_SESSION: Any = None


def file_of(folder: Path, text: str) -> Path:
    file = folder / "my-pipeline.py"
    file.write_text(text)
    return file


def test_a_function_that_has_nothing_left_to_do(tmp_path: Path) -> None:
    file = file_of(tmp_path, "def pipeline(spark):\n    return None\n")
    assert queries_of(load_function(file), NO_SESSION, file) == {}


def test_what_lies_beside_it_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "beside_my_pipeline.py").write_text("NUMBER = 7\n")
    file = file_of(tmp_path, "from beside_my_pipeline import NUMBER\ndef pipeline(spark): return [NUMBER]\n")
    with pytest.raises(PipelineError, match="returned an int"):
        queries_of(load_function(file), NO_SESSION, file)


def test_the_example_has_a_function(tmp_path: Path) -> None:
    assert callable(load_function(write_example(tmp_path, as_yaml=False)[0]))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1", r"my-pipeline\.py has no function `pipeline\(spark\)`"),
        ("pipeline = 3", "`pipeline` must be a function, not int"),
        ("def pipeline(): pass", "`pipeline` must take one argument, the Spark session"),
        ("def pipeline(spark, more): pass", "`pipeline` must take one argument"),
        ("x = (\n", r"my-pipeline\.py:1: '\(' was never closed"),
        ("x = 1\nimport nowhere_to_be_found", r"my-pipeline\.py:2: ModuleNotFoundError: No module named"),
        ("def f():\n  1 / 0\nf()", r"my-pipeline\.py:2: ZeroDivisionError: division by zero"),
    ],
)
def test_files_that_cannot_be_loaded(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        load_function(file_of(tmp_path, text))


@pytest.mark.parametrize(
    "text",
    [
        "def pipeline(spark): nowhere",
        "from nowhere import pipeline",
        "from nowhere import *",
        "import nowhere as pipeline",
        "pipeline = nowhere",
        "if nowhere:\n    def pipeline(spark): pass",
        "try:\n    x\nexcept ValueError:\n    pipeline = 3",
    ],
)
def test_a_file_is_checked_without_being_run(tmp_path: Path, text: str) -> None:
    check_file(file_of(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = pipeline", "has no function"),
        ("x = 1\npipeline(x)", r"my-pipeline\.py has no function `pipeline\(spark\)`"),
        ("class A:\n    def pipeline(spark): pass", "has no function"),
        ("x = (\n", r"my-pipeline\.py:1: '\(' was never closed"),
        ("x = 1\n\0", "is not a valid Python file|null bytes"),
    ],
)
def test_what_a_look_finds_wrong(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        check_file(file_of(tmp_path, text))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return 'x'", r"my-pipeline\.py: `pipeline` returned a str; it must return `frame\.writeStream"),
        ("return {'a': 1.5}", "returned a float"),
        ("raise KeyError('customer')", r"my-pipeline\.py:1: KeyError: 'customer'"),
    ],
)
def test_functions_that_return_something_else(tmp_path: Path, body: str, told: str) -> None:
    file = file_of(tmp_path, f"def pipeline(spark): {body}\n")
    with pytest.raises(PipelineError, match=told):
        queries_of(load_function(file), NO_SESSION, file)


def test_an_example_is_never_written_over_a_file(tmp_path: Path) -> None:
    (tmp_path / "orders.jsonl").write_text("mine")
    with pytest.raises(PipelineError, match=r"orders\.jsonl already exists"):
        write_example(tmp_path, as_yaml=False)
    assert [path.name for path in tmp_path.iterdir()] == ["orders.jsonl"]
