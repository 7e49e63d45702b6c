"""Spark's checkpoint directories: what they are of, whether they change, and deleting them.

Only local directories. A checkpoint has the id of its query in `metadata`, the offsets of each micro-batch in `offsets`
and the numbers of finished micro-batches in `commits`. Nothing in it says whether the query is running; but one that
processes records writes files with each micro-batch, which `seen` makes visible.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ottla.cli.session import CommandError

_ASIDE: Final = ".ottla-reset"
"""What a directory that is being deleted ends with. Its query would not find it any more."""

_TOPICS: Final = "ottla-reset-topics.json"

Seen = frozenset[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint of one query."""

    place: Path
    query_id: str
    topics: tuple[str, ...]
    """The topics that it has read."""
    last_planned: int | None
    """The newest micro-batch whose offsets are written; None before the first one."""
    last_done: int | None
    """The newest micro-batch that is finished."""
    seen: Seen
    """Names and times of the files that each micro-batch writes."""

    @property
    def is_unfinished(self) -> bool:
        """Whether the last micro-batch was begun and not finished."""
        return self.last_planned is not None and self.last_planned != self.last_done


def checkpoints_at(place: Path) -> list[Checkpoint]:
    """The checkpoint in this directory; or those in its subdirectories, as `ottla pipeline` creates them. Raises if
    there is none, or if anything else is there: it would be deleted, too."""
    if (place / "metadata").is_file():
        return [_read(place)]
    if aside(place).is_dir():
        return []
    if not place.is_dir():
        raise CommandError(f"directory '{place}' does not exist: give the checkpointLocation of the query")
    found = [child for child in sorted(place.iterdir()) if (child / "metadata").is_file()]
    others = [child.name for child in sorted(place.iterdir()) if child not in found and child.is_dir()]
    if not found or others:
        has = f"it has other directories ({', '.join(others)})" if found else "it has no file 'metadata'"
        raise CommandError(f"directory '{place}' is not the checkpoint of a query: {has}. Nothing was changed")
    return [_read(child) for child in found]


def aside(place: Path) -> Path:
    """Where the directory is moved before it is deleted."""
    return place.with_name(place.name + _ASIDE)


def put_aside(place: Path) -> None:
    """Moves the directory away, in one step: a query that is started finds no half of it."""
    if place.is_dir():
        if aside(place).exists():
            shutil.rmtree(aside(place))
        place.rename(aside(place))


def note_topics(place: Path, topics: Mapping[str, Mapping[str, Any]]) -> None:
    """Keeps what is needed to create topics again, in case the reset is interrupted after they were deleted."""
    aside(place).mkdir(exist_ok=True)
    unfinished = aside(place) / f".{_TOPICS}"
    unfinished.write_text(json.dumps(topics), "utf-8")
    unfinished.replace(aside(place) / _TOPICS)


def noted_topics(place: Path) -> dict[str, dict[str, Any]]:
    """What an interrupted reset has noted."""
    try:
        noted: dict[str, dict[str, Any]] = json.loads((aside(place) / _TOPICS).read_text("utf-8"))
    except FileNotFoundError:
        return {}
    return noted


def delete_aside(place: Path) -> None:
    """Deletes what `put_aside` has moved."""
    if aside(place).exists():
        shutil.rmtree(aside(place))


def _read(place: Path) -> Checkpoint:
    try:
        query_id = str(json.loads((place / "metadata").read_text("utf-8"))["id"])
        if not (place / "offsets").is_dir():
            raise ValueError("it has no directory 'offsets'")
        planned, done = _batches(place / "offsets"), _batches(place / "commits")
        topics = set[str]()
        for batch in planned[-1:]:
            topics.update(_topics((place / "offsets" / str(batch)).read_text("utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(
            f"directory '{place}' is not the checkpoint of a query: {error}. Nothing was changed"
        ) from None
    seen = frozenset(
        (f"{part}/{one.name}", one.stat().st_mtime_ns)
        for part in ("offsets", "commits", "sources")
        if (place / part).is_dir()
        for one in (place / part).rglob("*")
        if one.is_file()
    )
    return Checkpoint(
        place, query_id, tuple(sorted(topics)), planned[-1] if planned else None, done[-1] if done else None, seen
    )


def _batches(folder: Path) -> list[int]:
    return sorted(int(one.name) for one in folder.iterdir() if one.name.isdigit()) if folder.is_dir() else []


def _topics(offsets: str) -> Iterator[str]:
    """The topics of all sources that count offsets by partition: a source has one line of JSON."""
    for line in offsets.splitlines():
        start = line.find("{")
        if start < 0:
            continue
        try:
            source: Any = json.loads(line[start:])
        except ValueError:
            continue
        for topic, partitions in source.items():
            if isinstance(partitions, dict) and partitions and all(name.isdigit() for name in partitions):
                yield topic
