"""Runs a quick part of the tests on every supported Python that this machine has: `make test-pythons`.

Each Python gets an environment of its own in `.venvs/`, made when it is missing or older than what it is made from.
Spark is left out: its packages are large, and what differs between Pythons is asyncio, threads and processes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
HOME: Final = ROOT / ".venvs"
SUPPORTED: Final = ("3.11", "3.12", "3.13")
OLD_KIO: Final = "kio-0.6.2"
"""An oracle of the tests with compiled parts, beside its newer self, as `make setup` has it in `.build`."""
MADE_FROM: Final = ("pyproject.toml", "constraints.txt", f"tests/support/oracles/{OLD_KIO}.txt")
KERNELS: Final = ("ottla.records", "ottla.log.compaction", "ottla.client.produce", "ottla.net")
"""What holds kernels to compile: once for each Python, not in every process of a test."""
EXTRAS: Final = ".[avro,broker,columns,protobuf]"
QUICK: Final = (
    "tests/unit/base",
    "tests/unit/cli",
    "tests/unit/client",
    "tests/unit/net",
    "tests/unit/test_package.py",
    "tests/clients/test_idempotence.py",
    "tests/clients/test_records.py",
)
_PROBE: Final = "import ensurepip, ssl, sqlite3, sys, venv; print('.'.join(map(str, sys.version_info[:2])))"


def candidates(version: str, environment: dict[str, str], home: Path) -> Iterable[Path]:
    """Where this version of Python may be: on the path, or among those that pyenv has."""
    if found := shutil.which(f"python{version}", path=environment.get("PATH", "")):
        yield Path(found)
    pyenv = Path(environment.get("PYENV_ROOT") or home / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"), reverse=True)


def works(python: Path, version: str) -> bool:
    """Whether it is that version and complete. A shim of pyenv is there also where nothing is behind it."""
    try:
        probe = subprocess.run([python, "-c", _PROBE], capture_output=True, text=True, check=False, timeout=60)
    except OSError:
        return False
    return probe.stdout.strip() == version


def find_pythons(environment: dict[str, str], home: Path) -> dict[str, Path]:
    """Each supported version that is there."""
    found: dict[str, Path] = {}
    for version in SUPPORTED:
        for python in candidates(version, environment, home):
            if works(python, version):
                found[version] = python
                break
    return found


def prepare(version: str, python: Path) -> Path:
    """The environment's own Python."""
    place = HOME / version
    stamp, own = place / ".ready", place / "bin" / "python"
    newest = max((ROOT / name).stat().st_mtime for name in MADE_FROM)
    if stamp.exists() and stamp.stat().st_mtime >= newest:
        return own
    _say(f"Python {version}: preparing {place.relative_to(ROOT)}")
    subprocess.run([python, "-m", "venv", "--clear", place], check=True)
    pip = [str(own), "-m", "pip", "install", "--quiet"]
    constraint = ["--constraint", "constraints.txt"]
    subprocess.run([*pip, *constraint, "--upgrade", "pip"], check=True, cwd=ROOT)
    subprocess.run([*pip, *constraint, "--editable", EXTRAS, "--group", "dev"], check=True, cwd=ROOT)
    old_kio = ["--no-deps", "--target", str(place / OLD_KIO), "--requirement", f"tests/support/oracles/{OLD_KIO}.txt"]
    subprocess.run([*pip, *old_kio], check=True, cwd=ROOT)
    stamp.touch()
    return own


def run(version: str, python: Path, arguments: Sequence[str]) -> bool:
    for package in KERNELS:
        subprocess.run([python, "-m", f"{package}.warm"], check=True, cwd=ROOT)
    _say(f"Python {version}: {' '.join(arguments)}")
    marks = "not compat and not soak and not spark"
    command = [
        str(python),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--dist",
        "loadgroup",
        "-m",
        marks,
        *arguments,
    ]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def main(arguments: Sequence[str]) -> int:
    found = find_pythons(dict(os.environ), Path.home())
    for version in SUPPORTED:
        if version not in found:
            _say(f"Python {version}: not on this machine")
    if not found:
        return 1
    tests = [*arguments] or ["-n", "2", *QUICK]
    failed = [version for version, python in found.items() if not run(version, prepare(version, python), tests)]
    if failed:
        _say(f"Failed on Python {', '.join(failed)}.")
    return int(bool(failed))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
