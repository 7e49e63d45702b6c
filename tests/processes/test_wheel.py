"""The wheel in an environment that has nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import ottla
from ottla.testing.broker import Broker

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "constraints.txt"
TIMEOUT_S = 100.0

CLIENT = """
import sys
import ottla, ottla.client
from ottla import Admin, Consumer, Producer

broker = sys.argv[1]
with Producer(bootstrap_servers=broker) as producer:
    producer.send("orders", b"hello", key=b"k").result(60)
with Consumer(bootstrap_servers=broker, group_id="g", auto_offset_reset="earliest") as consumer:
    consumer.subscribe(["orders"])
    print(ottla.__version__, *(record.value for record in consumer.poll(60)))
"""
PACKAGES = "from importlib.metadata import distributions; print(*sorted({one.name.lower() for one in distributions()}))"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a command away from the checkout, whose sources must not be found."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OTTLA_"))}
    environment["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"

    def call(*command: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        result = subprocess.run(
            [*map(str, command)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert result.returncode == code, (command, result.stdout, result.stderr)
        return result

    return call


@pytest.mark.timeout(300)
def test_the_wheel_in_a_bare_environment(tmp_path: Path, run: Run) -> None:
    """It has a client, which needs neither the command's packages nor a broker's."""
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path / "wheels", ROOT)
    (wheel,) = (tmp_path / "wheels").iterdir()
    assert wheel.name == f"ottla-{ottla.__version__}-py3-none-any.whl"

    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare")
    python = tmp_path / "bare" / "bin" / "python"
    install = (
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-compile",
        "--constraint",
        CONSTRAINTS,
    )
    run(*install, wheel)
    assert run(python, "-c", PACKAGES).stdout.split() == ["cramjam", "crc32c", "isal", "ottla", "uvloop"]

    missing = run(python.with_name("ottla"), "topics", "list", code=1).stderr
    assert missing == "Error: The command `ottla` needs typer. Install it with `pip install 'ottla[cli]'`.\n"
    # pip takes the Ottla that is installed, and asks an index only for what the extra adds.
    extra = run(*install, "--no-index", "ottla[cli]", code=1).stderr
    assert f"Cannot install ottla[cli]=={ottla.__version__}" in extra
    with Broker() as broker:
        printed = run(python, "-W", "error", "-c", CLIENT, broker.bootstrap).stdout
    assert printed == f"{ottla.__version__} b'hello'\n"
