"""Which Pythons `make test-pythons` finds."""

from __future__ import annotations

from pathlib import Path

import pythons


def interpreter(path: Path, version: str) -> Path:
    """A program that says, as a Python would, that it is this version; without one, a shim that leads nowhere."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{f'echo {version}' if version else 'exit 127'}\n")
    path.chmod(0o755)
    return path


def test_pythons_on_the_path_and_of_pyenv_are_found(tmp_path: Path) -> None:
    on_path = interpreter(tmp_path / "bin" / "python3.11", "3.11")
    interpreter(tmp_path / "bin" / "python3.12", "")
    interpreter(tmp_path / ".pyenv/versions/3.11.7/bin/python3.11", "3.11")
    of_pyenv = interpreter(tmp_path / ".pyenv/versions/3.12.1/bin/python3.12", "3.12")
    interpreter(tmp_path / ".pyenv/versions/3.13.0/bin/python3.13", "3.14")
    found = pythons.find_pythons({"PATH": str(tmp_path / "bin")}, tmp_path)
    assert found == {"3.11": on_path, "3.12": of_pyenv}


def test_where_there_is_none_nothing_is_found(tmp_path: Path) -> None:
    assert pythons.find_pythons({}, tmp_path) == {}
