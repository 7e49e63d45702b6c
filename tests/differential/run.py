"""Many dialogues, one after the other and a few at the same time, until time is up; and what came of them."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from threading import Lock
from typing import Protocol

from differential.comparison import Difference
from differential.dialogue import Dialogue
from differential.generate import generate
from differential.generate.model import Range
from differential.on_purpose import ENTRIES, Explanations, OnPurpose
from differential.peers import common_versions, delete_group
from differential.player import Played, Playing, play
from differential.shrinking import shrink

_AT_ONCE = 20
"""Dialogues between two looks at the clock."""
_AROUND_RESTART = 24
"""Dialogues that share a restart."""
_SHRINK_TRIES = 80
_SHRINK_TRIES_RESTART = 8
_SHOWN = 1500
"""Characters of an answer."""
_SHOWN_KINDS, _SHOWN_KIND = 8, 110
"""The most frequent of those that an entry explains, and characters of each."""
_EVERY_S = 5.0


class Peers(Protocol):
    @property
    def ports(self) -> tuple[int, int]: ...
    @property
    def version(self) -> str: ...
    def restart(self) -> None: ...


@dataclass(frozen=True)
class Options:
    seed: int
    seconds: float
    dialogues: int | None = None
    first: int = 0
    theme: str | None = None
    jobs: int = 5
    restarts: int = 1
    keep: Path | None = None


@dataclass
class Found:
    """A difference, with the shortest dialogue that shows it."""

    difference: Difference
    dialogue: Dialogue
    times: int = 1


@dataclass
class Summary:
    seed: int
    peer: str
    dialogues: int = 0
    explained: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    found: dict[str, Found] = field(default_factory=dict)
    fleeting: Counter[str] = field(default_factory=Counter)
    """Differences that did not show again when the dialogue was played again."""
    problems: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Of the differences on purpose, by the names of their entries."""
    unused: list[OnPurpose] = field(default_factory=list)
    seconds: float = 0.0

    def text(self) -> str:
        lines = [
            f"Seed {self.seed} beside Kafka {self.peer}: {self.dialogues:,} dialogues, "
            f"{sum(self.asked.values()):,} steps in {self.seconds:.0f} s",
            "  " + ", ".join(f"{name} {times:,}" for name, times in self.asked.most_common()),
        ]
        for name, times in self.reasons.most_common():
            lines.append(f"{times:6}  on purpose: {name}")
            kinds = [(kind, of) for (entry, kind), of in self.kinds.most_common() if entry == name]
            lines += [f"{of:14}  {kind[:_SHOWN_KIND]}" for kind, of in kinds[:_SHOWN_KINDS]]
        lines += [f"   not needed: {entry.name}" for entry in self.unused]
        lines += [f"{times:6}  not seen again: {kind}" for kind, times in self.fleeting.most_common()]
        lines += [f"{times:6}  not played to the end: {problem}" for problem, times in self.problems.most_common()]
        lines += [f"{found.times:6}  DIFFERENCE {kind}" for kind, found in self.found.items()]
        if not self.found:
            lines.append("No unexplained difference.")
        return "\n".join(lines) + "\n"


class Runner:
    """`tell` is given lines and progress for people."""

    def __init__(self, peers: Peers, options: Options, tell: Callable[[str], object]) -> None:
        self._peers = peers
        self._options = options
        self._tell = tell
        self._explain = Explanations(ENTRIES)
        self._versions: dict[str, Range] = common_versions(peers.ports, peers.version)
        self._summary = Summary(options.seed, peers.version)
        self._numbers = count(options.first)
        self._told_s = time.monotonic()
        self._empty_group = Lock()
        """Held by the dialogue that asks for the group without a name."""

    def run(self) -> Summary:
        began_s = time.monotonic()
        options = self._options
        restarts_left = options.restarts
        with ThreadPoolExecutor(options.jobs) as pool:
            while not self._is_over(began_s):
                passed = (time.monotonic() - began_s) / options.seconds
                if restarts_left > 0 and passed >= (options.restarts - restarts_left + 0.5) / options.restarts:
                    restarts_left -= 1
                    played = self._around_restart(pool)
                else:
                    played = list(pool.map(self._play, islice(self._dialogues(), self._share())))
                for each in played:
                    self._count(each)
                self._progress(began_s)
        self._summary.seconds = time.monotonic() - began_s
        self._summary.reasons = self._explain.used
        self._summary.kinds = self._explain.kinds
        self._summary.unused = self._explain.unused()
        return self._summary

    def _is_over(self, began_s: float) -> bool:
        limit = self._options.dialogues
        if limit is not None and self._summary.dialogues >= limit:
            return True
        return time.monotonic() - began_s > self._options.seconds

    def _share(self) -> int:
        limit = self._options.dialogues
        return _AT_ONCE if limit is None else min(_AT_ONCE, limit - self._summary.dialogues)

    def _dialogues(self, *, restarts: bool = False) -> Iterator[Dialogue]:
        for number in self._numbers:
            yield generate(
                self._options.seed,
                number,
                self._versions,
                self._peers.version,
                restarts=restarts,
                theme=self._options.theme,
            )

    def _play(self, dialogue: Dialogue) -> Played:
        if not dialogue.names_empty_group:
            return play(dialogue, self._peers.ports, self._explain, self._peers.restart)
        with self._empty_group:
            delete_group(self._peers.ports, "")
            return play(dialogue, self._peers.ports, self._explain, self._peers.restart)

    def _around_restart(self, pool: ThreadPoolExecutor) -> list[Played]:
        """Several dialogues up to their restart, one restart for all, and on."""
        delete_group(self._peers.ports, "")
        dialogues = list(islice(self._dialogues(restarts=True), _AROUND_RESTART))
        alone = [each for each in dialogues if each.names_empty_group]
        playing = [
            Playing(dialogue, self._peers.ports, self._explain)
            for dialogue in dialogues
            if not dialogue.names_empty_group or dialogue is alone[0]
        ]
        going_on = [
            each for each, more in zip(playing, pool.map(lambda one: one.steps(), playing), strict=True) if more
        ]
        self._peers.restart()
        for each in going_on:
            each.after_restart()
        list(pool.map(lambda one: one.steps(), going_on))
        return [each.close() for each in playing]

    # --- what came of it ----------------------------------------------------------------------------------------------

    def _count(self, played: Played) -> None:
        summary = self._summary
        summary.dialogues += 1
        summary.asked += played.asked
        summary.explained += played.explained
        if played.problem is not None:
            summary.problems[played.problem.split(" [")[0][:100]] += 1
        if played.difference is None:
            return
        kind = played.difference.kind
        if kind in summary.found:
            summary.found[kind].times += 1
            return
        self._examine(played)

    def _examine(self, played: Played) -> None:
        """Plays it again, shortens it and tells of it."""
        difference = played.difference
        if difference is None:
            return
        kind = difference.kind
        whole = played.dialogue.with_steps(played.dialogue.steps[: difference.number + 1])

        def shows(candidate: Dialogue) -> bool:
            again = self._play(candidate)
            return again.difference is not None and again.difference.kind == kind

        if not shows(whole):
            self._summary.fleeting[kind] += 1
            return
        shortest = shrink(whole, shows, _SHRINK_TRIES_RESTART if whole.restarts else _SHRINK_TRIES)
        again = self._play(shortest)
        found = again.difference if again.difference is not None and again.difference.kind == kind else difference
        self._summary.found[kind] = Found(found, shortest)
        self._tell_of(found, shortest)

    def _tell_of(self, found: Difference, shortest: Dialogue) -> None:
        number = len(self._summary.found)
        text = (
            f"\nDIFFERENCE {number}: {found.kind}\n  at {found.path} of step {found.number}, "
            f"from seed {shortest.seed}, dialogue {shortest.number} ({shortest.theme})\n"
            f"  Ottla {json.dumps(found.our_tree)[:_SHOWN]}\n  Kafka {json.dumps(found.their_tree)[:_SHOWN]}\n"
            f"{shortest.text()}"
        )
        self._tell(text)
        if self._options.keep is not None:
            self._options.keep.mkdir(parents=True, exist_ok=True)
            shortest.save(self._options.keep / f"{shortest.seed}-{shortest.number}.json")

    def _progress(self, began_s: float) -> None:
        now_s = time.monotonic()
        if now_s - self._told_s >= _EVERY_S:
            self._told_s = now_s
            rate = self._summary.dialogues / (now_s - began_s) * 60
            self._tell(
                f"{now_s - began_s:5.0f} s: {self._summary.dialogues:,} dialogues ({rate:.0f} a minute), "
                f"{len(self._summary.found)} differences\n"
            )


def run(peers: Peers, options: Options, tell: Callable[[str], object]) -> Summary:
    tell(f"Seed {options.seed}, Kafka {peers.version}\n")
    return Runner(peers, options, tell).run()
