"""Patterns match as RE2 does: beside Python's `re` where both mean the same, and what one of them refuses."""

from __future__ import annotations

import random
import re

import pytest

from ottla.coordinator.pattern import PatternAutomaton, topic_matcher
from ottla.coordinator.pattern_syntax import PatternError

_ATOMS = [
    *(r"a", r"b", r".", r"\.", r"[ab]", r"[^a]", r"\d", r"\w", r"(a|b)", r"(?:ab)", r"[a-c]", r"^", r"$", r"\b"),
    *(r"(a|)", r"(?i:A)", r"a{2}", r"(ab){1,2}", r"b{0,}", r"-", r"[.-]", r"[\w.]", r"(?P<n>a)"),
]
_SIGNS = ["*", "+", "?", "{2}", "{1,3}", "*?", "+?"]


def _any_pattern(choose: random.Random, depth: int = 0) -> str:
    text = ""
    for _ in range(choose.randint(1, 4)):
        atom = choose.choice(_ATOMS)
        if depth < 2 and choose.random() < 0.3:
            atom = f"({_any_pattern(choose, depth + 1)})"
        if choose.random() < 0.35 and atom[-1] != "}" and atom not in ("^", "$", r"\b"):
            atom += choose.choice(_SIGNS)
        text += atom + ("|" if choose.random() < 0.15 else "")
    return text


@pytest.mark.parametrize("seed", range(8))
def test_it_matches_what_re_matches(seed: int) -> None:
    choose = random.Random(seed)
    compared = 0
    for _ in range(300):
        text = _any_pattern(choose)
        try:
            oracle = re.compile(text)
        except re.error:  # a group's name twice: refused by both
            with pytest.raises(PatternError):
                PatternAutomaton(text)
            continue
        pattern = PatternAutomaton(text)
        for _ in range(10):
            name = "".join(choose.choice("abcA1._-") for _ in range(choose.randint(1, 7)))
            assert pattern.matches(name) == bool(oracle.fullmatch(name)), (text, name)
            compared += 1
    assert compared > 2_000


@pytest.mark.parametrize(
    ("text", "matching", "other"),
    [
        ("orders", ["orders"], ["orders2", "my-orders", "Orders"]),
        ("orders.*", ["orders", "orders.eu"], ["my.orders"]),
        (r"\Qa.b*\E", [], ["a.b", "axb"]),
        (r"\Qa.b\E.*", ["a.b", "a.b-c"], ["axb"]),
        ("(?i)ORDERS", ["orders", "OrDeRs"], ["order"]),
        ("(?i)a(?-i)b", ["ab", "Ab"], ["aB"]),
        ("(?i:[a-c])x", ["Ax", "bx"], ["AX"]),
        (r"[[:alpha:]]+\d{2}", ["a12", "Zz00"], ["12", "a1"]),
        ("[[:^digit:]]", ["a"], ["1"]),
        (r"\pL\p{Lu}\PN\p{^L}", ["aBc1"], ["abc1", "aB11"]),
        (r"\p{Greek}", [], ["a"]),
        (r"\x61\x{62}\141", ["aba"], ["abc"]),
        (r"[]a]", ["a"], ["b"]),
        (r"[^\]a]", ["b"], ["a"]),
        ("[a-]", ["a", "-"], ["b"]),
        ("a|", ["a", ""], ["b"]),
        (r"\Aab\z", ["ab"], ["abc"]),
        (r"a\Bb", ["ab"], ["a.b"]),
        ("a{,2}", [], ["a", "aa"]),
        ("a{2,}", ["aa", "aaaa"], ["a"]),
        (r"a\-b", ["a-b"], ["ab"]),
        ("é", [], ["e"]),
        ("(?<name>a)b", ["ab"], ["b"]),
    ],
)
def test_it_reads_the_syntax_of_re2(text: str, matching: list[str], other: list[str]) -> None:
    matches = topic_matcher(text)
    assert [name for name in matching if not matches(name)] == []
    assert [name for name in other if matches(name)] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(", "missing closing )"),
        ("a)", "unexpected )"),
        ("[a", "missing closing ]"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a|*", "missing argument"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a*+", "invalid nested repetition operator"),
        ("a{2}{3}", "invalid nested repetition operator"),
        (r"(a)\1", r"invalid escape sequence: `\1`"),
        (r"a\Z", r"invalid escape sequence: `\Z`"),
        ("a(?=b)", "invalid or unsupported group: `(?=b`"),
        ("(?<!a)b", "invalid or unsupported group"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{3,2}", "invalid repeat count"),
        ("(?P<n>a)(?P<n>b)", "duplicate capture group name: `n`"),
        ("a\\", "trailing backslash"),
        ("[b-a]", "invalid character class range: `b-a`"),
        ("[[:nothing:]]", "invalid character class range"),
        ("((a{100}){100}){100}", "too large after its repetitions are expanded"),
        ("(" * 200 + ")" * 200, "nested deeper"),
        ("a" * 1_001, "1001 characters; the limit is 1000"),
    ],
)
def test_an_invalid_pattern_is_refused_with_a_reason(text: str, said: str) -> None:
    with pytest.raises(PatternError, match=re.escape(said)):
        PatternAutomaton(text)


@pytest.mark.parametrize("text", ["(a+)+$", "(a*)*b", "(a|a)*c", "(.*a){20}b"])
def test_a_pattern_that_makes_others_go_back_for_ever_takes_no_longer(text: str) -> None:
    assert not PatternAutomaton(text).matches("a" * 240 + "-")


def test_its_cache_is_bounded() -> None:
    pattern = PatternAutomaton("(a|b|ab|ba)*x?(.{0,40}y)?")
    choose = random.Random(1)
    for _ in range(300):
        pattern.matches("".join(choose.choice("abcxyz") for _ in range(200)))
    assert len(pattern._steps) <= 10_000
