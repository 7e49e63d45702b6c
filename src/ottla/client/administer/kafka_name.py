"""Names of states and types as brokers spell them."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class KafkaName(StrEnum):
    """Case-insensitive. A name that a newer Kafka added becomes the member UNKNOWN, which every subclass has."""

    @classmethod
    def _missing_(cls, value: object) -> Self:
        for member in cls:
            if isinstance(value, str) and member.value.lower() == value.lower():
                return member
        return cls["UNKNOWN"]
