"""What tools print about groups, without what differs from run to run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from compat.tools.transcripts import Said

# Ids of members: of the broker, or of clients that choose their own.
_MEMBER_ID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|(?<=\s)[\w+/-]{22}(?=\s)")
_MEASURED = re.compile(r"^\d{4}-\d\d-\d\d [\d:]+, \S+ \S+, (\S+), \S+, (\d+), .*$", re.MULTILINE)
# A member may be told that it is one before it is told what it owns.
_NOTHING_YET = re.compile(r'^.*"partitions_assigned","partitions":\[\]\}\n', re.MULTILINE)


def settled(said: Said) -> Said:
    text = _MEMBER_ID.sub("MEMBER", said.text)
    text = _MEASURED.sub(r"MB \1, records \2", text)
    text = _NOTHING_YET.sub("", text)
    lines = [re.sub(r" {2,}|(?<=\S)\t", " ", line).rstrip() for line in text.splitlines()]
    return Said(said.command, "".join(f"{line}\n" for line in _sorted_rows(said.command, lines)), said.exit)


def _sorted_rows(command: str, lines: list[str]) -> Iterator[str]:
    """Rows of a table, each below its header; all lines of what has no order at all."""
    if command.startswith("kafka-console-consumer") or "--list" in command or "--export" in command:
        yield from sorted(lines)
        return
    rows: list[str] = []
    header: list[str] = []
    for line in lines:
        if header and line:
            rows.append(_without_epochs(header, line))
            continue
        yield from sorted(rows)
        rows = []
        header = line.split() if line.startswith("GROUP ") else []
        yield line
    yield from sorted(rows)


def _without_epochs(header: list[str], row: str) -> str:
    """Groups begin with 1, or before it: that is nobody's promise."""
    words = row.split()
    if len(words) != len(header):
        return row
    return " ".join("EPOCH" if name.endswith("-EPOCH") else word for name, word in zip(header, words, strict=True))
