"""kcat beside our broker: what it prints is what it printed beside a real Kafka (`tools/seen/kcat.txt`).

With OTTLA_TEST_PEER=kafka the same is held to a real Kafka.
"""

from __future__ import annotations

import pytest

from compat.once import Once
from compat.tools.kcat import STEPS, run_kcat
from compat.tools.transcripts import Said, load

pytestmark = [pytest.mark.compat, pytest.mark.xdist_group("kcat")]


@pytest.fixture
def said(once: Once) -> dict[str, Said]:
    return once("kcat", lambda place: run_kcat(place / "run"))


@pytest.mark.parametrize("step", [step.name for step in STEPS])
def test_it_prints_what_it_prints_beside_kafka(said: dict[str, Said], step: str) -> None:
    assert str(said[step]) == str(load("kcat")[step])
