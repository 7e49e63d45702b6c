"""Kafka's command-line tools of 3.9.1, unmodified, on three brokers of ours and Apache ZooKeeper: what they print is
what they printed beside three brokers of Kafka 3.9.1 (`../tools/seen/cluster-3.9.1.txt`, made by `record`).

With OTTLA_TEST_PEER=kafka the same is held to a real Kafka.
"""

from __future__ import annotations

import json
import re

import pytest

from compat.cluster.tool_runs import NAME, run
from compat.tools.peers import is_kafka
from compat.tools.transcripts import Said, load

SEEN = load(NAME)
REGISTRATION = "shell: get /brokers/ids/1"
# Compared in parts, by tests of their own: where a controller begins is chance, and ours registers a feature more.
IN_PARTS = {"see it anywhere", REGISTRATION}
# Kafka 3.9 with ZooKeeper creates replicas on brokers that it does not know. Ours refuses that, as Kafka does without.
REFUSED = {"an unknown broker", "create a topic on a broker that is gone"}

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400), pytest.mark.xdist_group("java tools on a cluster")]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Said]:
    return run(tmp_path_factory.mktemp("tools") / "cluster")


@pytest.mark.parametrize("step", [step for step in SEEN if step not in IN_PARTS | REFUSED])
def test_they_print_what_they_print_beside_kafka(said: dict[str, Said], step: str) -> None:
    assert str(said[step]) == str(SEEN[step])


@pytest.mark.parametrize("step", sorted(REFUSED))
def test_replicas_on_brokers_that_are_not_there_are_refused(said: dict[str, Said], step: str) -> None:
    assert "Error while executing topic command" in said[step].text
    assert said[step].exit == 1


def test_nothing_else_is_asked(said: dict[str, Said]) -> None:
    assert said.keys() == SEEN.keys()


def test_the_registration_names_the_transaction_version(said: dict[str, Said]) -> None:
    """Kafka 3.9 has no feature of its own. The rest of the node is the same."""
    feature = '"transaction.version":{"min_version":1,"max_version":2}'
    expected = SEEN[REGISTRATION].text if is_kafka() else SEEN[REGISTRATION].text.replace("{}", f"{{{feature}}}", 1)
    assert said[REGISTRATION].text == expected


def test_leaders_and_replicas_are_spread(said: dict[str, Said]) -> None:
    rows = re.findall(r"Leader: (\d)\tReplicas: (\S+)\tIsr: (\S+)", said["see it anywhere"].text)
    assert sorted(leader for leader, _, _ in rows) == ["1", "1", "2", "2", "3", "3"]
    assert all(replicas.startswith(leader) for leader, replicas, _ in rows)
    assert all(sorted(replicas.split(",")) == sorted(isr.split(",")) == ["1", "2", "3"] for _, replicas, isr in rows)
    seconds = {replicas.split(",")[1] for _, replicas, _ in rows}
    assert seconds == {"1", "2", "3"}


def test_lines_come_once_and_in_order_while_the_leader_dies(said: dict[str, Said]) -> None:
    *lines, end = said["consume while the leader dies"].text.splitlines()
    assert lines == [str(number) for number in range(len(lines))]
    assert end == f"Processed a total of {len(lines)} messages"


def test_what_is_expected_of_kafka() -> None:
    """Of what was recorded, so that a bad recording is not held up to us."""
    assert json.dumps([name for name, said in SEEN.items() if said.exit == -1]) == "[]"
    for step, words in {
        "list moves": "heavy-0: replicas: 1,3,2. adding: 3. removing: 2.",
        "see it move": "Adding Replicas: 3",
        "verify that it moves": "still in progress",
        "cancel": "Successfully cancelled partition reassignment",
        "verify": "Clearing topic-level throttles",
        "elect an unclean leader": "Successfully completed leader election (UNCLEAN)",
        "see what broker 3 uses": "message.max.bytes=1500000",
        "verify replicas": "max lag is 0",
    }.items():
        assert words in SEEN[step].text, step
