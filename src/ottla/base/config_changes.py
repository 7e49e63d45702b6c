"""Describes changes of configs for the log: new values with the old ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

_HIDDEN: Final = "[hidden]"


def changes_of(
    before: Mapping[str, str], after: Mapping[str, str], is_sensitive: Callable[[str], bool] = lambda _: False
) -> str:
    """For example `retention.ms=1000 (was 5000), segment.ms removed (was 60000)`; empty if nothing changed."""
    told = []
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        if is_sensitive(key):
            old, new = (None if value is None else _HIDDEN for value in (old, new))
        was = "not set" if old is None else old
        told.append(f"{key} removed (was {was})" if new is None else f"{key}={new} (was {was})")
    return ", ".join(told)
