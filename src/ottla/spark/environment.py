"""Checks what Spark needs on this machine: PySpark, and a recent Java. Can be imported without either."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.base.errors import OttlaError

JAVA_NEEDED: Final = 17
PYSPARK_NEEDED: Final = (4, 2)

_ASK_TIMEOUT_S: Final = 30
_VERSION: Final = re.compile(r'version "(?P<number>[^"]+)"')


class SparkUnavailableError(OttlaError):
    """Spark cannot run here; the message says what is missing and what to do."""


def check_pyspark() -> None:
    """Raises `SparkUnavailableError` if PySpark is missing or too old."""
    try:
        from pyspark import __version__ as found
    except ImportError as error:
        if error.name not in ("pyspark", "py4j"):
            raise
        raise SparkUnavailableError("PySpark is not installed. Install it with `pip install 'ottla[spark]'`") from None
    if tuple(int(digits) for digits in re.findall(r"\d+", found)[:2]) < PYSPARK_NEEDED:
        needed = ".".join(map(str, PYSPARK_NEEDED))
        raise SparkUnavailableError(
            f"PySpark {found} is too old; {needed} is required. Install it with `pip install 'ottla[spark]'`"
        )


def check_java(environ: Mapping[str, str] | None = None) -> Path:
    """Returns the Java that Spark will start: that of JAVA_HOME, or else the one on the PATH.

    Raises `SparkUnavailableError` if there is none, or if it is too old.
    """
    environ = os.environ if environ is None else environ
    java = _find_java(environ)
    version = _version_of(java)
    if version is None:
        raise SparkUnavailableError(f"{java} does not report a Java version. {_advice(environ)}")
    if _feature(version) < JAVA_NEEDED:
        raise SparkUnavailableError(
            f"Spark needs Java {JAVA_NEEDED} or newer, but {java} is Java {version}. {_advice(environ)}"
        )
    return java


def _find_java(environ: Mapping[str, str]) -> Path:
    home = environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise SparkUnavailableError(
                f"Spark needs Java {JAVA_NEEDED} or newer, but JAVA_HOME is {home}, which has no bin/java. "
                f"{_advice(environ)}"
            )
        return java
    found = shutil.which("java", path=environ.get("PATH", ""))
    if found is None:
        raise SparkUnavailableError(
            f"Spark needs Java {JAVA_NEEDED} or newer, but there is no `java` on the PATH. {_advice(environ)}"
        )
    return Path(found)


def _version_of(java: Path) -> str | None:
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=_ASK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(answer.stderr) or _VERSION.search(answer.stdout)
    return found["number"] if found else None


def _feature(version: str) -> int:
    """17 for "17.0.15" or "17-ea", 8 for "1.8.0_391", an old scheme."""
    numbers = [int(digits) for digits in re.findall(r"\d+", version)] or [0]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def _advice(environ: Mapping[str, str]) -> str:
    where = "JAVA_HOME" if environ.get("JAVA_HOME") else "JAVA_HOME or the PATH"
    return (
        f"Install it (Debian, Ubuntu: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17) "
        f"and set {where}."
    )
