"""Properties files, as Java reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.configs.properties import PropertiesError, Property, parse_properties, properties_text


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("a=b", "a", "b"),
        ("  a  =  b  ", "a", "b  "),
        ("a:b", "a", "b"),
        ("a b", "a", "b"),
        ("a\tb c", "a", "b c"),
        ("a = = b", "a", "= b"),
        ("a=b=c:d", "a", "b=c:d"),
        ("a", "a", ""),
        ("a=", "a", ""),
        (r"a\=b\:c\ d=e", "a=b:c d", "e"),
        (r"a\\=b", "a\\", "b"),
        (r"a=\tb\n\r\fc\q\\", "a", "\tb\n\r\fcq\\"),
        (r"a=caf\u00e9", "a", "café"),
        (r"a=\uD83D\uDE00", "a", "😀"),
        ("a=b,\\\n    c,\\\r\n\t d", "a", "b,c,d"),
        ("a=b\\", "a", "b"),
        ("a=b\\\\\nc=d", "a", "b\\"),
        ("a=b # no comment", "a", "b # no comment"),
        ("a=b\\\n# still the value", "a", "b# still the value"),
        ("=b", "", "b"),
    ],
)
def test_a_line_is_a_key_and_its_value(text: str, key: str, value: str) -> None:
    first = parse_properties(text)[0]
    assert (first.key, first.value) == (key, value)


def test_comments_and_empty_lines_are_skipped_and_lines_are_counted() -> None:
    text = "# one\n ! two\n\n   \na=1\r\nb=2\\\n  3\rc=4\n"
    assert parse_properties(text) == [Property("a", "1", 5), Property("b", "23", 6), Property("c", "4", 8)]


def test_an_escape_that_is_cut_short_is_reported_with_its_line() -> None:
    with pytest.raises(PropertiesError, match=r"line 2: \\u needs four hexadecimal digits"):
        parse_properties("a=1\nb=\\u12")


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"]))
    )
)
def test_what_is_written_is_read_back(entries: dict[str, str]) -> None:
    assert {each.key: each.value for each in parse_properties(properties_text(entries))} == entries
