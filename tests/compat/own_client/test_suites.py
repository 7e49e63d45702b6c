"""Our client's own suites, which `make test` runs beside our broker, here beside Apache Kafka of both versions.

Each is a run of pytest of its own: the tests are the same files, and the broker is chosen by OTTLA_TEST_PEER.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.compat

ROOT = Path(__file__).parents[3]
TIME_LIMIT_S = 400
DIALECT = ["tests/clients", "--ignore=tests/clients/own", "--ignore=tests/clients/groups"]
SUITES = {
    "own": ["tests/clients/own"],
    "dialect": [*DIALECT, "-k", "ottla"],
    "groups": ["tests/clients/groups", "-k", "ottla"],
    # The newer protocol came to groups after ZooKeeper had gone.
    "classic-groups": ["tests/clients/groups", "-k", "ottla and not consumer"],
}


@pytest.mark.parametrize(
    ("peer", "suite"),
    [
        ("kafka-4.3.1", "own"),
        ("kafka-3.9.1", "own"),
        ("kafka-4.3.1", "dialect"),
        ("kafka-3.9.1", "dialect"),
        ("kafka-4.3.1", "groups"),
        ("kafka-3.9.1", "classic-groups"),
    ],
)
def test_it_holds_beside_kafka(peer: str, suite: str, tmp_path: Path) -> None:
    # Nothing of the run that this test is part of may leak into its own.
    settings = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    result = subprocess.run(
        [*command, "-m", "not compat", f"--basetemp={tmp_path / 'run'}", *SUITES[suite]],
        cwd=ROOT,
        env={**settings, "OTTLA_TEST_PEER": peer},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIME_LIMIT_S,
    )
    assert result.returncode == 0, result.stdout[-20_000:] + result.stderr[-5_000:]
