"""What a client may do with a thing, as brokers tell it where asked (KIP-430)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

_NOT_TOLD: Final = -(2**31)


class Operation(IntEnum):
    """Operations by Kafka's numbers."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


def operations_of(bits: int) -> frozenset[Operation] | None:
    """Those whose bit is set; None if the broker was not asked, or is too old to tell."""
    if bits == _NOT_TOLD:
        return None
    return frozenset(operation for operation in Operation if bits >> operation & 1)
