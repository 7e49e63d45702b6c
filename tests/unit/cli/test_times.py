"""Times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ottla.cli.times import milliseconds, parse_duration, parse_time, span_text

NOW = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("now", timedelta()),
        ("10 minutes ago", timedelta(minutes=10)),
        ("  1  Hour ago ", timedelta(hours=1)),
        ("an hour ago", timedelta(hours=1)),
        ("a week ago", timedelta(weeks=1)),
        ("2h", timedelta(hours=2)),
        ("90s", timedelta(seconds=90)),
        ("1.5 days", timedelta(hours=36)),
        ("30 sec", timedelta(seconds=30)),
        ("5 mins ago", timedelta(minutes=5)),
        ("250ms", timedelta(milliseconds=250)),
        ("2 seconds ago", timedelta(seconds=2)),
    ],
)
def test_so_long_ago(text: str, ago: timedelta) -> None:
    assert parse_time(text, NOW) == NOW - ago


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-02-28T10:00:00Z", datetime(2026, 2, 28, 10, tzinfo=UTC)),
        ("2026-02-28T10:00:00+02:00", datetime(2026, 2, 28, 8, tzinfo=UTC)),
        ("1700000000000", datetime.fromtimestamp(1_700_000_000, UTC)),
        ("2026-02-28 10:00", datetime(2026, 2, 28, 10).astimezone()),
        ("2026-02-28", datetime(2026, 2, 28).astimezone()),
    ],
)
def test_points_in_time(text: str, time: datetime) -> None:
    assert parse_time(text, NOW) == time


def test_days_begin_at_midnight_here() -> None:
    today = NOW.astimezone().replace(hour=0, minute=0)
    assert parse_time("today", NOW) == today
    assert parse_time("yesterday", NOW) == today - timedelta(days=1)


@pytest.mark.parametrize("text", ["", "soon", "10 lightyears ago", "2026-13-01", "12", "-1h"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        parse_time(text, NOW)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("2h", timedelta(hours=2)),
        ("30 min", timedelta(minutes=30)),
        ("PT1H30M", timedelta(minutes=90)),
        ("p1dt0.5s", timedelta(days=1, seconds=0.5)),
        ("P2W", timedelta(weeks=2)),
    ],
)
def test_lengths_of_time(text: str, length: timedelta) -> None:
    assert parse_duration(text, NOW) == NOW - length


@pytest.mark.parametrize("text", ["", "P", "PT", "1H30M", "yesterday", "2026-01-01", "-2h"])
def test_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text, NOW)


def test_milliseconds() -> None:
    assert milliseconds(datetime.fromtimestamp(1.5, UTC)) == 1500
    assert milliseconds(datetime(1960, 1, 1, tzinfo=UTC)) == 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (10, "10 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2 h")],
)
def test_durations_are_rounded(seconds: float, text: str) -> None:
    assert span_text(seconds) == text


def test_long_durations() -> None:
    assert span_text(3 * 86400 + 100) == "3 days"
