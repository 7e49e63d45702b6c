from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.ids import TopicPartition
from ottla.spark.offsets import (
    from_json,
    ids_from_json,
    named,
    parse_offsets,
    parse_partitions,
    parse_times,
    recreated,
    to_json,
)

PARTITIONS = st.builds(TopicPartition, st.text(min_size=1, max_size=5), st.integers(0, 2000))


@settings(deadline=None)
@given(st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1), max_size=20))
def test_offsets_of_a_stream_come_back_from_a_checkpoint(offsets: dict[TopicPartition, int]) -> None:
    assert from_json(json.loads(json.dumps(to_json(offsets)))) == offsets


@settings(deadline=None)
@given(st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1), max_size=20), st.randoms())
def test_equal_offsets_have_one_text(offsets: dict[TopicPartition, int], order: st.DataObject) -> None:
    shuffled = list(offsets.items())
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    assert json.dumps(to_json(dict(shuffled))) == json.dumps(to_json(offsets))


def test_offsets_are_written_as_by_sparks_connector() -> None:
    offsets = {TopicPartition("b", 0): 3, TopicPartition("a", 10): 2, TopicPartition("a", 9): 1}
    assert json.dumps(to_json(offsets), separators=(",", ":")) == '{"a":{"9":1,"10":2},"b":{"0":3}}'


def test_options_name_offsets_and_both_ends() -> None:
    assert parse_offsets('{"a":{"0":23,"1":-1},"b":{"0":-2}}') == {
        TopicPartition("a", 0): 23,
        TopicPartition("a", 1): -1,
        TopicPartition("b", 0): -2,
    }


def test_assigned_partitions_stand_in_order_and_once() -> None:
    assert parse_partitions('{"b":[2],"a":[1,0,1]}') == (("a", 0), ("a", 1), ("b", 2))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not a JSON object"),
        ("[1]", "not a JSON object"),
        ('{"a":7}', "a number for each of its partitions"),
        ('{"a":{"x":7}}', '"x": 7 of topic'),
        ('{"a":{"-1":7}}', "not a partition and a number"),
        ('{"a":{"0":"7"}}', '"0": "7" of topic'),
        ('{"a":{"0":true}}', "not a partition and a number"),
        ('{"a":{"0":-3}}', "-3 of a-0 is not an offset"),
    ],
)
def test_wrong_offsets_are_told_of(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_offsets(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nothing", "not a JSON object"),
        ("{}", "names no partition"),
        ('{"a":{"0":1}}', "a list"),
        ('{"a":[-1]}', "a list"),
    ],
)
def test_wrong_partitions_are_told_of(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_partitions(text)


def test_a_time_is_not_negative() -> None:
    assert parse_times('{"a":{"0":0}}') == {TopicPartition("a", 0): 0}
    with pytest.raises(ValueError, match="-1 of a-0 is not a time"):
        parse_times('{"a":{"0":-1}}')


def test_thousands_of_partitions_are_not_all_named() -> None:
    many = [TopicPartition("t", index) for index in range(1000)]
    assert named(many) == "t-0, t-1, t-2, t-3, t-4, t-5, t-6, t-7, t-8, t-9 and 990 more"
    assert named(many[:2]) == "t-0, t-1"


def test_ids_of_topics_travel_with_offsets() -> None:
    offsets = {TopicPartition("b", 0): 3, TopicPartition("a", 1): 4}
    written = to_json(offsets, {"b": "B", "c": "C", "a": "A"})
    assert json.dumps(written) == '{"@id:a:A": {}, "@id:b:B": {}, "a": {"1": 4}, "b": {"0": 3}}'
    assert from_json(written) == offsets
    assert ids_from_json(written) == {"a": "A", "b": "B"}


def test_offsets_without_ids_are_read_as_well() -> None:
    assert to_json({TopicPartition("a", 0): 3}, {}) == {"a": {"0": 3}}
    assert from_json({"a": {"0": 3}}) == {TopicPartition("a", 0): 3}
    assert ids_from_json({"a": {"0": 3}}) == {}


def test_a_topic_is_another_where_both_ids_are_known() -> None:
    assert recreated({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "4", "d": "5"}) == {"b"}
