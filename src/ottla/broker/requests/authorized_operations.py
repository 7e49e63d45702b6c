"""The authorized operations in responses, one bit per operation (KIP-430). Without an authorizer every client may do
every operation that exists for a resource."""

from __future__ import annotations

from typing import Final

from ottla.base.operations import Operation


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


CLUSTER_OPERATIONS: Final = _bits(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
TOPIC_OPERATIONS: Final = _bits(
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
GROUP_OPERATIONS: Final = _bits(Operation.READ, Operation.DELETE, Operation.DESCRIBE)
