"""The files of a log directory, whoever wrote it."""

from __future__ import annotations

from pathlib import Path

_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def segment_files(place: Path) -> list[Path]:
    """All that the tool can read below a folder, in order."""
    return sorted(path for path in place.glob("**/*") if path.suffix in _SUFFIXES)


def read_epochs(folder: Path) -> list[tuple[int, int]]:
    """The leader epochs in a partition's folder, with their first offsets; without a file there are none."""
    file = folder / "leader-epoch-checkpoint"
    lines = file.read_text().splitlines()[2:] if file.exists() else []
    return [(int(epoch), int(offset)) for epoch, offset in map(str.split, lines)]


def tear(segment: Path) -> None:
    """Puts a piece of a batch behind the last one, as a crash in the middle of a write does."""
    data = segment.read_bytes()
    first_batch_size = 12 + int.from_bytes(data[8:12], "big")
    with segment.open("ab") as file:
        file.write(data[: first_batch_size - 7])
