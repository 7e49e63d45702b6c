"""What Spark needs is found, or its lack is told with what to do. Java is faked by scripts that say their version."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ottla.spark.environment import SparkUnavailableError, check_java, check_pyspark


def fake_java(folder: Path, *words: str, stream: int = 2) -> Path:
    """A `java` in this folder's bin that says this."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    lines = "\n".join(f"echo '{line}' >&{stream}" for line in words)
    java.write_text(f'#!/bin/sh\n[ "$1" = -version ] || exit 9\n{lines}\n')
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    "version", ['openjdk version "17.0.15" 2025-04-15', 'java version "21"', 'openjdk version "26-ea" 2026-03-17']
)
def test_a_java_that_will_do(tmp_path: Path, version: str) -> None:
    java = fake_java(tmp_path, "Picked up JAVA_TOOL_OPTIONS: -Xmx1g", version, "OpenJDK Server VM")
    assert check_java({"JAVA_HOME": str(tmp_path)}) == java
    assert check_java({"PATH": f"/nowhere{os.pathsep}{java.parent}"}) == java


def test_java_home_counts_more_than_the_path(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", 'java version "1.8.0_391"')
    new = fake_java(tmp_path / "new", 'java version "17.0.1"')
    assert check_java({"JAVA_HOME": str(tmp_path / "new"), "PATH": str(old.parent)}) == new
    with pytest.raises(SparkUnavailableError):
        check_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(new.parent)})


@pytest.mark.parametrize(
    ("says", "version"), [('java version "1.8.0_391"', "1.8.0_391"), ('x version "11.0.2"', "11.0.2")]
)
def test_a_java_that_is_too_old(tmp_path: Path, says: str, version: str) -> None:
    java = fake_java(tmp_path, says)
    with pytest.raises(SparkUnavailableError) as told:
        check_java({"JAVA_HOME": str(tmp_path)})
    sentence = str(told.value)
    assert f"Spark needs Java 17 or newer, but {java} is Java {version}." in sentence
    assert "apt install openjdk-17-jre-headless" in sentence


def test_no_java_at_all(tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailableError, match=r"no `java` on the PATH.*set JAVA_HOME or the PATH"):
        check_java({"PATH": str(tmp_path)})


def test_a_java_home_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailableError, match=f"JAVA_HOME is {tmp_path}, which has no bin/java"):
        check_java({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]})


def test_something_that_is_not_java(tmp_path: Path) -> None:
    fake_java(tmp_path, "what?")
    with pytest.raises(SparkUnavailableError, match="does not report a Java version"):
        check_java({"JAVA_HOME": str(tmp_path)})


def test_pyspark_is_there() -> None:
    check_pyspark()


def test_pyspark_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import ottla.spark

    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(SparkUnavailableError, match=r"pip install 'ottla\[spark\]'"):
        ottla.spark.session()


def test_pyspark_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "3.5.1")
    with pytest.raises(SparkUnavailableError, match=r"PySpark 3\.5\.1 is too old; 4\.2 is required"):
        check_pyspark()
