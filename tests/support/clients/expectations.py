"""Records that tests send, and what must come back of them."""

from __future__ import annotations

from collections.abc import Sequence

from support.clients.dialect import CREATE_TIME, Record, Seen

START_MS = 1_700_000_000_000
"""Years ago, so that a time the broker made up is told from one it was given."""

VARIED = (
    Record(b"value", b"key", (), START_MS),
    Record(b"without a key", None, (), START_MS + 1),
    Record(None, b"without a value", (), START_MS + 2),
    Record(b"", b"", (), START_MS + 3),
    Record(b"with headers", b"k", (("a", b"1"), ("b", b"\x00\xff"), ("a", b"again")), START_MS + 4),
    Record("žluťoučký".encode(), "kůň".encode(), (("jméno", "Ottla".encode("utf-16")), ("empty", b"")), START_MS + 5),
    Record(bytes(range(256)) * 8, b"compresses well" * 40, (), START_MS + 3),
)
"""All forms a key, a value and headers can take; the last record is older than those before it."""


def numbered(count: int, partition: int = 0, first: int = 0) -> list[Record]:
    """Records that tell their order by value, key and time."""
    return [
        Record(b"value %d" % number, b"key %d" % number, (), START_MS + number, partition)
        for number in range(first, first + count)
    ]


def as_seen(records: Sequence[Record], first_offset: int = 0) -> list[Seen]:
    """How records of one partition must be seen that were given with their times."""
    return [
        Seen(
            record.partition,
            first_offset + position,
            -1 if record.timestamp_ms is None else record.timestamp_ms,
            CREATE_TIME,
            record.key,
            record.value,
            record.headers,
        )
        for position, record in enumerate(records)
    ]
