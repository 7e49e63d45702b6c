"""Ranges of versions."""

from __future__ import annotations

import pytest

from ottla.wire.versions import NO_VERSIONS, Versions


@pytest.mark.parametrize("text", ["0+", "3-7", "5", "none", "0-0"])
def test_a_range_reads_as_it_is_written(text: str) -> None:
    assert Versions.parse(str(Versions.parse(text))) == Versions.parse(text)


def test_what_a_range_holds() -> None:
    assert list(Versions.parse("3-5")) == [3, 4, 5]
    assert 2 not in Versions.parse("3+")
    assert 32767 in Versions.parse("3+")
    assert not NO_VERSIONS
    assert 0 not in NO_VERSIONS
    assert list(NO_VERSIONS) == []


@pytest.mark.parametrize("text", ["", "+", "a", "1-", "-1", "1 - 2", "1+2"])
def test_other_text_is_no_range(text: str) -> None:
    with pytest.raises(ValueError, match="is not a version range"):
        Versions.parse(text)
