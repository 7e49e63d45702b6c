"""Plays a dialogue against both brokers at once, and stops at the first difference that nobody wants.

Kafka applies configs, and forgets the offsets of deleted topics, after it has answered. So after such a step both
sides are asked until they show the same, or for a moment; those questions are no part of the dialogue.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from differential.comparison import Difference, Exchange, differences
from differential.connection import NoAnswerError
from differential.dialogue import Dialogue, Step, api_name
from differential.on_purpose import OnPurpose
from differential.side import SettleError, Side
from differential.symbols import Symbols, start_time_ms

_CONFIG_S: Final = 0.02
"""Until Kafka has applied a config that it already shows."""
_ALIKE_PATIENCE_S: Final = 2.0
"""With what a broker does after it has answered."""
_WAIT_FOR_OTHERS: Final = ("JoinGroup", "SyncGroup")
_PATIENCE_S: Final = (0.6, 0.3, 3.0)
"""With a request that may wait for what nobody in the dialogue does: for ours, then for Kafka, which was asked at the
same time, if ours has not answered, and if it has."""
_run_numbers = itertools.count()

Explain = Callable[[Difference], OnPurpose | None]


@dataclass
class Played:
    """What came of a dialogue."""

    dialogue: Dialogue
    difference: Difference | None = None
    explained: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    transcript: list[Exchange] = field(default_factory=list)
    problem: str | None = None
    """Why it could not be played to its end."""


class Playing:
    """A dialogue that is under way. `steps` stops before each restart and is called again after it."""

    def __init__(self, dialogue: Dialogue, ports: tuple[int, int], explain: Explain) -> None:
        self._remaining = list(enumerate(dialogue.steps))
        self._explain = explain
        self.result = Played(dialogue)
        prefix, start_ms = f"diff-{os.getpid()}-{next(_run_numbers)}", start_time_ms()
        self.sides = tuple(
            Side(port, Symbols(f"{prefix}{letter}", start_ms), is_kafka=letter == "k")
            for port, letter in zip(ports, "ok", strict=True)
        )

    def steps(self) -> bool:
        """Whether a restart comes next."""
        try:
            for number, step in self._steps():
                if "restart" in step:
                    self.result.asked["restart"] += 1
                    self.result.transcript.append(Exchange(step, None, None))
                    for side in self.sides:
                        side.disconnect()
                    return True
                self._step(number, step)
        except (SettleError, NoAnswerError, OSError) as error:
            self.result.problem = f"{type(error).__name__}: {error}"
            self._remaining = []
        return False

    def after_restart(self) -> None:
        try:
            for side in self.sides:
                side.await_all()
        except (SettleError, NoAnswerError, OSError) as error:
            self.result.problem = f"{type(error).__name__}: {error}"
            self._remaining = []

    def _steps(self) -> Iterator[tuple[int, Step]]:
        while self._remaining:
            yield self._remaining.pop(0)

    def _step(self, number: int, step: Step) -> None:
        self.result.asked[api_name(step)] += 1
        if "receive" not in step:
            for side in self.sides:
                side.send(step)
        ours, theirs = self._received(step)
        if step.get("api") in ("AlterConfigs", "IncrementalAlterConfigs"):
            self._await_configs(step)
        elif step.get("api") == "DeleteTopics":
            self._await_forgotten_offsets()
        elif isinstance(ours, dict) and "log_ends" in ours and isinstance(theirs, dict):
            self._await_log_ends(step, ours, theirs)
        self.result.transcript.append(Exchange(step, ours, theirs))
        for path, mine, other in differences(ours, theirs):
            spoken = self.result.dialogue
            history = tuple(self.result.transcript[:-1])
            found = Difference(spoken.peer, number, step, path, mine, other, history, ours, theirs)
            reason = self._explain(found)
            if reason is not None:
                self.result.explained += 1
                if not reason.parts_ways:
                    continue
            else:
                self.result.difference = found
            self._remaining = []
            return

    def _await_configs(self, step: Step) -> None:
        """Until Kafka shows what ours does; a real difference is there for later steps to find."""
        names = [each["resource_name"] for each in step["request"]["resources"]]
        ours, kafka = self.sides
        wanted = ours.set_configs(names)
        self._await_alike(lambda: kafka.set_configs(names) == wanted)
        time.sleep(_CONFIG_S)

    def _await_forgotten_offsets(self) -> None:
        """Kafka removes the offsets of deleted topics after it has answered."""
        steps = [each.step for each in self.result.transcript if each.api == "OffsetCommit"]
        groups = sorted({step["request"]["group_id"] for step in steps})
        ours, kafka = self.sides
        self._await_alike(lambda: all(kafka.committed(group) == ours.committed(group) for group in groups))

    def _await_log_ends(self, step: Step, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
        """What is not waited for may take a moment: with flush.messages, until the disk has it."""

        def is_alike() -> bool:
            if ours["log_ends"] != theirs["log_ends"]:
                for side, tree in zip(self.sides, (ours, theirs), strict=True):
                    tree["log_ends"] = side.log_ends(step)
            return bool(ours["log_ends"] == theirs["log_ends"])

        self._await_alike(is_alike)

    @staticmethod
    def _await_alike(condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + _ALIKE_PATIENCE_S
        while not condition() and time.monotonic() < deadline_s:
            time.sleep(0.01)

    def _received(self, step: Step) -> tuple[Any, Any]:
        ours, kafka = self.sides
        if "receive" not in step and step["api"] not in _WAIT_FOR_OTHERS:
            return ours.receive(step), kafka.receive(step)
        mine_s, after_none_s, after_some_s = _PATIENCE_S
        mine = ours.receive(step, mine_s)
        return mine, kafka.receive(step, after_none_s if mine == "timeout" else after_some_s)

    def close(self) -> Played:
        for side in self.sides:
            side.clean()
        return self.result


def play(dialogue: Dialogue, ports: tuple[int, int], explain: Explain, restart: Callable[[], None]) -> Played:
    """From the first step to the last, or to the first difference."""
    playing = Playing(dialogue, ports, explain)
    while playing.steps():
        restart()
        playing.after_restart()
    return playing.close()
