"""A connection without I/O: bytes come in and become frames, answers become chunks, in the order of their requests.

    driver ── where to receive ──▶ InBuffer ──▶ frames (views) ──▶ handler ──▶ Answers ──▶ chunks ── driver

A frame is a view of the buffer it was received into; it is the handler's until the handler returns. Answers may be
ready in any order and leave in the order in which their requests came.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator
from struct import Struct
from typing import Any, Final

from ottla.net.limits import MemoryBudget
from ottla.wire.errors import FrameSizeError
from ottla.wire.framing import SIZE_BYTES

_logger = logging.getLogger(__name__)

_SIZE = Struct(">i")

Chunk = Any
"""Bytes, or a slice of a file."""

SMALL_FRAME: Final = 64 * 1024
"""Frames beyond this are received into memory of their own, which counts against the budget."""


class RefusedFrameError(FrameSizeError):
    """A size that no request has. `seen` is how it began: it tells what else was meant."""

    def __init__(self, reason: str, seen: bytes) -> None:
        super().__init__(reason, offset=0)
        self.seen = seen


class InBuffer:
    """Where a connection's bytes are received, and the frames in them.

    As long as whole frames arrive, connections share the server's scratch buffer; what is left of one moves into a
    buffer of the connection's own, in which the rest of it is received. That one is kept for the next frame: a producer
    of large batches sends many of one size, each of which then lands in it without being moved.
    """

    __slots__ = (
        "_budget",
        "_filled",
        "_frame_end",
        "_max_bytes",
        "_own",
        "_reserved",
        "_scratch",
        "_spare",
        "has_frames",
        "is_waiting",
    )

    def __init__(self, scratch: memoryview, max_bytes: int, budget: MemoryBudget) -> None:
        self._scratch = scratch
        self._max_bytes = max_bytes
        self._budget = budget
        self._own: memoryview | None = None
        self._spare: memoryview | None = None
        """A small one, kept while the connection is busy."""
        self._filled = 0
        self._frame_end = 0
        """Where the frame in the own buffer ends; 0 if that is not known yet."""
        self._reserved = 0
        self.is_waiting = False
        """For memory: nothing may be received."""
        self.has_frames = False
        """Whole ones that are to be handled before anything is received."""

    @property
    def is_empty(self) -> bool:
        """Whether no piece of a frame is here."""
        return not self._filled

    def target(self) -> memoryview:
        """Where to receive next; up to the end of the frame, if that is large."""
        own = self._own
        if own is None:
            return self._scratch
        return own[self._filled : self._frame_end or len(own)]

    def only_frame(self, received: int) -> memoryview | None:
        """The frame, where just that and nothing else was received into the scratch buffer, as from whoever waits for
        each answer; else None, and `frames` tells."""
        size = received - SIZE_BYTES
        if self._own is not None or not 0 <= size <= self._max_bytes or _SIZE.unpack_from(self._scratch)[0] != size:
            return None
        return self._scratch[SIZE_BYTES:received]

    def frames(self, received: int) -> Generator[memoryview, None, None]:
        """The whole frames, now that so many bytes were received where `target` said. Each is valid until the next is
        asked for. Closing the iterator keeps those that were not asked for: `has_frames`, until they are, by another
        call with nothing received. Raises `RefusedFrameError` for one that is too large or has a negative size."""
        own = self._own
        view = self._scratch if own is None else own
        end = self._filled + received
        self.has_frames = False
        if own is not None and self._frame_end > end:  # a large frame goes on
            self._filled = end
            return
        start = 0
        while end - start >= SIZE_BYTES:
            size = int.from_bytes(view[start : start + SIZE_BYTES], "big")
            if size > self._max_bytes:
                raise self._refusal(view[start:end])
            behind = start + SIZE_BYTES + size
            if behind > end:
                break
            frame = view[start + SIZE_BYTES : behind]
            start = behind
            try:
                yield frame
            except GeneratorExit:
                self._keep(view, start, end)
                raise
        self._keep(view, start, end)

    def release(self) -> None:
        """Gives memory back: the connection is closed, or idle with nothing half received."""
        self._own = self._spare = None
        self._filled = self._frame_end = 0
        self._give_back()

    def retry(self) -> bool:
        """Whether there is room now for the frame that waits for memory."""
        if self._own is not None and self.is_waiting:
            self._make_room(self._frame_end)
        return not self.is_waiting

    def _refusal(self, seen: memoryview) -> RefusedFrameError:
        size = int.from_bytes(seen[:SIZE_BYTES], "big", signed=True)
        reason = f"a frame of {size} bytes is announced; socket.request.max.bytes is {self._max_bytes}"
        return RefusedFrameError(reason, bytes(seen[:16]))

    def _keep(self, view: memoryview, start: int, end: int) -> None:
        """Moves what is left to where the rest of it will be received."""
        left = end - start
        self._frame_end = 0
        own = self._own
        if not left:
            self._filled = 0
            if own is not None and len(own) <= SMALL_FRAME:
                self._own, self._spare = None, own
            return
        if own is None:
            # A byte of the size may be all there is; room for a small frame is enough until more is known, unless the
            # scratch buffer holds more of a large one already.
            own, self._spare = self._spare, None
            if own is None or len(own) < left:
                own = memoryview(bytearray(max(SMALL_FRAME, left)))
            self._own = own
            own[:left] = view[start:end]
        elif start:
            own[:left] = view[start:end]
        self._filled = left
        if left >= SIZE_BYTES:
            frame_end = SIZE_BYTES + int.from_bytes(own[:SIZE_BYTES], "big")
            if frame_end > self._max_bytes + SIZE_BYTES:
                raise self._refusal(own[:left])
            if frame_end <= left:
                self.has_frames = True
            elif frame_end > len(own):
                self._make_room(frame_end)
            elif frame_end > SMALL_FRAME:
                self._frame_end = frame_end

    def _make_room(self, frame_end: int) -> None:
        self._give_back()
        self._frame_end = frame_end
        self.is_waiting = not self._budget.take(frame_end)
        if self.is_waiting:
            return
        self._reserved = frame_end
        own, self._own = self._own, memoryview(bytearray(frame_end))
        if own is not None:
            self._own[: self._filled] = own[: self._filled]

    def _give_back(self) -> None:
        if self._reserved:
            self._budget.give_back(self._reserved)
            self._reserved = 0
        self.is_waiting = False


class Slot:
    """The place of an answer among a connection's others. Whoever answers may have one with more in it."""

    __slots__ = ("chunks",)

    def __init__(self) -> None:
        self.chunks: list[Chunk] | None = None
        """None until it is answered; empty if the request gets no answer."""

    def connection_closed(self) -> None:
        """Called once when the connection closes before the slot is filled: nobody will read the answer."""


class Answers:
    """A connection's answers: those that wait for others before them, and what may be sent."""

    __slots__ = ("_slots", "ready")

    def __init__(self) -> None:
        self._slots: deque[Slot] = deque()
        self.ready: deque[Chunk] = deque()
        """What the driver may send, in order."""

    def __len__(self) -> int:
        """Requests that were started and are not answered, or wait for one that is not."""
        return len(self._slots)

    def add(self, chunks: list[Chunk]) -> None:
        """An answer that is ready when its request has just been read."""
        if self._slots:
            slot = Slot()
            slot.chunks = chunks
            self._slots.append(slot)
        else:
            self.ready.extend(chunks)

    def reserve(self, slot: Slot) -> None:
        """The place of an answer that comes later."""
        self._slots.append(slot)

    def fill(self, slot: Slot, chunks: list[Chunk]) -> bool:
        """The answer; whether anything became ready by it."""
        slot.chunks = chunks
        slots = self._slots
        if slots[0] is not slot:
            return False
        ready = self.ready
        while slots and (filled := slots[0].chunks) is not None:
            ready.extend(filled)
            slots.popleft()
        return bool(ready)

    def close(self) -> None:
        """Drops everything, and tells the slots that are not filled. What they do must not break the others."""
        slots, self._slots = self._slots, deque()
        self.ready.clear()
        for slot in slots:
            if slot.chunks is None:
                try:
                    slot.connection_closed()
                except Exception:
                    _logger.exception("a waiting request could not be cancelled after its connection closed")
