"""Authorized operations (KIP-430)."""

from __future__ import annotations

from ottla.base.operations import NOT_ASKED, Operation


def operations_of(bits: int) -> frozenset[Operation] | None:
    """The operations whose bit is set; None if they were not requested, or the broker is too old."""
    if bits == NOT_ASKED:
        return None
    return frozenset(operation for operation in Operation if bits >> operation & 1)
