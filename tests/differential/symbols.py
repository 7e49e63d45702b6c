"""What one broker gave out in one dialogue, by the names that the dialogue has for it, and back.

    $topic:0        the name of a topic, new in every run        $id:0           its id; `$id:none` is nobody's
    $group:0        the id of a group, new in every run          $uid:m0         a member id chosen by the client
    $pid:p0         a producer id                                $member:m0      a member id chosen by the broker
    $generation:0   the last generation of a group               $epoch:m0       the epoch of a member
    $session:s0     a fetch session                              $owned:m0       the partitions of a member
    $leader:0       the leader epoch of a topic's partitions     $time:0         an hour before the start, in ms

Numbers take a third part that is added: `$generation:0:-1`. What was never given out (the step that asks for it was
removed) stands for something that no broker knows.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.base.ids import ZERO_UUID, Uuid

NOBODY: Final = Uuid(b"nobody's id here")
UNKNOWN_NUMBER: Final = 424_242
HOUR_MS: Final = 3_600_000
_ROUND_MS: Final = 10_000
_NUMBERS: Final = ("pid", "generation", "epoch", "session", "leader", "time")


def start_time_ms() -> int:
    """An hour ago, so that the times a dialogue gives its records are never taken for the time of an append."""
    now_ms = time.time_ns() // 1_000_000
    return (now_ms - HOUR_MS) // _ROUND_MS * _ROUND_MS


@dataclass
class Symbols:
    """Not shared between dialogues, nor between brokers."""

    prefix: str
    start_ms: int
    numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    topic_ids: dict[str, Uuid] = field(default_factory=dict)
    members: dict[str, str] = field(default_factory=dict)
    owned: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    leader_epochs: list[int] = field(default_factory=lambda: [0])
    _seen_members: list[str] = field(default_factory=list)
    _seen_sessions: list[int] = field(default_factory=list)
    _seen_epochs: list[int] = field(default_factory=list)
    _old_ids: dict[Uuid, str] = field(default_factory=dict)

    # --- symbols to values ------------------------------------------------------------------------------------------

    def resolve(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._value(value) if value.startswith("$") else value
        if isinstance(value, list):
            return [self.resolve(each) for each in value]
        if isinstance(value, dict):
            return {key: self.resolve(each) for key, each in value.items()}
        return value

    def _value(self, symbol: str) -> Any:
        kind, _, rest = symbol[1:].partition(":")
        key, _, delta = rest.partition(":")
        if kind == "topic":
            return f"{self.prefix}-t{key}"
        if kind == "group":
            return f"{self.prefix}-g{key}"
        if kind == "uid":
            return f"{self.prefix}-m{key}"
        if kind == "id":
            return ZERO_UUID if key == "zero" else self.topic_ids.get(key, NOBODY)
        if kind == "member":
            return self.members.get(key, "nobody-000")
        if kind == "owned":
            return self.owned.get(key, [])
        if kind not in _NUMBERS:
            raise ValueError(f"{symbol!r} is not a symbol")
        if kind == "time":
            return self.start_ms + int(key)
        return self.numbers.get((kind, key), 0 if kind == "leader" else UNKNOWN_NUMBER) + int(delta or 0)

    # --- values to symbols ------------------------------------------------------------------------------------------

    def name_text(self, text: str) -> str:
        for known, member_id in enumerate(self._seen_members):
            text = text.replace(member_id, f"<member {known}>")
        return text.replace(self.prefix, "$")

    def name_member(self, member_id: str) -> str:
        """Ids that brokers make up are told apart by the order in which they were first seen."""
        if (
            "-" in member_id
            and not member_id.startswith((self.prefix, "nobody"))
            and member_id not in self._seen_members
        ):
            self._seen_members.append(member_id)
        return self.name_text(member_id)

    def name_topic_id(self, topic_id: Uuid) -> str:
        if topic_id == ZERO_UUID:
            return "$id:zero"
        if topic_id == NOBODY:
            return "$id:none"
        for key, known in self.topic_ids.items():
            if known == topic_id:
                return f"$id:{key}"
        return self._old_ids.get(topic_id, "$id:?")

    def name_producer_id(self, producer_id: int) -> int | str:
        for (kind, key), known in self.numbers.items():
            if kind == "pid" and known == producer_id:
                return f"$pid:{key}"
        return producer_id

    def name_session(self, session_id: int) -> int | str:
        if session_id == 0:
            return 0
        if session_id not in self._seen_sessions:
            self._seen_sessions.append(session_id)
        return f"<session {self._seen_sessions.index(session_id)}>"

    def name_leader_epoch(self, epoch: int) -> int | str:
        """A restart moves the epoch at Kafka and does not at a lone Ottla broker: all that were current are alike."""
        return "<leader epoch>" if epoch in self.leader_epochs else epoch

    def name_group_epoch(self, epoch: int) -> int | str:
        """Kafka's versions begin a group with different epochs; they tell them apart by their order."""
        if epoch <= 0:
            return epoch
        if epoch not in self._seen_epochs:
            self._seen_epochs.append(epoch)
        return f"<group epoch {self._seen_epochs.index(epoch)}>"

    def name_time(self, time_ms: int) -> int | str:
        now_ms = time.time_ns() // 1_000_000
        if abs(now_ms - time_ms) < HOUR_MS // 3:
            return "<now>"
        if abs(time_ms - self.start_ms) < 100_000 * HOUR_MS:
            return f"$time:{time_ms - self.start_ms}"
        return time_ms

    # --- what answers give out --------------------------------------------------------------------------------------

    def learn_topic(self, name: str, topic_id: Uuid, leader_epochs: list[int]) -> None:
        key = name.removeprefix(f"{self.prefix}-t")
        if key == name:
            return
        before = self.topic_ids.get(key)
        if before is not None and before != topic_id:
            self._old_ids[before] = f"$id:{key} before"
        self.topic_ids[key] = topic_id
        for epoch in leader_epochs:
            if epoch >= 0 and epoch not in self.leader_epochs:
                self.leader_epochs.append(epoch)
        if leader_epochs:
            self.numbers["leader", key] = max(leader_epochs)

    def learn(self, step: dict[str, Any], answer: Any) -> None:
        """What the answer to a step with a name for it gives out."""
        name, api = step.get("as"), step["api"]
        if name is None:
            return
        if api == "InitProducerId" and answer.error_code == 0:
            self.numbers["pid", name] = answer.producer_id
        elif api == "Fetch" and answer.session_id:
            self.numbers["session", name] = answer.session_id
        elif api == "JoinGroup":
            if answer.member_id:
                self.members[name] = answer.member_id
            if answer.generation_id >= 0:
                self.numbers["generation", step["request"]["group_id"].removeprefix("$group:")] = answer.generation_id
        elif api == "ConsumerGroupHeartbeat" and answer.error_code == 0:
            self.members[name] = answer.member_id
            self.numbers["epoch", name] = answer.member_epoch
            if answer.assignment is not None:
                self.owned[name] = [
                    {"topic_id": each.topic_id, "partitions": each.partitions}
                    for each in answer.assignment.topic_partitions
                ]

    def __str__(self) -> str:
        return json.dumps({f"{kind}:{key}": value for (kind, key), value in self.numbers.items()})
