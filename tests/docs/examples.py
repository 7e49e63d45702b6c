"""The examples of a page: its blocks of Python, each a program of its own, and what the page says that they print.

A block marked `text` is what the program before it prints; `…` in it stands for anything. Programs reach the broker at
`localhost:9092`: another address is put in its place before they run, and taken out of what they print.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ADDRESS = "localhost:9092"
ANYTHING = "…"
TIMEOUT_S = 60

_BLOCK = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class ExampleError(AssertionError):
    """An example that fails, or prints something else than the page says."""


@dataclass(frozen=True, slots=True)
class Example:
    """A program, the line of the page on which it begins, and what it is said to print, if anything is said."""

    page: str
    line: int
    program: str
    prints: str | None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def examples_of(page: Path) -> list[Example]:
    """The page's examples in their order."""
    source = page.read_text("utf-8")
    found: list[Example] = []
    is_open = False  # whether the last block was a program, so that a text can be what it prints
    for block in _BLOCK.finditer(source):
        line = source.count("\n", 0, block.start()) + 2
        kind, text = block["kind"], block["text"]
        if kind == "python":
            found.append(Example(page.name, line, text, None))
        elif kind == "text":
            if not is_open:
                raise ExampleError(f"{page.name}:{line}: no program stands before what is printed")
            found[-1] = Example(found[-1].page, found[-1].line, found[-1].program, text)
        is_open = kind == "python"
    return found


def run(example: Example, bootstrap: str, place: Path) -> None:
    """Runs it as a user would: a process of its own, in an empty folder. Warnings are errors."""
    program = place / f"{Path(example.page).stem}_{example.line}.py"
    program.write_text(example.program.replace(ADDRESS, bootstrap), "utf-8")
    command = [sys.executable, "-W", "error", str(program)]
    try:
        result = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ExampleError(
            f"{example.place} did not end in {TIMEOUT_S} s: {error.stdout!r} {error.stderr!r}"
        ) from error
    if result.returncode or result.stderr:
        raise ExampleError(f"{example.place} failed ({result.returncode}):\n{result.stdout}\n{result.stderr}")
    printed = result.stdout.replace(bootstrap, ADDRESS)
    if example.prints is not None and not _is_like(printed, example.prints):
        raise ExampleError(f"{example.place} prints\n{printed}\nand the page says\n{example.prints}")


def _is_like(printed: str, said: str) -> bool:
    pattern = ".*".join(map(re.escape, said.rstrip().split(ANYTHING)))
    return re.fullmatch(pattern, printed.rstrip()) is not None
