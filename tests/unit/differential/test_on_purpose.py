"""The list of differences on purpose: each explains something, and not everything."""

from __future__ import annotations

import pytest

from differential.comparison import ABSENT, Difference
from differential.on_purpose import ENTRIES, Explanations, OnPurpose


def _found(path: str, ours: object, theirs: object, api: str = "Produce", peer: str = "4.3.1") -> Difference:
    return Difference(peer, 0, {"api": api, "version": 9, "request": {"topic_data": []}}, path, ours, theirs)


def test_names_are_unique_and_reasons_are_sentences() -> None:
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)
    assert all(entry.reason.endswith(".") for entry in ENTRIES)


@pytest.mark.parametrize("api", ["Produce", "Fetch", "CreateTopics", "JoinGroup", "OffsetCommit", "DeleteGroups"])
@pytest.mark.parametrize("peer", ["4.3.1", "3.9.1"])
def test_an_accepted_request_that_kafka_refuses_is_never_on_purpose(api: str, peer: str) -> None:
    explain = Explanations(ENTRIES)
    assert explain(_found("topics[0]/error_code", 0, 87, api, peer)) is None
    assert explain(_found("topics[0]/error_code", 0, -1, api, peer)) is None
    assert explain(_found("", "closed", {"topics": []}, api, peer)) is None


def test_a_config_that_kafka_4_removed() -> None:
    explain = Explanations(ENTRIES)
    entry = explain(_found("topics[0]/configs/message.format.version", {}, ABSENT, "CreateTopics"))
    assert entry is not None
    assert explain(_found("topics[0]/configs/retention.ms", {}, ABSENT, "CreateTopics")) is None
    assert explain.used == {entry.name: 1}
    assert entry not in explain.unused()


def test_the_first_reason_counts() -> None:
    entries = (OnPurpose("a", "A.", lambda _: False), OnPurpose("b", "B.", lambda _: True))
    explain = Explanations(entries)
    assert explain(_found("x", 1, 2)) == entries[1]
    assert explain.unused() == [entries[0]]
