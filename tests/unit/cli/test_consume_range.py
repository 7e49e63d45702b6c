"""Where `ottla consume` starts."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ottla.cli.consume_range import Range
from ottla.cli.session import CommandError


@pytest.mark.parametrize(
    ("text", "start"), [(None, "latest"), ("latest", "latest"), ("earliest", "earliest"), ("7", 7), ("-7", -7)]
)
def test_offsets_as_they_are_written(text: str | None, start: int | str) -> None:
    assert Range.parse(text, []).start == start


def test_anything_else_is_refused() -> None:
    with pytest.raises(ValueError, match="--offset must be earliest, latest or an integer, not 'soon'"):
        Range.parse("soon", [])


@pytest.mark.parametrize(
    ("given", "option"),
    [
        (Range(3), "--offset 3"),
        (Range(since=datetime.now(UTC)), "--since"),
        (Range(until=datetime.now(UTC)), "--until"),
        (Range(partitions=[1]), "--partition"),
    ],
)
def test_a_group_has_its_own_offsets_and_partitions(given: Range, option: str) -> None:
    with pytest.raises(CommandError, match=f"{option} cannot be used with --group"):
        given.check_for_group()


def test_a_group_without_offsets_starts_at_the_given_position() -> None:
    for start in ("earliest", "latest"):
        Range(start).check_for_group()
        assert Range(start).reset == start
