"""Patterns of transactional ids: what they match, and which are refused."""

from __future__ import annotations

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.transactions.id_pattern import id_matcher


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("orders", "orders", "orders-1"),
        ("orders-.*", "orders-1", "my-orders-1"),
        (r"app\.\d+", "app.17", "app-17"),
        ("(?:a|b)+x", "abax", "ax!"),
        ("(?P<name>a)?b{2,3}", "bbb", "abbbb"),
        ("(?i)ORDERS", "orders", "order"),
        (r"[]*+(]+", "*+(]", "x"),
        (r"\(a\)*", "(a)))", "aa"),
        ("a+?b*?c??", "aab", "b"),
        ("(a+)+$", "aaa", "aab"),
        ("(?:a?){20}a*b*c*d*", "aaabd", "da"),
        (r"[[:alpha:]]\s\S[^a-z]", "a\té€", "a\té\tz"),
        ("größe-.+€", "größe-ж€", "größe-€"),
        (r"[^x]\pL", "жé", "xé"),
    ],
)
def test_a_pattern_matches_the_whole_id(pattern: str, matching: str, other: str) -> None:
    matches = id_matcher(pattern)
    assert matches(matching)
    assert not matches(other)


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "[", "*", "a\\", "a++", r"(a)\1", "(?=a)", "(?!a)", "(?<=a)b", "(?(1)a|b)", "a" * 1001, "a{1001}"],
)
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(CoordinatorError) as caught:
        id_matcher(pattern)
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_an_id_that_is_too_long_matches_no_pattern() -> None:
    matches = id_matcher("a*")
    assert matches("a" * 512)
    assert not matches("a" * 513)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(.|a|.){100}b", "(a?a?){200}b", ".*?.*?.*?b", "a*a*a*b"])
def test_a_pattern_for_which_python_would_backtrack_ends(pattern: str) -> None:
    assert not id_matcher(pattern)("a" * 512)
