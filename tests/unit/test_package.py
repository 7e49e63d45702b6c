"""The package's own name: what it has, and that nothing is loaded before it is asked for."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import ottla

HEAVY = ("numba", "numpy", "pyarrow", "llvmlite", "fastavro", "google.protobuf")


@pytest.mark.parametrize("name", ottla.__all__)
def test_each_name_is_there_and_brings_nothing_heavy(name: str) -> None:
    program = (
        f"import sys; from ottla import {name}; print({name}.__name__, *sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == [name]


def test_the_package_alone_loads_no_client() -> None:
    program = "import sys, ottla; print(*(name for name in sys.modules if name.startswith('ottla.')))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


def test_what_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'ottla' has no attribute 'Produser'"):
        ottla.Produser  # noqa: B018
    assert set(ottla.__all__) <= set(dir(ottla))
    assert ottla.Producer is ottla.Producer


def test_it_tells_its_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", ottla.__version__)


def test_the_licence_is_there_in_full() -> None:
    text = (Path(__file__).parents[2] / "LICENSE").read_text("utf-8")
    assert "Apache License" in text
    assert [number for number in range(1, 10) if f"\n   {number}. " not in text] == []
    assert "END OF TERMS AND CONDITIONS" in text
