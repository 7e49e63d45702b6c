"""Keys that only admins have, or have with another default."""

from __future__ import annotations

from typing import Final

from ottla.base.config import ConfigKey, ValueType, at_least

ADMINISTERING: Final = [
    ConfigKey(
        "connections.max.idle.ms",
        ValueType.LONG,
        300_000,
        "Close a connection that has been idle for this long; -1 means never.",
        at_least(-1),
    ),
    ConfigKey(
        "default.api.timeout.ms",
        ValueType.INT,
        60_000,
        "Default timeout of calls.",
        at_least(0),
    ),
    ConfigKey("retries", ValueType.INT, 2_147_483_647, "Maximum number of retries of a request.", at_least(0)),
]
