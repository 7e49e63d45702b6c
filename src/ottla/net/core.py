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
"""Buffers beyond this count against the budget. Frames up to this size need none."""
_GROWTH: Final = 4
"""A buffer grows by this factor as it fills: a peer that announces a large frame gets memory for what it sends."""


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

    The own buffer of a large frame grows as it fills, and all of it is reserved from the budget: `reserved` is its
    size, or 0 if it is small. Bytes that were received already are reserved even if that overdraws the budget.
    """

    __slots__ = (
        "_budget",
        "_frame_end",
        "_is_closed",
        "_max_bytes",
        "_own",
        "_scratch",
        "_spare",
        "filled",
        "has_frames",
        "is_waiting",
        "may_overdraw",
        "reserved",
    )

    def __init__(self, scratch: memoryview, max_bytes: int, budget: MemoryBudget) -> None:
        self._scratch = scratch
        self._max_bytes = max_bytes
        self._budget = budget
        self._own: memoryview | None = None
        self._spare: memoryview | None = None
        """A small one, kept while the connection is busy."""
        self._frame_end = 0
        """Where the large frame in the own buffer ends, which may be beyond it; 0 for a small one or if not known."""
        self._is_closed = False
        self.filled = 0
        """Bytes that are here and not handled: the beginning of a frame, or whole ones (`has_frames`)."""
        self.reserved = 0
        self.is_waiting = False
        """For memory: nothing may be received."""
        self.may_overdraw = False
        """The frame that is being received may have memory beyond the budget."""
        self.has_frames = False
        """Whole ones that are to be handled before anything is received."""

    @property
    def is_empty(self) -> bool:
        """Whether no piece of a frame is here."""
        return not self.filled

    @property
    def frame_bytes(self) -> int:
        """The size of the large frame that is being received; 0 if there is none."""
        return self._frame_end

    def target(self) -> memoryview:
        """Where to receive next; up to the end of the frame, if that is large."""
        own = self._own
        if own is None:
            return self._scratch
        return own[self.filled : self._frame_end or len(own)]

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
        end = self.filled + received
        self.has_frames = False
        if own is not None and self._frame_end > end:  # a large frame goes on
            self.filled = end
            if end == len(own):
                self._grow()
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
        """Gives back memory that is not needed for what is half received."""
        own = self._own
        if self._frame_end or self.filled > SMALL_FRAME:
            return
        if own is not None and self.filled:
            if len(own) <= SMALL_FRAME:
                return
            self._own = memoryview(bytearray(SMALL_FRAME))
            self._own[: self.filled] = own[: self.filled]
        else:
            self._own = None
        self._spare = None
        self._reserve(0)

    def close(self) -> None:
        """Gives all memory back, and takes none any more."""
        self._is_closed = True
        self._own = self._spare = None
        self.filled = self._frame_end = 0
        self.has_frames = self.is_waiting = self.may_overdraw = False
        self._reserve(0)

    def retry(self) -> bool:
        """Whether there is room now for the frame that waits for memory."""
        if self.is_waiting:
            self._grow()
        return not self.is_waiting

    def _refusal(self, seen: memoryview) -> RefusedFrameError:
        size = int.from_bytes(seen[:SIZE_BYTES], "big", signed=True)
        reason = f"a frame of {size} bytes is announced; socket.request.max.bytes is {self._max_bytes}"
        return RefusedFrameError(reason, bytes(seen[:16]))

    def _keep(self, view: memoryview, start: int, end: int) -> None:
        """Moves what is left to where the rest of it will be received."""
        if self._is_closed:  # by the handler of the last frame
            return
        left = self.filled = end - start
        self._frame_end = 0
        self.may_overdraw = False
        own = self._own
        if not left:
            if own is not None:
                if len(own) <= SMALL_FRAME:
                    self._own, self._spare = None, own
                elif self._budget.is_short:
                    self.release()
            return
        if own is None:
            # A byte of the size may be all there is; room for a small frame is enough until more is known, unless the
            # scratch buffer holds more of a large one already.
            own, self._spare = self._spare, None
            if own is None or len(own) < left:
                own = memoryview(bytearray(max(SMALL_FRAME, left)))
                self._reserve(len(own))
            self._own = own
            own[:left] = view[start:end]
        elif start:
            own[:left] = view[start:end]
        if left >= SIZE_BYTES:
            frame_end = SIZE_BYTES + int.from_bytes(own[:SIZE_BYTES], "big")
            if frame_end > self._max_bytes + SIZE_BYTES:
                raise self._refusal(own[:left])
            if frame_end <= left:
                self.has_frames = True
            elif frame_end > SMALL_FRAME:
                self._frame_end = frame_end
                if frame_end > len(own):
                    self._grow()

    def _grow(self) -> None:
        """Makes room for more of the large frame, or waits for the memory."""
        own = self._own
        assert own is not None  # it holds the beginning of the frame
        size = min(self._frame_end, _GROWTH * len(own))
        self.is_waiting = not self.may_overdraw and not self._budget.has_room(self.reserved, size)
        if self.is_waiting:
            return
        self._reserve(size)
        grown = memoryview(bytearray(size))
        grown[: self.filled] = own[: self.filled]
        self._own = grown

    def _reserve(self, size: int) -> None:
        """For a buffer of that size in place of the one that was there."""
        counted = size if size > SMALL_FRAME else 0
        self._budget.used += counted - self.reserved
        self.reserved = counted


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
        """The answer; whether anything became ready by it. Only the first answer of a slot counts."""
        if slot.chunks is not None:
            return False
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
