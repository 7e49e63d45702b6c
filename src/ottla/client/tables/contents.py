"""The newest value of each key, and the memory that they need. No I/O.

One thread applies records; any thread reads. Keys are decoded, because readers look them up; values stay as bytes until
they are read, so that loading decodes nothing that nobody asks for, a value that cannot be decoded affects only its own
key, and the size is known. `values` may be read without the lock: each change of one key is a single step for other
threads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from sys import getsizeof
from typing import Any, Final

from ottla.client.errors import ArgumentTypeError, TableTooLargeError
from ottla.client.tables.ordered_keys import OrderedKeys

ENTRY_BYTES: Final = 96
"""What an entry needs beside its key and its value, at most: up to 60 bytes of a hash table that has just grown, and
what the allocator rounds up, and its place in the order."""


class TableContents:
    """Keys and values of one table."""

    def __init__(self, topic: str, max_bytes: int) -> None:
        self.topic = topic
        self.values: dict[Any, bytes] = {}
        self.size_in_bytes = 0
        self.max_bytes = max_bytes
        self._order = OrderedKeys()
        self._lock = threading.Lock()
        """Held while a batch is applied, and by readers that need a moment between two batches."""

    def apply(self, keys: Sequence[Any], values: Sequence[bytes | None]) -> int:
        """Applies records in their order; a value of None deletes the key. Returns how many had no key, and were
        skipped. Raises TypeError if a key cannot be hashed."""
        table, size, without_key = self.values, self.size_in_bytes, 0
        added: list[Any] = []
        with self._lock:
            for key, value in zip(keys, values, strict=True):
                if key is None:
                    without_key += 1
                elif value is None:
                    old = table.pop(key, None)
                    if old is not None:
                        size -= getsizeof(key) + getsizeof(old) + ENTRY_BYTES
                else:
                    old = table.get(key)
                    table[key] = value
                    if old is None:
                        size += getsizeof(key) + getsizeof(value) + ENTRY_BYTES
                        added.append(key)
                    else:
                        size += len(value) - len(old)
            self.size_in_bytes = size
            if added and self._order.is_used:
                self._order.add(added)
        if size > self.max_bytes:
            needs = f"the table of topic {self.topic!r} needs more than max_bytes={self.max_bytes}"
            so_far = f"{len(table)} keys take {size} bytes, and it is not read to its end"
            raise TableTooLargeError(f"{needs}: {so_far}. Increase max_bytes, or keep less in the topic")
        return without_key

    def between(self, start: Any, stop: Any, *, reverse: bool) -> Iterator[tuple[Any, bytes]]:
        """Keys and values in the order of the keys. Each value is the one at the moment when it is yielded."""
        with self._lock:
            try:
                found = self._order.between(start, stop, self.values)
            except TypeError as error:
                reason = f"the keys of topic {self.topic!r} cannot be ordered, or not with the limits of this range"
                raise ArgumentTypeError(f"{reason}: {error}") from error
        return self._present(found.backward() if reverse else found.forward())

    def _present(self, keys: Iterator[Any]) -> Iterator[tuple[Any, bytes]]:
        last: Any = None
        for key in keys:
            value = self.values.get(key)
            if value is not None and (last is None or key != last):
                yield key, value
            last = key

    def copy(self) -> dict[Any, bytes]:
        """All entries at one moment, between two batches."""
        with self._lock:
            return self.values.copy()
