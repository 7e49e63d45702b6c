"""What a topic may be called: Kafka's rules."""

from __future__ import annotations

import re
from typing import Final

MAX_NAME_LENGTH: Final = 249
"""With the partition's number and what marks a deleted folder behind it, a name still fits a file name."""

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"
METADATA_TOPIC: Final = "__cluster_metadata"
"""Kept by Kafka for itself; no client can create it."""
_INTERNAL: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def fault_of_name(name: str) -> str | None:
    """What is wrong with a name, in a sentence; None for a good one."""
    if not name:
        return "A topic's name cannot be empty."
    if name in (".", ".."):
        return f"A topic cannot be called '{name}': that is a folder of its own to every file system."
    if len(name) > MAX_NAME_LENGTH:
        return f"A topic's name has at most {MAX_NAME_LENGTH} characters, '{name[:20]}…' has {len(name)}."
    if not _LEGAL.fullmatch(name):
        return f"A topic's name is made of ASCII letters, digits, '.', '_' and '-'; '{name}' has something else in it."
    return None


def is_internal(name: str) -> bool:
    """Whether the brokers themselves write the topic: clients leave it out of what they subscribe to by a pattern."""
    return name in _INTERNAL


def collision_key(name: str) -> str:
    """The same for names that collide: names of metrics have '_' where topics have '.'."""
    return name.replace(".", "_")
