"""Follows the log file of a process, and finds the lines that people should see.

Understands both formats of log lines (`ottla.log.format`), and the `Error: …` that a command prints when it fails.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

_TEXT_LINE: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (?P<level>[A-Z]+) +(?P<text>.*)")
_FAILURE: Final = "Error: "
_SEEN_LEVELS: Final = ("WARNING", "ERROR", "CRITICAL")
_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Complaint:
    """A warning or an error that a process has logged."""

    is_error: bool
    text: str


def complaint_of(line: str) -> Complaint | None:
    """None for a line that is neither a warning nor an error: also for the lines of a traceback."""
    if line.startswith(_FAILURE):
        return Complaint(True, line.removeprefix(_FAILURE))
    level, text = _parsed(line)
    return Complaint(level != "WARNING", text) if level in _SEEN_LEVELS else None


def _parsed(line: str) -> tuple[str, str]:
    if (match := _TEXT_LINE.fullmatch(line)) is not None:
        return match["level"], match["text"]
    if line.startswith("{"):
        try:
            content = json.loads(line)
        except ValueError:
            return "", ""
        if isinstance(content, dict):
            return str(content.get("level", "")), str(content.get("message", ""))
    return "", ""


class LogTail:
    """Reads what is appended to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""

    def lines(self) -> list[str]:
        """The complete lines since the last call."""
        if self._file is None:
            try:
                self._file = self._path.open("rb")
            except FileNotFoundError:
                return []
        lines = []
        while piece := self._file.read(_READ_BYTES):
            *complete, self._rest = (self._rest + piece).split(b"\n")
            lines += [line.decode("utf-8", "replace") for line in complete]
        return lines

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def last_complaint(path: Path) -> str | None:
    """The last error or warning in a log file; for a process that failed while it started."""
    tail = LogTail(path)
    try:
        found = [complaint for line in tail.lines() if (complaint := complaint_of(line)) is not None]
    finally:
        tail.close()
    errors = [complaint for complaint in found if complaint.is_error]
    return (errors or found)[-1].text if found else None
