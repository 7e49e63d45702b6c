"""Builds Python source: lines with indentation, unique names, and the objects that the code refers to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class CodeLines:
    """Used for one compilation."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {}
        self._depth = 0
        self._count = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def constant(self, name: str, value: Any) -> str:
        """Returns a name for the value in the code."""
        self.scope[name] = value
        return name

    def compile(self, function: str, title: str) -> Any:
        exec(compile("\n".join(self.lines), f"<{title}>", "exec"), self.scope)
        return self.scope[function]
