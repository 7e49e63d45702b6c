"""Points in time and durations as people write and read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_UNIT_SECONDS: Final = {
    "ms": 0.001,
    "s": 1,
    "sec": 1,
    "second": 1,
    "m": 60,
    "min": 60,
    "minute": 60,
    "h": 3600,
    "hour": 3600,
    "d": 86400,
    "day": 86400,
    "w": 604800,
    "week": 604800,
}
_AGO = re.compile(r"(?:(?P<amount>\d+(?:\.\d+)?)|an?)\s*(?P<unit>[a-z]+?)(?:\s+ago)?")
_ISO_DURATION = re.compile(
    r"P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_MILLISECONDS = re.compile(r"\d{11,14}")


def parse_time(text: str, now: datetime | None = None) -> datetime:
    """Parses `10 minutes ago`, `1h`, `yesterday`, `2026-03-01 12:30`, an ISO 8601 time or milliseconds since the epoch.
    Without a time zone, the local one is used."""
    now = now or datetime.now(UTC)
    words = " ".join(text.strip().lower().split())
    if words == "now":
        return now
    if words in ("today", "yesterday"):
        midnight = now.astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
        return midnight - timedelta(days=words == "yesterday")
    if _MILLISECONDS.fullmatch(words):
        return datetime.fromtimestamp(int(words) / 1000, UTC)
    if found := _AGO.fullmatch(words):
        unit = found["unit"]
        seconds = _UNIT_SECONDS.get(unit) or _UNIT_SECONDS.get(unit.removesuffix("s"))
        if seconds is not None:
            return now - timedelta(seconds=float(found["amount"] or 1) * seconds)
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time; use '10 minutes ago', '2h', 'yesterday' or '2026-03-01T12:30'"
        ) from None


def parse_duration(text: str, now: datetime | None = None) -> datetime:
    """The time `2h`, `30 min` or (ISO 8601) `P1DT2H30M` ago."""
    now = now or datetime.now(UTC)
    found = _ISO_DURATION.fullmatch(text.strip().upper())
    if found is not None and any(found.groups()):
        return now - timedelta(**{unit: float(amount) for unit, amount in found.groupdict(default="0").items()})
    words = " ".join(text.strip().lower().split())
    if _AGO.fullmatch(words):
        return parse_time(words, now)
    raise ValueError(f"{text!r} is not a duration; use 2h, '30 min' or PT1H30M")


def milliseconds(time: datetime) -> int:
    """Milliseconds since the epoch, never negative."""
    return max(0, int(time.timestamp() * 1000))


def span_text(seconds: float) -> str:
    """A duration, rounded for display: `0.4 s`, `42 s`, `12 min`, `3 h`, `5 days`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit, unit_seconds, below in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        if seconds < below * unit_seconds:
            return f"{seconds / unit_seconds:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"
