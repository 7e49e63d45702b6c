"""A pipeline in a Python file: a function `pipeline(spark)`, which returns what to run.

It returns writers that are not started, `frame.writeStream…`: one, a list, or a dict by name. They are started with a
name and a checkpoint each. Queries that the function started itself are monitored and stopped like the others; None
means that everything is already done, as for a batch job.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ottla.spark.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Runnable: TypeAlias = "DataStreamWriter | StreamingQuery"
PipelineFunction: TypeAlias = "Callable[[SparkSession], Any]"

FUNCTION: Final = "pipeline"
_MODULE: Final = "ottla_pipeline"


def check_file(file: Path) -> None:
    """Raises `PipelineError` for a file that is not Python, or that does not define `pipeline`.

    Does not execute it: that has to wait for Spark, which is needed to create column functions.
    """
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except SyntaxError as error:
        raise PipelineError(f"{file}:{error.lineno}: {error.msg}") from None
    except ValueError as error:
        raise PipelineError(f"{file} is not a valid Python file: {error}") from None
    if not any(_may_name_it(statement) for statement in tree.body):
        raise _nothing_there(file)


def _may_name_it(statement: ast.stmt) -> bool:
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return statement.name == FUNCTION
        case ast.Import() | ast.ImportFrom():
            return any((alias.asname or alias.name) in (FUNCTION, "*") for alias in statement.names)
        case ast.Assign() | ast.AnnAssign():
            made = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
            return any(name.id == FUNCTION and isinstance(name.ctx, ast.Store) for name in made)
        case _:  # `if` and similar statements may contain it
            blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody", "handlers")]
            return any(_may_name_it(inner) for block in blocks for inner in block)


def load_function(file: Path) -> PipelineFunction:
    """Loads the file's function. Raises `PipelineError` if the file cannot be loaded, or has none."""
    module = _load(file)
    function = getattr(module, FUNCTION, None)
    if function is None:
        raise _nothing_there(file)
    if not callable(function):
        raise PipelineError(f"{file}: `{FUNCTION}` must be a function, not {type(function).__name__}")
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise PipelineError(f"{file}: `{FUNCTION}` must take one argument, the Spark session") from None
    except ValueError:
        pass  # written in C: calling it will show whether it accepts an argument
    return function  # type: ignore[no-any-return]


def _nothing_there(file: Path) -> PipelineError:
    return PipelineError(f"{file} has no function `{FUNCTION}(spark)`. Create an example with `ottla pipeline new`")


def queries_of(function: PipelineFunction, spark: SparkSession, file: Path) -> dict[str, Runnable]:
    """Returns what to run, by name. Raises `PipelineError` if the function returns anything else."""
    try:
        result = function(spark)
    except Exception as error:
        raise PipelineError(f"{place_of(error, file)}: {told(error)}") from error
    return named(result, file)


def named(result: Any, file: Path) -> dict[str, Runnable]:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    match result:
        case None:
            return {}
        case Mapping():
            found = {str(name): one for name, one in result.items()}
        case str():
            found = {"": result}
        case Sequence():
            found = {f"{file.stem}-{number}": one for number, one in enumerate(result, 1)}
        case _:
            found = {file.stem: result}
    for one in found.values():
        if not isinstance(one, DataStreamWriter | StreamingQuery):
            raise PipelineError(
                f"{file}: `{FUNCTION}` returned {_kind(one)}; it must return `frame.writeStream…` without `.start()`, "
                "several of them in a list or a dict, or None"
            )
    return found


def told(error: Exception) -> str:
    """The message of an exception in a file, with its class if that adds information."""
    from ottla.spark.pipelines.causes import root_cause

    words = root_cause(error)
    if isinstance(error, PipelineError) or hasattr(error, "getCondition"):
        return words
    return words if words.startswith(type(error).__name__) else f"{type(error).__name__}: {words}"


def place_of(error: BaseException, file: Path) -> str:
    """The file, with the last of its lines that was running."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"{file}:{error.lineno}"
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file.absolute()
    ]
    return f"{file}:{lines[-1]}" if lines else str(file)


def _load(file: Path) -> ModuleType:
    from pyspark import cloudpickle

    spec = importlib.util.spec_from_file_location(f"{_MODULE}_{file.stem.replace('-', '_')}", file.absolute())
    if spec is None or spec.loader is None:
        raise PipelineError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    pickling: Any = cloudpickle  # it has no types
    pickling.register_pickle_by_value(module)  # workers cannot import it: its functions are sent to them
    # Modules in the same directory can be imported, as when Python runs the file itself.
    sys.path.insert(0, str(file.absolute().parent))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        where = f"{file}:{error.lineno}" if error.filename == str(file.absolute()) else f"{file}: {error.filename}"
        raise PipelineError(f"{where}: {error.msg}") from error
    except Exception as error:
        raise PipelineError(f"{place_of(error, file)}: {told(error)}") from error
    return module


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"
