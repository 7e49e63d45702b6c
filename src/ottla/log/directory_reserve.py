"""Space that a log directory reserves for a stop and a start on a full disk.

A clean stop writes a few small files: offsets, the ends of indexes, the clean shutdown marker. A start after a crash
rebuilds indexes. If the disk is full, this file is removed to make space for them: otherwise the next start would have
to read all logs again, and might not succeed. The file is created again at the first start that has space for it.

Appends never use it.
"""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Final

from ottla.base.disk import Disk

_logger = logging.getLogger(__name__)

_NAME: Final = "ottla-reserve"


class DirectoryReserve:
    """A file of that size; no file if it is 0."""

    def __init__(self, disk: Disk, directory: Path, size_bytes: int) -> None:
        self._disk = disk
        self._path = directory / _NAME
        self._size_bytes = size_bytes
        self._is_released = False

    def fill(self) -> None:
        """Creates the file, if there is space. The owner calls it when the directory is open."""
        self._is_released = False
        if not self._size_bytes:
            return
        try:
            if self._disk.exists(self._path) and self._disk.size(self._path) == self._size_bytes:
                return
            self._disk.write(self._path, random.Random(0).randbytes(self._size_bytes))  # zeros may take no space
        except OSError as error:
            _logger.warning("%s: no space could be reserved for a clean shutdown: %s", self._path, error)
            self.release()

    def release(self) -> bool:
        """Removes the file; returns whether that made space, now or in an earlier call. Thread-safe."""
        if self._size_bytes and not self._is_released:
            try:
                self._is_released = self._disk.exists(self._path)
                self._disk.remove(self._path)
            except OSError as error:
                _logger.warning("%s: the room that is kept for a clean stop cannot be used: %s", self._path, error)
                self._is_released = False
        return self._is_released
