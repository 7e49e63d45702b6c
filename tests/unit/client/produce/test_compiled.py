"""Some modules can be compiled (docs/decisions/0014). `make compiled` runs the producer's tests with a wheel in which
they are, and sets OTTLA_TEST_COMPILED; everywhere else they are Python."""

from __future__ import annotations

import os
import tomllib
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import FunctionType

import pytest

from ottla.client import loop_thread

ROOT = Path(__file__).parents[4]
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
MODULES: list[str] = WHEEL["hooks"]["custom"]["modules"]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_compiled_where_it_should_be_and_nowhere_else(name: str) -> None:
    is_compiled = str(import_module(name).__file__).endswith(tuple(EXTENSION_SUFFIXES))
    assert is_compiled == ("OTTLA_TEST_COMPILED" in os.environ)


def test_no_compiled_module_is_left_in_the_checkout() -> None:
    assert [path for suffix in EXTENSION_SUFFIXES for path in (ROOT / "src").rglob(f"*{suffix}")] == []


def test_what_waits_in_slices_is_interpreted() -> None:
    """CPython looks for signals only between the instructions of its own code."""
    assert isinstance(loop_thread.wait_for, FunctionType)
