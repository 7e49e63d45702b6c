"""Operations on topics, groups and the cluster, with the numbers of access control lists and responses (KIP-430)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

NOT_ASKED: Final = -(2**31)
"""In a response: the client did not ask which operations it may do."""


class Operation(IntEnum):
    """Operations with Kafka's numbers."""

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
