"""Keys that only admins have, or have with another default."""

from __future__ import annotations

from typing import Final

from ottla.base.config import ConfigKey, ValueType, at_least

ADMINISTERING: Final = [
    ConfigKey(
        "connections.max.idle.ms",
        ValueType.LONG,
        300_000,
        "A connection that was not used for so long is closed; -1 never closes any.",
        at_least(-1),
    ),
    ConfigKey(
        "default.api.timeout.ms",
        ValueType.INT,
        60_000,
        "How long calls take at most that are given no timeout.",
        at_least(0),
    ),
    ConfigKey("retries", ValueType.INT, 2_147_483_647, "How often a request is made again.", at_least(0)),
]
