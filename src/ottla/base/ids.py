"""Identifiers that must not be mixed with other numbers, strings or bytes."""

from __future__ import annotations

import base64
import re
import secrets
from typing import Final, NamedTuple, NewType

_UUID_FORM = re.compile(r"[A-Za-z0-9_-]{22}")

Uuid = NewType("Uuid", bytes)
"""Sixteen raw bytes, as on the wire: cheaper to hash and compare than `uuid.UUID`."""

ZERO_UUID: Final = Uuid(bytes(16))
"""No id."""


class TopicPartition(NamedTuple):
    """A partition by the name of its topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def random_uuid() -> Uuid:
    """A new version-4 id whose text does not start with a dash, so that it can be used on a command line."""
    while True:
        raw = bytearray(secrets.token_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        candidate = Uuid(bytes(raw))
        if not format_uuid(candidate).startswith("-"):
            return candidate


def format_uuid(value: Uuid) -> str:
    """The 22 characters that Kafka's tools and znodes use."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def parse_uuid(text: str) -> Uuid:
    """Parses the 22 characters that `format_uuid` returns."""
    if not _UUID_FORM.fullmatch(text):
        raise ValueError(f"{text!r} is not a valid id: an id has 22 characters: letters, digits, '-' and '_'")
    return Uuid(base64.urlsafe_b64decode(text + "=="))
