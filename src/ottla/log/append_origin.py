"""Who appends to a log, which decides how much is checked."""

from __future__ import annotations

from enum import Enum


class AppendOrigin(Enum):
    """The source of batches."""

    CLIENT = "client"
    """A producer: everything is checked."""
    COORDINATOR = "coordinator"
    """A group or transaction coordinator: epochs are checked; its batches carry no sequence numbers."""
    REPLICATION = "replication"
    """The partition's leader, which has already checked them."""
