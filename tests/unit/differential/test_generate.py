"""Dialogues from a seed: always the same, and requests that can be sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from differential import dialogue
from differential.generate import THEMES, generate
from differential.requests import api_named, request_of
from differential.symbols import Symbols, start_time_ms
from ottla.wire.framing import read_request, request_frame
from ottla.wire.registry import apis

VERSIONS = {
    api.name: (max(api.versions.low, 3 if api.name == "Produce" else 0), api.versions.high) for api in apis().values()
}


def test_a_seed_gives_the_same_dialogue() -> None:
    assert generate(7, 3, VERSIONS, "4.3.1") == generate(7, 3, VERSIONS, "4.3.1")
    assert generate(7, 3, VERSIONS, "4.3.1").steps != generate(8, 3, VERSIONS, "4.3.1").steps


@pytest.mark.parametrize("theme", THEMES)
def test_every_request_can_be_sent(theme: str) -> None:
    symbols = Symbols("diff", start_time_ms())
    for number in range(30):
        spoken = generate(1, number, VERSIONS, "4.3.1", theme=theme)
        assert spoken.theme == theme
        for step in spoken.steps:
            if "request" in step:
                request = request_of(api_named(step["api"]), symbols.resolve(step["request"]))
                frame = b"".join(request_frame(request, step["version"], 1, "c"))
                read_request(frame[4:])


def test_every_api_that_is_compared_is_asked() -> None:
    steps = [step for number in range(300) for step in generate(2, number, VERSIONS, "4.3.1").steps]
    asked = {step["api"] for step in steps if "api" in step}
    assert asked >= {
        "Produce", "Fetch", "ListOffsets", "DeleteRecords", "OffsetForLeaderEpoch", "InitProducerId",
        "DescribeProducers", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch",
        "OffsetDelete", "DeleteGroups", "DescribeGroups", "ListGroups", "FindCoordinator", "ConsumerGroupHeartbeat",
        "ConsumerGroupDescribe", "DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs", "CreateTopics",
        "CreatePartitions", "DeleteTopics", "Metadata",
    }  # fmt: skip
    assert all(
        VERSIONS[step["api"]][0] <= step["version"] <= VERSIONS[step["api"]][1] for step in steps if "api" in step
    )


def test_a_restart_is_in_the_middle() -> None:
    spoken = generate(1, 1, VERSIONS, "4.3.1", restarts=True)
    assert spoken.restarts
    assert 0 < [step.get("restart", False) for step in spoken.steps].index(True) < len(spoken.steps) - 1


def test_a_dialogue_is_kept_in_a_file(tmp_path: Path) -> None:
    spoken = generate(5, 5, VERSIONS, "3.9.1")
    spoken.save(tmp_path / "one.json")
    assert dialogue.load(tmp_path / "one.json") == spoken
