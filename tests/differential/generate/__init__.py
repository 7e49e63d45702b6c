"""Dialogues from a seed. Each has a theme, which says what its steps are mostly about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from differential.dialogue import Dialogue
from differential.generate import groups, logs, topics
from differential.generate.model import Draft, Range

Step = Callable[[Draft], None]
Weights = Mapping[Step, float]

_RECORDS: Final[Weights] = {
    logs.produce: 10,
    logs.fetch: 8,
    logs.list_offsets: 4,
    logs.delete_records: 1.5,
    logs.leader_epoch_ends: 1,
    logs.init_producer: 0.4,
}
_OFFSETS: Final[Weights] = {
    groups.commit: 6,
    groups.fetch_offsets: 6,
    groups.delete_offsets: 1,
    groups.delete_groups: 1,
    groups.describe_groups: 1,
    groups.list_groups: 0.5,
    groups.find_coordinator: 0.5,
}
THEMES: Final[dict[str, Weights]] = {
    "records": _RECORDS,
    "sessions": {
        logs.produce: 5,
        logs.open_session: 1,
        logs.continue_session: 10,
        logs.delete_records: 0.7,
        logs.fetch: 1,
    },
    "producers": {
        logs.init_producer: 1,
        logs.produce: 12,
        logs.describe_producers: 2,
        logs.fetch: 2,
        logs.delete_records: 0.5,
        logs.list_offsets: 1,
    },
    "offsets": _OFFSETS,
    "groups": {
        groups.join: 5,
        groups.sync: 5,
        groups.heartbeat: 4,
        groups.leave: 2,
        groups.commit: 3,
        groups.fetch_offsets: 2,
        groups.describe_groups: 3,
        groups.list_groups: 1,
        groups.delete_groups: 0.7,
    },
    "consumers": {
        groups.beat: 8,
        groups.describe_consumer_groups: 2,
        groups.commit: 2,
        groups.fetch_offsets: 2,
        groups.describe_groups: 1,
        groups.list_groups: 1,
        groups.delete_groups: 0.5,
    },
    "topics": {
        topics.create_badly: 5,
        topics.create_partitions: 3,
        topics.delete_topic: 1.5,
        topics.recreate_topic: 1.5,
        topics.metadata: 4,
        topics.describe_configs: 2,
        logs.produce: 2,
        logs.fetch: 2,
        logs.list_offsets: 1,
    },
    "configs": {
        topics.alter_configs: 5,
        topics.describe_configs: 5,
        logs.produce: 3,
        logs.fetch: 2,
        logs.list_offsets: 1,
    },
    "mixed": {
        **_RECORDS,
        **_OFFSETS,
        logs.open_session: 1,
        logs.continue_session: 5,
        groups.join: 1,
        groups.heartbeat: 1,
        topics.delete_topic: 0.5,
        topics.recreate_topic: 0.7,
        topics.create_partitions: 0.5,
        topics.metadata: 1,
    },
}
_SHARES: Final = {
    "records": 5,
    "sessions": 3,
    "producers": 3,
    "offsets": 2,
    "groups": 3,
    "consumers": 1,
    "topics": 2,
    "configs": 1,
    "mixed": 3,
}


def generate(
    seed: int,
    number: int,
    versions: Mapping[str, Range],
    peer: str,
    *,
    restarts: bool = False,
    theme: str | None = None,
) -> Dialogue:
    """The dialogue of that number; the same for the same arguments."""
    source = Random(f"{seed} {number} {restarts}")
    draft = Draft(source, versions, restarts=restarts)
    chosen = draft.weighted(_SHARES)
    theme = theme or chosen
    weights = THEMES[theme]
    for _ in range(draft.weighted({1: 6, 2: 3})):
        topics.create_topic(draft)
    if theme in ("producers", "mixed"):
        logs.init_producer(draft)
    length = draft.number(5, 40)
    restart_at = draft.number(3, max(length - 2, 4)) if restarts else 0
    for step in range(length):
        if restarts and step == restart_at:
            draft.steps.append({"restart": True})
        draft.weighted(weights)(draft)
    return Dialogue(tuple(draft.steps), seed, number, theme, peer)
