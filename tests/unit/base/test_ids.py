from __future__ import annotations

import secrets
import string
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.ids import ZERO_UUID, Uuid, format_uuid, parse_uuid, random_uuid

ALPHABET = frozenset(string.ascii_letters + string.digits + "-_")
UUIDS = st.binary(min_size=16, max_size=16).map(Uuid)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (ZERO_UUID, "AAAAAAAAAAAAAAAAAAAAAA"),
        (Uuid(bytes(15) + b"\x01"), "AAAAAAAAAAAAAAAAAAAAAQ"),
        (Uuid(b"\xff" * 16), "_____________________w"),
        (Uuid(b"\xfb\xef\xbe" * 5 + b"\xfb"), "---------------------w"),
        (Uuid(bytes(range(16))), "AAECAwQFBgcICQoLDA0ODw"),
    ],
)
def test_known_ids(value: Uuid, text: str) -> None:
    assert format_uuid(value) == text
    assert parse_uuid(text) == value


@settings(deadline=None)
@given(UUIDS)
def test_text_and_back(value: Uuid) -> None:
    text = format_uuid(value)
    assert len(text) == 22
    assert set(text) <= ALPHABET
    assert parse_uuid(text) == value


def test_a_random_id_is_a_new_one_of_version_4() -> None:
    ids = [random_uuid() for _ in range(200)]
    assert len(set(ids)) == len(ids)
    assert {value[6] >> 4 for value in ids} == {4}
    assert {value[8] >> 6 for value in ids} == {0b10}


def test_a_random_id_whose_text_would_begin_with_a_dash_is_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: Iterator[bytes] = iter([b"\xf8" * 16, b"\xfb" * 16, b"\x11" * 16])
    monkeypatch.setattr(secrets, "token_bytes", lambda size: next(drawn)[:size])
    assert random_uuid()[0] == 0x11


@pytest.mark.parametrize("text", ["", "A" * 21 + "!", "A" * 21 + "é", "A" * 21 + "\n", "A" * 21 + " ", "A" * 21 + "="])
def test_text_that_is_not_of_these_characters_is_no_id(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a valid id: .*22 characters"):
        parse_uuid(text)


@pytest.mark.parametrize("text", ["AA", "A" * 20, "A" * 24, "+" * 22, "A" * 21 + "/"])
def test_other_text_is_no_id(text: str) -> None:
    with pytest.raises(ValueError, match="is not a valid id: an id has 22 characters"):
        parse_uuid(text)


@settings(deadline=None)
@given(st.text(max_size=30))
def test_any_text_is_an_id_or_a_value_error(text: str) -> None:
    try:
        value = parse_uuid(text)
    except ValueError:
        return
    assert len(value) == 16
