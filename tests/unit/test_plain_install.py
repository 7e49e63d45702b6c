"""What a broker needs loads without the extras: no numba, numpy or pyarrow, and nothing that only developers have."""

from __future__ import annotations

import subprocess
import sys

import pytest

EXTRAS = (
    "numba",
    "numpy",
    "pyarrow",
    "llvmlite",
    "rich",
    "typer",
    "prometheus_client",
    "hypothesis",
    "kio",
    "kafka",
    "aiokafka",
    "pyspark",
)


@pytest.mark.parametrize(
    "room",
    [
        "ottla.base.config",
        "ottla.wire.framing",
        "ottla.records",
        "ottla.log.directories",
        "ottla.broker.run",
        "ottla.client",
    ],
)
def test_a_room_of_the_broker_loads_no_extra(room: str) -> None:
    program = f"import sys, {room}; print(*sorted(set({EXTRAS!r}) & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []
