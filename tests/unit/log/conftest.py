"""Each test that asks for a `home` runs on the real disk and on the simulated one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.log.local_disk import LocalDisk
from ottla.testing.manual_clock import ManualClock
from ottla.testing.simulated_disk import SimulatedDisk
from support.logs.home import Home


@pytest.fixture(params=["local", "simulated"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    clock = ManualClock()
    if request.param == "local":
        return Home(LocalDisk(), clock, tmp_path)
    return Home(SimulatedDisk(clock=clock), clock, Path("/data"))
