"""Whole log directories as Kafka's dump tool reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compat.log_files import read_epochs, segment_files
from compat.log_writing import Appended
from golden import segment_dump
from golden.segment_dump import Fields

_RUNS = {
    "deep": ("--deep-iteration", "--print-data-log"),
    "verify-index": ("--verify-index-only",),
    "index-sanity": ("--index-sanity-check",),
}


@dataclass(frozen=True, slots=True)
class DumpedLogs:
    """What the tool read in directories that lie beside each other, and what had been written there."""

    place: Path
    accounts: Mapping[str, list[Appended]]
    texts: Mapping[Path, str]
    complaints: Mapping[str, tuple[str, ...]]
    epochs: Mapping[tuple[str, str], list[tuple[int, int]]]

    def of(self, directory: str, topic: str, suffix: str) -> dict[Path, str]:
        """The files of a topic's partition, by their base offset."""
        folder = self.place / directory / f"{topic}-0"
        return {path: text for path, text in self.texts.items() if path.parent == folder and path.suffix == suffix}

    def batches(self, directory: str, topic: str) -> tuple[list[Fields], list[Fields]]:
        """Headers and markers of all segments."""
        batches: list[Fields] = []
        markers: list[Fields] = []
        for path, text in self.of(directory, topic, ".log").items():
            some_batches, some_markers = segment_dump.batches_and_markers(path, text)
            batches += some_batches
            markers += some_markers
        return batches, markers


def dump_logs(place: Path, accounts: Mapping[str, list[Appended]]) -> DumpedLogs:
    """Reads all log directories in a folder, with everything the tool can check."""
    files = segment_files(place)
    dumps = {name: segment_dump.dump("3.9.1", files, *flags) for name, flags in _RUNS.items()}
    epochs = {
        (folder.parent.name, folder.name.removesuffix("-0")): read_epochs(folder) for folder in place.glob("*/*-0")
    }
    complaints = {name: dump.complaints for name, dump in dumps.items()}
    return DumpedLogs(place, accounts, dumps["deep"].texts, complaints, epochs)
