"""The two runs of `make test`: all tests run once, and a failure of either run fails both."""

from __future__ import annotations

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
