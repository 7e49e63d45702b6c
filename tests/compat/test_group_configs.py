"""Kafka's tool for configs of groups beside our broker: what it prints is what it printed beside a real Kafka
(`tools/seen/group-configs.txt`).

With OTTLA_TEST_PEER=kafka the same is held to a real Kafka.
"""

from __future__ import annotations

import re

import pytest

from compat.once import Once
from compat.tools.group_configs import EVERYTHING, STEPS, run_group_configs
from compat.tools.peers import is_kafka
from compat.tools.transcripts import Said, load
from ottla.broker.configs.group_configs import GROUP_CONFIG

pytestmark = [pytest.mark.compat, pytest.mark.xdist_group("group configs")]


@pytest.fixture
def said(once: Once) -> dict[str, Said]:
    return once("group-configs", lambda place: run_group_configs(place / "run"))


@pytest.mark.parametrize("step", [step.name for step in STEPS if step.name != EVERYTHING])
def test_it_prints_what_it_prints_beside_kafka(said: dict[str, Said], step: str) -> None:
    assert str(said[step]) == str(load("group-configs")[step])


def test_all_configs_of_a_group(said: dict[str, Said]) -> None:
    """Kafka has more keys, of share groups and streams, and one of assignors that take long."""
    ours, theirs = (
        dict(re.findall(r"^  (\S+?)=(.*)$", transcript[EVERYTHING].text, re.MULTILINE))
        for transcript in (said, load("group-configs"))
    )
    assert is_kafka() or ours.keys() == {key.name for key in GROUP_CONFIG}
    assert ours == {key: theirs[key] for key in ours}
