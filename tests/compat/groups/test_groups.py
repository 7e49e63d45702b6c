"""Kafka's consumers and tools for groups, of two versions and in both protocols, unmodified, beside our broker: what
they print is what they printed beside a real Kafka (`../tools/seen/groups-*.txt`, made by `record`).

With OTTLA_TEST_PEER=kafka the same is held to a real Kafka.
"""

from __future__ import annotations

import pytest

from compat.groups.runs import RUNS, run
from compat.once import Once
from compat.tools.peers import is_kafka
from compat.tools.transcripts import Said, load

SEEN = {name: load(name) for name in RUNS}

pytestmark = pytest.mark.compat


# One worker for each run: another would only wait for it.
@pytest.mark.parametrize(
    ("name", "step"),
    [
        pytest.param(name, step, marks=pytest.mark.xdist_group(f"java groups {name}"))
        for name, seen in SEEN.items()
        for step in seen
    ],
)
def test_they_print_what_they_print_beside_kafka(once: Once, name: str, step: str) -> None:
    said: dict[str, Said] = once(name, lambda place: run(name, place / "run"))
    assert str(said[step]) == str(expected(name, step))


def expected(name: str, step: str) -> Said:
    # Configs of groups came after Kafka 3.9, and with them the rights to see and to set them.
    if step.endswith(": rights") and not is_kafka():
        return Said(SEEN[name][step].command, "[READ, DELETE, DESCRIBE]\n", 0)
    return SEEN[name][step]
