"""The commit record: the decision that a batch counts, and with which transactions. Pure.

It is JSON in the commit topic, under the name of the sink as its key. The newest record of a sink is all there is to
know: the topic is compacted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from ottla.client.errors import ArgumentError
from ottla.client.transactions import PreparedTransaction
from ottla.spark.exactly_once.errors import CommitTopicError

FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """Says that the batch counts."""

    batch: int
    run: str
    """Who may write the next batch: a run of the query, which is from one start to the next."""
    first: int
    """The first batch of that run."""
    transactions: tuple[PreparedTransaction, ...]
    rows: int
    written_at_ms: int
    is_adopted: bool = False
    """Whether the transactions are those of an earlier run."""
    refused: tuple[str, ...] = ()
    """Runs whose next batch was aborted, so it must not be recorded any more; the newest last."""

    def encode(self) -> bytes:
        fields = {
            "version": FORMAT,
            "batch": self.batch,
            "run": self.run,
            "first": self.first,
            "transactions": [str(one) for one in self.transactions],
            "rows": self.rows,
            "written_at_ms": self.written_at_ms,
            "adopted": self.is_adopted,
            "refused": list(self.refused),
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> CommitRecord:
        """Raises `CommitTopicError` for what is no commit record, or one of a newer format."""
        try:
            fields = json.loads(value)
            version = fields["version"]
            if version != FORMAT:
                raise CommitTopicError(
                    f"a commit record has the format {version!r}, and this version of ottla knows {FORMAT}: use the "
                    "version of ottla that wrote it, or a newer one"
                )
            return cls(
                batch=int(fields["batch"]),
                run=str(fields["run"]),
                first=int(fields["first"]),
                transactions=tuple(PreparedTransaction.parse(one) for one in fields["transactions"]),
                rows=int(fields["rows"]),
                written_at_ms=int(fields["written_at_ms"]),
                is_adopted=bool(fields["adopted"]),
                refused=tuple(map(str, fields["refused"])),
            )
        except (ValueError, KeyError, TypeError, IndexError, ArgumentError) as error:
            raise CommitTopicError(
                f"the commit topic contains {value[:80]!r}, which is not a commit record ({error!r}): nothing but the "
                "exactly-once sink may write to this topic; set commitTopic to another one"
            ) from error
