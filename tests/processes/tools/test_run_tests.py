"""The two runs of `make test`: all tests run once, and a failure of either run fails both."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import run_tests

PASSES = "def test_it(): pass\n"
FAILS = "def test_it(): assert False\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in ("unit", "models", "clients"):
        (tmp_path / "tests" / folder).mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '--import-mode=importlib'\n")
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    monkeypatch.setenv("WORKERS", "1")
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # each worker takes a second or two to start
    return tmp_path / "tests"


def test_both_runs_pass_and_no_test_runs_twice(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for folder in ("unit", "models", "clients"):
        (project / folder / f"test_{folder}.py").write_text(PASSES)
    assert run_tests.main(["-v"]) == 0
    output = capfd.readouterr().out
    assert output.count("PASSED") == 3
    assert output.index("1 passed") < output.index("2 passed"), "unit tests are told of last"


@pytest.mark.parametrize("folder", ["unit", "clients"])
def test_a_failure_in_either_run_fails(project: Path, capfd: pytest.CaptureFixture[str], folder: str) -> None:
    (project / "models" / "test_models.py").write_text(PASSES)
    (project / folder / f"test_{folder}.py").write_text(FAILS)
    assert run_tests.main([]) == 1
    assert "failed" in capfd.readouterr().out.splitlines()[-1]


def test_a_run_without_tests_does_not_count(project: Path) -> None:
    (project / "unit" / "test_unit.py").write_text(PASSES)
    assert run_tests.main([]) == 0


LUCKY = """
import pathlib

def test_it():
    seen = pathlib.Path(__file__).with_suffix(".seen")
    if not seen.exists():
        seen.touch()
        assert False
"""
"""Fails once."""


@pytest.mark.parametrize("arguments", [[], ["--compat"]], ids=["both", "compat"])
def test_what_fails_only_beside_others_is_named_and_passes(
    project: Path, capfd: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    (project / "clients" / "test_lucky.py").write_text(LUCKY)
    assert run_tests.main(arguments) == 0
    output = capfd.readouterr().out
    assert output[output.index("FLAKY") :].splitlines()[1].strip() == "tests/clients/test_lucky.py::test_it"


def test_many_failures_fail_at_once(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for number in range(run_tests.AGAIN_MAX + 1):
        (project / "clients" / f"test_{number}.py").write_text(LUCKY)
    assert run_tests.main(["--compat"]) == 1
    assert "again" not in capfd.readouterr().out


def test_the_group_of_a_test_is_not_part_of_its_name(project: Path) -> None:
    marked = "import pytest\n@pytest.mark.xdist_group('a group')\n@pytest.mark.parametrize('it', ['a@b'])\n"
    (project / "clients" / "test_lucky.py").write_text(LUCKY.replace("def test_it()", marked + "def test_it(it)"))
    assert run_tests.main(["--compat"]) == 0
