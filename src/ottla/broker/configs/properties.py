"""Parses and writes Java properties files: `key=value` lines, with the whole syntax of `java.util.Properties`.

A line that starts with # or ! is a comment. A key ends at the first =, : or blank. A line that ends with an odd number
of backslashes continues in the next one. `\\uXXXX`, `\\t`, `\\n`, `\\r` and `\\f` are escapes; any other character
after a backslash stands for itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_BLANKS: Final = " \t\f"
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.|$)", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN_CONTROLS: Final = {control: f"\\{letter}" for letter, control in _CONTROLS.items()} | {"\\": "\\\\"}


class PropertiesError(ValueError):
    """A line that cannot be parsed; `line` counts from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Property:
    key: str
    value: str
    line: int
    """The first line of the entry, counted from 1."""


def parse_properties(text: str) -> list[Property]:
    """All entries, in order; of several with the same key, Java uses the last."""
    found = []
    for number, line in _logical_lines(text):
        end = _key_end(line)
        separator = _SEPARATOR.match(line, end)
        value = line[separator.end() :] if separator else ""
        found.append(Property(_unescape(line[:end], number), _unescape(value, number), number))
    return found


def properties_text(entries: Mapping[str, str]) -> str:
    """One line per entry. `parse_properties` returns the same keys and values."""
    return "".join(f"{_written_key(key)}={_written_value(value)}\n" for key, value in entries.items())


def _written_key(key: str) -> str:
    return re.sub(r"[ =:#!]", r"\\\g<0>", _written_controls(key))


def _written_value(value: str) -> str:
    written = _written_controls(value)
    return f"\\{written}" if written.startswith(" ") else written


def _written_controls(text: str) -> str:
    return "".join(_WRITTEN_CONTROLS.get(char, char) for char in text)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The logical lines without comments and blank lines, each with the number of its first line."""
    start, so_far = 0, ""
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = raw.lstrip(_BLANKS)
        if not so_far:
            if not line or line[0] in "#!":
                continue
            start = number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            so_far += line[:-1]
            continue
        yield start, so_far + line
        so_far = ""
    if so_far:
        yield start, so_far


def _key_end(line: str) -> int:
    escaped = False
    for position, char in enumerate(line):
        if not escaped and (char in "=:" or char in _BLANKS):
            return position
        escaped = char == "\\" and not escaped
    return len(line)


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        escape = match[1]
        if escape == "u":
            raise PropertiesError(line, "\\u needs four hexadecimal digits")
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        return _CONTROLS.get(escape, escape)

    # Java writes characters beyond 16 bits as two escapes.
    return _ESCAPE.sub(replace, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
