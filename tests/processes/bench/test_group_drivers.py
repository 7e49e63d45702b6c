"""The loads of the groups' bench, run as it runs them, on a broker of ours; and how pauses are reckoned."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.broker.control import Control
from bench.groups.classic import ranges
from bench.groups.load import await_coordinators, await_offsets
from bench.groups.ownership import Change, Ownership

from ottla.testing.broker import Broker

ROOT = Path(__file__).resolve().parents[3]
TOPIC = "consumed"
PARTITIONS = 8


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    timeouts = {"group.min.session.timeout.ms": "1000", "group.consumer.min.session.timeout.ms": "1000"}
    chosen = {"group.consumer.session.timeout.ms": "1000", "group.consumer.heartbeat.interval.ms": "500"}
    least = {"group.consumer.min.heartbeat.interval.ms": "500", "group.initial.rebalance.delay.ms": "0"}
    with Broker({**timeouts, **chosen, **least}) as running:
        with Control(running.bootstrap) as control:
            control.create_topic(TOPIC, PARTITIONS)
            await_coordinators(control, TOPIC)
        yield running


def run(load: str, broker: Broker, **arguments: Any) -> subprocess.CompletedProcess[str]:
    given = json.dumps({"address": broker.bootstrap, "topic": TOPIC, **arguments})
    command = [sys.executable, "-m", "bench.groups.driver", load, given]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def figures(load: str, broker: Broker, **arguments: Any) -> dict[str, float]:
    done = run(load, broker, **arguments)
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_form_grow_and_lose_a_member(broker: Broker, protocol: str) -> None:
    found = figures(
        "rebalances",
        broker,
        pid=broker.process.pid,
        protocol=protocol,
        sizes=[1, 3],
        partitions=PARTITIONS,
        heartbeat_s=0.2,
        session_timeout_ms=1000,
        deaths=True,
    )
    for size in (1, 3):
        assert found[f"form_s_{size}"] > 0
        assert found[f"join_s_{size}"] > 0
        # The dead member's partitions are paused at least until its session ends.
        assert found[f"death_s_{size}"] > 0
        assert found[f"death_late_{size}"] > 10
        if protocol == "consumer":
            assert found[f"join_kept_paused_{size}"] == found[f"death_kept_paused_{size}"] == 0


def test_groups_form_side_by_side(broker: Broker) -> None:
    scene = {"protocol": "classic", "partitions": PARTITIONS, "heartbeat_s": 0.2, "session_timeout_ms": 1000}
    found = figures("formations", broker, pid=broker.process.pid, sizes=[1, 2], **scene)
    assert found["form_s_1"] > 0
    assert found["form_s_2"] > 0


def test_commits(broker: Broker) -> None:
    work = {"connections": 3, "groups": 5, "partitions": 2, "seconds": 0.2}
    assert figures("commits", broker, pid=broker.process.pid, **work)["requests_per_s"] > 0


def test_an_error_in_an_answer_fails_the_load(broker: Broker) -> None:
    work = {"connections": 1, "groups": 1, "partitions": 1, "seconds": 0.2}
    done = run("commits", broker, pid=broker.process.pid, **{**work, "topic": "not-there"})
    assert done.returncode != 0
    assert "UNKNOWN_TOPIC_OR_PARTITION" in done.stderr


def test_offsets_that_were_written_are_awaited(broker: Broker) -> None:
    assert figures("write_offsets", broker, groups=200, partitions=3)["offsets"] == 600
    loaded = await_offsets(broker.bootstrap, TOPIC, 200, 3, alive=lambda: None)
    assert 0 < loaded.listening_s <= loaded.all_answered_s
    with pytest.raises(RuntimeError, match="offsets from 1 to 4 were committed"):
        await_offsets(broker.bootstrap, TOPIC, 200, 4, alive=lambda: None)


class TestOwnership:
    def test_an_event_ends_when_all_have_their_share(self) -> None:
        async def event() -> Change:
            ownership = Ownership(5)
            ownership.enter("first")
            ownership.take("first", range(5))
            ownership.enter("second")
            ownership.begin()
            ownership.release("first", range(4))
            ownership.take("first", (0,))  # back where it was, after a pause
            ownership.take("second", (2,))
            with pytest.raises(RuntimeError, match="2 members have shares from 1 to 2"):
                await ownership.settled(0.01)
            ownership.take("second", (1,))
            with pytest.raises(RuntimeError, match="1 of 5 partitions have no consumer"):
                await ownership.settled(0.01)
            ownership.take("second", (3,))
            return await ownership.settled(1)

        change = asyncio.run(event())
        assert change.kept_but_paused == 1
        assert 0 < change.paused_partition_s <= 5 * change.seconds

    def test_only_members_alive_count(self) -> None:
        ownership = Ownership(2)
        for number, member in enumerate(("first", "second")):
            ownership.enter(member)
            ownership.take(member, (number,))
        ownership.begin()
        ownership.leave("first", (0,))
        ownership.take("second", (0,))
        assert asyncio.run(ownership.settled(1)).kept_but_paused == 0

    def test_a_partition_has_one_owner(self) -> None:
        ownership = Ownership(1)
        for member in ("first", "second"):
            ownership.enter(member)
        ownership.take("first", (0,))
        with pytest.raises(RuntimeError, match="is given to second while first has it"):
            ownership.take("second", (0,))
        with pytest.raises(RuntimeError, match="not its own"):
            ownership.release("second", (0,))


@pytest.mark.parametrize(
    ("partitions", "members", "expected"),
    [(7, 3, [range(3), range(3, 5), range(5, 7)]), (1, 2, [range(1), range(1, 1)]), (3, 0, [])],
)
def test_ranges(partitions: int, members: int, expected: list[range]) -> None:
    assert ranges(partitions, members) == expected
