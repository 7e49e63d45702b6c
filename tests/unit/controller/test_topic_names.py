from __future__ import annotations

import pytest

from ottla.controller.topic_names import collision_key, fault_of_name, is_internal


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "__consumer_offsets", "-"])
def test_good_names(name: str) -> None:
    assert fault_of_name(name) is None


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("", "empty"),
        (".", "'.'"),
        ("..", "'..'"),
        ("x" * 250, "249"),
        ("a b", "'a b'"),
        ("a/b", "'a/b'"),
        ("ä", "'ä'"),
        ("a\n", "other characters"),
        ("٣", "other characters"),  # a digit, but not of ASCII
    ],
)
def test_bad_names_are_explained(name: str, what: str) -> None:
    fault = fault_of_name(name)
    assert fault is not None
    assert what in fault
    assert fault.endswith(".")


def test_what_is_internal() -> None:
    assert is_internal("__consumer_offsets")
    assert is_internal("__transaction_state")
    assert not is_internal("__mine")


def test_dots_and_underscores_collide() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c")
    assert collision_key("a.b") != collision_key("a-b")
