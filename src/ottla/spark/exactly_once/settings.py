"""The options of an exactly-once sink, as its parts need them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.spark.exactly_once.identifiers import Identifiers


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactlyOnceOptions:
    """Sent from the driver to the tasks. Can be a key: what was pickled is equal."""

    name: str | None
    """Of the write in foreachBatch."""
    job: str | None
    """Name of a batch job's write that takes effect once. At most one of both is set."""
    topic: str
    """For commit records."""
    prefix: str
    """Of all transactional ids."""
    fail_on_data_loss: bool
    timeout_ms: int
    is_two_phase: bool
    client_settings: Mapping[str, str] = field(hash=False)
    """The config of a transactional producer, without transactional.id."""

    def identifiers(self, sink: str) -> Identifiers:
        return Identifiers(self.prefix, sink)
