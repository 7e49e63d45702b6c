"""Who a producer is to brokers."""

from __future__ import annotations

from typing import NamedTuple


class Identity(NamedTuple):
    """A producer's id, given by a broker, and epoch."""

    producer_id: int
    epoch: int
