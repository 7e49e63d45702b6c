"""A dialogue: what is asked, step by step, in a form that can be kept in a file and played again.

A step is one of

    {"api": "Fetch", "version": 12, "connection": 0, "request": {...}, "as": "s0", "later": true}
    {"receive": 1}       the answer to the oldest request on that connection that was sent with "later"
    {"restart": true}    stop both brokers cleanly and start them again

`request` has the fields of the message by name; those left out have their defaults. Strings that begin with `$` are
symbols (`differential.symbols`). `as` names what the answer gives out: a producer id, a member id, a fetch session.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Step = dict[str, Any]


@dataclass(frozen=True)
class Dialogue:
    """Steps, and where they came from."""

    steps: tuple[Step, ...]
    seed: int = 0
    number: int = 0
    theme: str = ""
    peer: str = ""
    note: str = field(default="", compare=False)

    def with_steps(self, steps: Sequence[Step]) -> Dialogue:
        return Dialogue(tuple(steps), self.seed, self.number, self.theme, self.peer, self.note)

    @property
    def restarts(self) -> bool:
        return any("restart" in step for step in self.steps)

    @property
    def names_empty_group(self) -> bool:
        """Whether it asks for the group without a name, which all dialogues would share."""
        return any("" in _groups_of(step.get("request", {})) for step in self.steps)

    def save(self, path: Path) -> None:
        path.write_text(self.text(), encoding="utf-8")

    def text(self) -> str:
        """One step per line."""
        head = {"seed": self.seed, "number": self.number, "theme": self.theme, "peer": self.peer, "note": self.note}
        lines = ",\n    ".join(json.dumps(step) for step in self.steps)
        return json.dumps(head)[:-1] + f', "steps": [\n    {lines}\n]}}\n'


def _groups_of(request: dict[str, Any]) -> Iterator[str]:
    if "group_id" in request:
        yield request["group_id"]
    for several in ("groups", "groups_names", "group_ids"):
        for each in request.get(several, ()):
            yield each["group_id"] if isinstance(each, dict) else each


def load(path: Path) -> Dialogue:
    data = json.loads(path.read_text(encoding="utf-8"))
    return Dialogue(
        tuple(data["steps"]),
        data.get("seed", 0),
        data.get("number", 0),
        data.get("theme", ""),
        data.get("peer", ""),
        data.get("note", ""),
    )


def api_name(step: Step) -> str:
    """For counting: the API, or what else the step does."""
    for kind in ("restart", "receive"):
        if kind in step:
            return kind
    return str(step["api"])
