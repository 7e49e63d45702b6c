"""Plans as files, in the format of Kafka's `kafka-reassign-partitions`:

{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3], "log_dirs": ["any", …]}]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ottla.base.ids import TopicPartition
from ottla.cli.session import CommandError

_ANY_LOG_DIR = "any"


def plan_text(assignment: Mapping[TopicPartition, Sequence[int]]) -> str:
    rows = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(replicas),
            "log_dirs": [_ANY_LOG_DIR] * len(replicas),
        }
        for partition, replicas in sorted(assignment.items())
    ]
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    return f'{{"version": 1, "partitions": [\n{lines}\n]}}\n'


def read_plan(file: Path) -> dict[TopicPartition, tuple[int, ...]]:
    """The wanted replicas of each partition. Raises `CommandError` that names the file and what is wrong."""
    try:
        content = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise CommandError(f"{file} is not JSON: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("partitions"), list):
        raise CommandError(f"{file} has no list of partitions. Create a plan with `ottla reassign plan`.")
    if content.get("version", 1) != 1:
        raise CommandError(f"{file} has version {content['version']!r}; only version 1 is known")
    wanted: dict[TopicPartition, tuple[int, ...]] = {}
    for row in content["partitions"]:
        partition, replicas = _row(file, row)
        if partition in wanted:
            raise CommandError(f"{file} has partition {partition} twice")
        wanted[partition] = replicas
    if not wanted:
        raise CommandError(f"{file} has no partitions")
    return wanted


def _row(file: Path, row: Any) -> tuple[TopicPartition, tuple[int, ...]]:
    match row:
        case {"topic": str(topic), "partition": int(index), "replicas": [int(), *_] as replicas} if all(
            isinstance(one, int) for one in replicas
        ):
            partition = TopicPartition(topic, index)
        case _:
            raise CommandError(f'{file}: {json.dumps(row)} needs "topic", "partition" and "replicas"')
    if len(set(replicas)) < len(replicas):
        raise CommandError(f"{file}: partition {partition} has a broker twice in its replicas: {replicas}")
    named = [one for one in row.get("log_dirs", []) if one != _ANY_LOG_DIR]
    if named:
        raise CommandError(
            f"{file}: partition {partition} names log directory {named[0]!r}. Only {_ANY_LOG_DIR!r} is supported: "
            "replicas go to the log directory that the broker chooses."
        )
    return partition, tuple(replicas)
