"""Two trees, field by field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from differential.dialogue import Step, api_name

ABSENT: Final = "<absent>"
_INDEX = re.compile(r"\[\d+\]")


@dataclass(frozen=True)
class Exchange:
    """A step that was played, and what the brokers answered."""

    step: Step
    ours: Any
    theirs: Any

    @property
    def api(self) -> str:
        return api_name(self.step)

    @property
    def request(self) -> dict[str, Any]:
        return dict(self.step.get("request", {}))


@dataclass(frozen=True)
class Difference:
    """One field that two brokers answer differently."""

    peer: str
    number: int
    """Of the step."""
    step: Step
    path: str
    ours: Any
    theirs: Any
    history: tuple[Exchange, ...] = ()
    """What was asked before this step, in order."""
    our_tree: Any = None
    their_tree: Any = None

    @property
    def api(self) -> str:
        return str(self.step.get("api", "receive"))

    @property
    def version(self) -> int:
        return int(self.step.get("version", -1))

    @property
    def request(self) -> dict[str, Any]:
        return dict(self.step.get("request", {}))

    @property
    def field(self) -> str:
        """The path without numbers of elements."""
        return _INDEX.sub("", self.path)

    @property
    def kind(self) -> str:
        """What differences of one cause have in common, as far as that can be said from outside."""
        ours, theirs = self.ours, self.theirs
        if isinstance(ours, list) and isinstance(theirs, list):
            return f"{self.api} {self.field}: {'more' if len(ours) > len(theirs) else 'fewer'} elements"
        if type(ours) is type(theirs) is int and not self.field.endswith("error_code"):
            return f"{self.api} {self.field}: {'more' if ours > theirs else 'less'}"
        return f"{self.api} {self.field}: {_short(ours)} instead of {_short(theirs)}"


def _short(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, dict | list) else repr(value)


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Paths and the two values there; the whole of what only one side has."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in [*theirs, *(key for key in ours if key not in theirs)]:
            inside = f"{path}/{key}" if path else key
            if key not in ours or key not in theirs:
                yield inside, ours.get(key, ABSENT), theirs.get(key, ABSENT)
            else:
                yield from differences(ours[key], theirs[key], inside)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(mine, other, f"{path}[{index}]")
    elif ours != theirs or type(ours) is not type(theirs):
        yield path, ours, theirs
