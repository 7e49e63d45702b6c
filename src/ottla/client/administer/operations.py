"""What a client may do with a thing, as brokers tell it where asked (KIP-430)."""

from __future__ import annotations

from ottla.base.operations import NOT_ASKED, Operation


def operations_of(bits: int) -> frozenset[Operation] | None:
    """Those whose bit is set; None if the broker was not asked, or is too old to tell."""
    if bits == NOT_ASKED:
        return None
    return frozenset(operation for operation in Operation if bits >> operation & 1)
