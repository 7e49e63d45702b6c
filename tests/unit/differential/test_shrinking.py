"""The shortest dialogue that shows a difference, with the difference given by a rule."""

from __future__ import annotations

from typing import Any

from differential.dialogue import Dialogue, Step
from differential.shrinking import shrink


def _step(number: int) -> Step:
    return {"api": "Metadata", "version": 1, "request": {"topics": [{"name": f"t{number}"}, {"name": "u"}]}}


def _names(dialogue: Dialogue) -> list[list[str]]:
    return [[topic["name"] for topic in step["request"]["topics"]] for step in dialogue.steps]


def test_only_what_is_needed_stays() -> None:
    asked: list[Any] = []

    def shows(dialogue: Dialogue) -> bool:
        asked.append(dialogue)
        flat = [name for names in _names(dialogue) for name in names]
        return "t3" in flat and "t17" in flat

    shortest = shrink(Dialogue(tuple(map(_step, range(20)))), shows)
    assert _names(shortest) == [["t3"], ["t17"]]
    assert len(asked) < 100


def test_no_more_tries_than_allowed() -> None:
    asked: list[Any] = []

    def shows(dialogue: Dialogue) -> bool:
        asked.append(dialogue)
        return True

    shrink(Dialogue(tuple(map(_step, range(20)))), shows, tries=3)
    assert len(asked) == 3


def test_a_dialogue_that_needs_all_its_steps_stays() -> None:
    whole = Dialogue(tuple(map(_step, range(4))))
    assert shrink(whole, lambda candidate: candidate.steps == whole.steps) == whole


def test_fields_of_batches_are_left_out() -> None:
    records = [{"n": 3, "size": 5, "damage": "crc"}]
    step = {"api": "Produce", "version": 9, "request": {"topic_data": [{"partition_data": [{"records": records}]}]}}

    def shows(dialogue: Dialogue) -> bool:
        (kept,) = dialogue.steps[0]["request"]["topic_data"][0]["partition_data"][0]["records"]
        return bool(kept.get("damage") == "crc")

    (shortest,) = shrink(Dialogue((step,)), shows).steps
    assert shortest["request"]["topic_data"][0]["partition_data"][0]["records"] == [{"damage": "crc"}]
