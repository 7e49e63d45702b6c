"""Names of sinks, and transactional ids that say to which sink and run they belong. Pure.

    ottla-spark/query:6f3c…/12-1f2e3d4c5b6a/9ab04c-0-2b/3.1     the transaction of a task
    ottla-spark/query:6f3c…/log                                 the writer of commit records
    └ prefix   └ sink      └ first batch and run └ place └ number and parity of the batch

A *place* is a Python worker's own: nobody else uses its ids while it lives. Even and odd batches use different ids, so
that a batch that was recorded can be completed although tasks of the next one have begun.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

_RUN_CHARACTERS: Final = 12
ONCE: Final = "once:"
"""Begins the name of a sink that nobody uses again."""
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_OWNER: Final = re.compile(rf"(\d+)-([0-9a-f]{{{_RUN_CHARACTERS}}})/")


def is_name(text: str) -> bool:
    """Whether it can be the name of a sink."""
    return _NAME.fullmatch(text) is not None


def sink_of_query(query_id: str, name: str | None) -> str:
    return f"query:{query_id}" if name is None else f"query:{query_id}:{name}"


def sink_of_write(name: str) -> str:
    """A write with a name: once per name."""
    return f"write:{name}"


def sink_of_one_write(execution: str) -> str:
    """A write without a name, which nobody can repeat."""
    return f"{ONCE}{execution}"


def run_token(run: str) -> str:
    """A short text that stands for the run."""
    return hashlib.sha256(run.encode()).hexdigest()[:_RUN_CHARACTERS]


class Owner(NamedTuple):
    """Whose a transaction is: the run, and the first batch of the run."""

    first: int
    token: str


class Identifiers(NamedTuple):
    """The transactional ids of one sink."""

    prefix: str
    sink: str

    @property
    def log(self) -> str:
        return f"{self.prefix}/{self.sink}/log"

    def of_task(self, owner: Owner, place: str, number: int, batch: int) -> str:
        return f"{self.prefix}/{self.sink}/{owner.first}-{owner.token}/{place}/{number}.{batch % 2}"

    def owner_of(self, transactional_id: str) -> Owner | None:
        """None: it is not the id of a task of this sink."""
        begin = f"{self.prefix}/{self.sink}/"
        if not transactional_id.startswith(begin):
            return None
        match = _OWNER.match(transactional_id, len(begin))
        return None if match is None else Owner(int(match[1]), match[2])
