"""Answers that differ only in what may differ are the same tree, and others are not."""

from __future__ import annotations

from typing import Any

from differential import batches
from differential.answers import records_tree, tree_of
from differential.comparison import Difference, differences
from differential.symbols import Symbols, start_time_ms
from ottla.base.ids import Uuid
from ottla.wire.messages.fetch import FetchPartitionResponse, FetchResponse, FetchTopicResponse
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from ottla.wire.messages.produce import ProducePartitionResponse, ProduceResponse, ProduceTopicResponse


def _symbols(letter: str = "o") -> Symbols:
    return Symbols(f"diff-1-2{letter}", start_time_ms())


def _produced(name: str, *, throttle_ms: int = 0, message: str | None = None, offset: int = 5) -> ProduceResponse:
    partition = ProducePartitionResponse(index=0, error_code=0, base_offset=offset, error_message=message)
    return ProduceResponse(
        responses=[ProduceTopicResponse(name=name, partition_responses=[partition])], throttle_time_ms=throttle_ms
    )


def test_names_words_and_throttling_may_differ() -> None:
    ours = tree_of("Produce", 9, _produced("diff-1-2o-t0", message="no"), _symbols("o"))
    theirs = tree_of("Produce", 9, _produced("diff-1-2k-t0", throttle_ms=3), _symbols("k"))
    assert list(differences(ours, theirs)) == []
    theirs = tree_of("Produce", 9, _produced("diff-1-2k-t0", offset=6), _symbols("k"))
    assert list(differences(ours, theirs)) == [("responses[0]/partition_responses[0]/base_offset", 5, 6)]


def test_fields_of_other_versions_are_left_out() -> None:
    tree = tree_of("Produce", 3, _produced("diff-1-2o-t0"), _symbols())
    assert "log_start_offset" not in tree["responses"][0]["partition_responses"][0]


def test_groups_of_other_dialogues_are_left_out() -> None:
    answer = ListGroupsResponse(groups=[ListedGroup(group_id=each) for each in ("diff-1-2o-g0", "diff-9-9o-g0", "")])
    assert [each["group_id"] for each in tree_of("ListGroups", 4, answer, _symbols())["groups"]] == ["$-g0"]


def test_entries_of_one_topic_are_merged() -> None:
    topic_id = Uuid(b"t" * 16)
    topics = [
        FetchTopicResponse(topic_id=topic_id, partitions=[FetchPartitionResponse(partition_index=index)])
        for index in (2, 0)
    ]
    tree = tree_of("Fetch", 13, FetchResponse(responses=topics), _symbols())
    assert [[each["partition_index"] for each in topic["partitions"]] for topic in tree["responses"]] == [[0, 2]]


def test_records_are_decoded_and_a_torn_tail_is_reported() -> None:
    symbols = _symbols()
    whole = batches.build({"n": 2, "time": symbols.resolve("$time:1000"), "key": "k"})
    tree = records_tree(whole + whole[:20], symbols)
    assert (tree["bytes"], tree["torn_bytes"]) == (len(whole) + 20, 20)
    (batch,) = tree["batches"]
    assert [record[:3] for record in batch["records"]] == [[0, "$time:1000", "k0"], [1, "$time:1001", "k1"]]


def test_values_of_another_kind_differ() -> None:
    found: list[tuple[str, Any, Any]] = list(differences({"a": [1], "b": None}, {"a": [1, 2], "b": 0}))
    assert found == [("a", [1], [1, 2]), ("b", None, 0)]
    assert list(differences({"a": False}, {"a": 0})) == [("a", False, 0)]


def test_differences_of_one_cause_are_of_one_kind() -> None:
    def kind(path: str, ours: Any, theirs: Any) -> str:
        return Difference("4.3.1", 0, {"api": "Fetch", "version": 4}, path, ours, theirs).kind

    assert kind("a[0]/bytes", 3, 2) == kind("a[1]/bytes", 9, 8) == "Fetch a/bytes: more"
    assert kind("a[0]/error_code", 3, 2) != kind("a[0]/error_code", 4, 2)
    assert kind("a", [1], [1, 2]) == kind("a", [], [1])
