"""Kafka's rules for topic names."""

from __future__ import annotations

import re
from typing import Final

MAX_NAME_LENGTH: Final = 249
"""With the partition number and the suffix of deleted folders, a name still fits a file name."""

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"
METADATA_TOPIC: Final = "__cluster_metadata"
"""Reserved by Kafka; no client can create it."""
_INTERNAL: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def fault_of_name(name: str) -> str | None:
    """Why a name is invalid, as a sentence; None for a valid name."""
    if not name:
        return "A topic name cannot be empty."
    if name in (".", ".."):
        return f"A topic cannot be named '{name}': it is a special directory name."
    if len(name) > MAX_NAME_LENGTH:
        return f"A topic name can have at most {MAX_NAME_LENGTH} characters; '{name[:20]}…' has {len(name)}."
    if not _LEGAL.fullmatch(name):
        return f"A topic name can have only ASCII letters, digits, '.', '_' and '-'; '{name}' has other characters."
    return None


def is_internal(name: str) -> bool:
    """Whether brokers themselves write the topic: clients exclude it from pattern subscriptions."""
    return name in _INTERNAL


def collision_key(name: str) -> str:
    """Equal for names that collide: metric names have '_' where topic names have '.'."""
    return name.replace(".", "_")
