"""The shortest dialogue that still shows a difference: steps are left out in ever smaller runs, then parts of requests.

Nothing here talks to a broker: whether a dialogue still shows the difference is asked of the caller, and only so often.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from differential.dialogue import Dialogue, Step

Shows = Callable[[Dialogue], bool]


class _Budget:
    def __init__(self, shows: Shows, tries: int) -> None:
        self._shows = shows
        self.left = tries

    def __call__(self, dialogue: Dialogue) -> bool:
        if self.left <= 0:
            return False
        self.left -= 1
        return self._shows(dialogue)


def shrink(dialogue: Dialogue, shows: Shows, tries: int = 150) -> Dialogue:
    """`dialogue` itself shows the difference, at its last step at the latest."""
    ask = _Budget(shows, tries)
    shorter = dialogue.with_steps(_fewer_steps(dialogue, ask))
    return _smaller_requests(shorter, ask)


def _fewer_steps(dialogue: Dialogue, ask: _Budget) -> Sequence[Step]:
    steps = list(dialogue.steps)
    run = max(len(steps) // 2, 1)
    while True:
        start, removed = 0, False
        while start < len(steps):
            fewer = steps[:start] + steps[start + run :]
            if fewer and ask(dialogue.with_steps(fewer)):
                steps, removed = fewer, True
            else:
                start += run
        if run == 1 and not removed:
            break
        run = max(run // 2, 1)
    return steps


def _smaller_requests(dialogue: Dialogue, ask: _Budget) -> Dialogue:
    changed = True
    while changed and ask.left > 0:
        changed = False
        for number, step in enumerate(dialogue.steps):
            for smaller in _smaller(step.get("request")):
                steps = list(dialogue.steps)
                steps[number] = {**step, "request": smaller}
                candidate = dialogue.with_steps(steps)
                if ask(candidate):
                    dialogue, changed = candidate, True
                    break
            if changed:
                break
    return dialogue


def _smaller(request: Any) -> Iterator[Any]:
    """The request with one element of one of its lists left out, or one field of a batch."""
    for path in _removable(request, ()):
        smaller = copy.deepcopy(request)
        holder = smaller
        for key in path[:-1]:
            holder = holder[key]
        del holder[path[-1]]
        yield smaller


def _removable(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, each in value.items():
            if path and path[-2:-1] == ("records",) and key != "damage":
                yield (*path, key)
            yield from _removable(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            if len(value) > 1 or not isinstance(each, dict):
                yield (*path, index)
            yield from _removable(each, (*path, index))
