"""A coordinator's log in memory. Commits can be held back, and appends made to fail."""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.records import BatchView
from ottla.records.layout import NO_LEADER_EPOCH
from ottla.records.new_batch import NewBatch


class FakeLog:
    """Every partition of the topic is led here, and starts at offset 0."""

    def __init__(self, partition_count: int = 1) -> None:
        self.partition_count = partition_count
        self.batches: list[list[bytes]] = [[] for _ in range(partition_count)]
        self.refuse_appends: ErrorCode | None = None
        self._ends = [0] * partition_count
        self._committed = [0] * partition_count
        self._is_held = False
        self._waiting: list[tuple[int, int, Callable[[ErrorCode], None]]] = []

    def append(self, index: int, batch: NewBatch) -> int:
        if self.refuse_appends is not None:
            raise CoordinatorError(self.refuse_appends)
        return self.put(index, bytearray(batch.placed(0, NO_LEADER_EPOCH)))

    def put(self, index: int, batch: bytearray) -> int:
        """A batch that somebody else has made, such as a marker."""
        BatchView(batch).assign_offset(self._ends[index])
        self.batches[index].append(bytes(batch))
        self._ends[index] = BatchView(batch).next_offset
        if not self._is_held:
            self._committed[index] = self._ends[index]
        return self._ends[index]

    def is_committed(self, index: int, offset: int) -> bool:
        return self._committed[index] >= offset

    def when_committed(self, index: int, offset: int, tell: Callable[[ErrorCode], None]) -> None:
        if self.is_committed(index, offset):
            tell(ErrorCode.NONE)
        else:
            self._waiting.append((index, offset, tell))

    def hold_commits(self) -> None:
        """What is appended from now on is not committed."""
        self._is_held = True

    def commit(self) -> None:
        """Everything, and what is appended from now on."""
        self._is_held = False
        self._committed = list(self._ends)
        self._tell(ErrorCode.NONE)

    def fail_commits(self, error: ErrorCode) -> None:
        """Whoever waits for a commit is told that it is unsure."""
        self._tell(error)

    def _tell(self, error: ErrorCode) -> None:
        waiting, self._waiting = self._waiting, []
        for _, _, tell in waiting:
            tell(error)

    def read(self, index: int, offset: int, max_bytes: int) -> bytes:
        found = b""
        for batch in self.batches[index]:
            if BatchView(batch).last_offset >= offset:
                if found and len(found) + len(batch) > max_bytes:
                    break
                found += batch
        return found

    def start_offset(self, _index: int) -> int:
        return 0

    def copy(self) -> FakeLog:
        """With everything that was appended, committed."""
        other = FakeLog(self.partition_count)
        other.batches = [list(batches) for batches in self.batches]
        other._ends = list(self._ends)
        other._committed = list(self._ends)
        return other
