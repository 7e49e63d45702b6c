"""Patterns as other members read them."""

from __future__ import annotations

import re

import pytest

from ottla.client.errors import ArgumentError
from ottla.client.membership.zookeeper.topic_filter import filter_text


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (re.compile("orders-.*"), "orders-.*"),
        (re.compile("a|b"), "a|b"),
        (re.compile("Orders", re.IGNORECASE), "(?i)Orders"),
        (re.compile("a.b", re.DOTALL | re.IGNORECASE), "(?is)a.b"),
        (re.compile("(?i)orders"), "(?i)orders"),
        (re.compile(r"a\.b'c"), r"a\.b'c"),
    ],
)
def test_the_text_means_the_same(pattern: re.Pattern[str], text: str) -> None:
    assert filter_text(pattern) == text
    assert re.compile(text).flags == pattern.flags


@pytest.mark.parametrize(("text", "found"), [("a{1,2}", ","), ("a b", " "), ("'a", "'"), ('a"', '"')])
def test_what_kafka_would_read_differently_is_refused(text: str, found: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        filter_text(re.compile(text))
    assert repr(text) in str(caught.value)
    assert repr(found) in str(caught.value)
