"""A range of a file, passed on instead of its bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.base.disk import File


@dataclass(slots=True)
class FileSlice:
    """A range of bytes in a file. `len()` is their number, so that it can stand for bytes in a response; a connection
    sends it by `sendfile`, other code calls `read`."""

    file: File
    position: int
    size: int
    held: bytes | None = field(default=None, repr=False, compare=False)
    """The bytes, if they were read already."""

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        if self.held is not None:
            return self.held
        data = self.file.read_at(self.position, self.size)
        if len(data) != self.size:
            raise EOFError(f"{self.file.path} ends before the end of the slice")
        return data
