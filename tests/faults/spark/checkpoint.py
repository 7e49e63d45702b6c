"""The checkpoint of a streaming query, as Spark leaves it in a folder: what each micro-batch was to read, and which of
them are done."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from faults.spark.history import Batch, Offsets, Place


class Checkpoint:
    def __init__(self, folder: Path, topic: str, partitions: int) -> None:
        self.folder = folder
        self._topic = topic
        self._begin: Offsets = dict.fromkeys(range(partitions), 0)

    @property
    def planned(self) -> int:
        """How many batches have been begun."""
        return len(_numbered(self.folder / "offsets"))

    @property
    def committed(self) -> int:
        """How many batches are done."""
        return len(_numbered(self.folder / "commits"))

    def done(self) -> Offsets:
        """How far the input has been dealt with."""
        last = self.committed - 1
        return self._begin if last < 0 else self._ends(self.folder / "offsets" / str(last))

    def last_took_s(self) -> float:
        """From the plan of the last batch that is done to its end."""
        last = str(self.committed - 1)
        return (self.folder / "commits" / last).stat().st_mtime - (self.folder / "offsets" / last).stat().st_mtime

    def batches(self) -> list[Batch]:
        commits = _numbered(self.folder / "commits")
        found = []
        starts = self._begin
        for number, path in sorted(_numbered(self.folder / "offsets").items()):
            ends = self._ends(path)
            committed_s = commits[number].stat().st_mtime if number in commits else None
            found.append(Batch(number, starts, ends, path.stat().st_mtime, committed_s))
            starts = ends
        return found

    def _ends(self, path: Path) -> Offsets:
        # A version, a line of settings, and a line for each source.
        _, _, source = path.read_text().splitlines()
        return {int(index): offset for index, offset in json.loads(source)[self._topic].items()}


def read_places(results: Path) -> Mapping[int, list[Place]]:
    """What the sink left under `resultsPath`, by the number of the batch."""
    found: dict[int, list[Place]] = {}
    for path in results.glob("batch-*.jsonl"):
        told = map(json.loads, path.read_text().splitlines())
        places = [Place(one["partition"], one["base_offset"], one["records"]) for one in told]
        found[int(path.stem.removeprefix("batch-"))] = places
    return found


def _numbered(folder: Path) -> dict[int, Path]:
    """Files that are there as a whole: others have names that begin with a point."""
    return {int(path.name): path for path in folder.glob("[0-9]*")} if folder.exists() else {}
