"""What the tests cover of each room: reads the data of `make coverage`, prints a table and the modules that need tests.

Branches count like statements: a room is covered to the share of its statements and branches that ran.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
ENOUGH: Final = 85.0
"""A module that is covered to less than this share is listed."""


@dataclass
class Counts:
    statements: int = 0
    branches: int = 0
    missed: int = 0
    """Statements and branches that did not run."""

    def add(self, summary: dict[str, Any]) -> None:
        self.statements += summary["num_statements"]
        self.branches += summary["num_branches"]
        self.missed += summary["missing_lines"] + summary["missing_branches"]

    @property
    def percent(self) -> float:
        total = self.statements + self.branches
        return 100.0 * (total - self.missed) / total if total else 100.0


def room_of(file: str) -> str:
    """`ottla.wire` for src/ottla/wire/…; the package itself for a module directly in it."""
    parts = Path(file).parts
    below = parts[parts.index("src") + 1 :]
    return ".".join(below[:2]) if len(below) > 2 else below[0]


def summaries() -> dict[str, dict[str, Any]]:
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = [sys.executable, "-m", "coverage", "json", "--quiet", "--ignore-errors", "-o", report.name]
        subprocess.run(command, cwd=ROOT, check=True)
        files = json.loads(Path(report.name).read_text())["files"]
    return {name: each["summary"] for name, each in files.items()}


def main() -> None:
    rooms: defaultdict[str, Counts] = defaultdict(Counts)
    total, weak = Counts(), []
    for name, summary in sorted(summaries().items()):
        rooms[room_of(name)].add(summary)
        total.add(summary)
        module = Counts()
        module.add(summary)
        if module.percent < ENOUGH:
            weak.append((module.missed, name, module))
    print("| room | statements | branches | covered |")
    print("| --- | ---: | ---: | ---: |")
    for room, counts in [*sorted(rooms.items()), ("all", total)]:
        print(f"| `{room}` | {counts.statements:,} | {counts.branches:,} | {counts.percent:.1f} % |")
    print(f"\nModules covered to less than {ENOUGH:.0f} %, those with most to test first:")
    for missed, name, module in sorted(weak, reverse=True):
        print(f"  {module.percent:5.1f} %  {missed:5} not run  {name}")


if __name__ == "__main__":
    main()
