"""A connection without I/O: received bytes become frames, answers become chunks in the order of their requests.

    driver ── where to receive ──▶ InBuffer ──▶ frames (views) ──▶ handler ──▶ Answers ──▶ chunks ── driver

A frame is a view of the buffer that it was received into, valid until the handler returns. Answers may be ready in any
order, and are sent in the order of their requests.
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
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.wire.messages.stop_replica import StopReplicaRequest
from ottla.wire.messages.update_metadata import UpdateMetadataRequest

_logger = logging.getLogger(__name__)

_SIZE = Struct(">i")

Chunk = Any
"""Bytes, or a slice of a file."""

SMALL_FRAME: Final = 64 * 1024
"""Larger buffers count against the memory budget. Frames up to this size do not."""
_GROWTH: Final = 4
"""A buffer grows by this factor as it fills, so a peer gets memory for what it sends, not for what it announces."""
_API_END: Final = SIZE_BYTES + 2
_CONTROL_APIS: Final = frozenset(
    each.api_key.to_bytes(2, "big") for each in (LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest)
)
_CONTROL_FRAME_MAX: Final = 1 << 24
"""Enough for some hundred thousand partitions."""


class RefusedFrameError(FrameSizeError):
    """An invalid frame size. `seen` are the first bytes, which may show another protocol."""

    def __init__(self, reason: str, seen: bytes) -> None:
        super().__init__(reason, offset=0)
        self.seen = seen


class InBuffer:
    """Receives a connection's bytes, and finds the frames in them.

    While complete frames arrive, connections share the server's scratch buffer. A partial frame moves into a buffer of
    the connection's own, which receives the rest. That buffer is kept for the next frame: a producer of large batches
    sends many frames of one size, which are then received without being moved.

    The buffer of a large frame grows as it fills, and all of it is reserved from the budget: `reserved` is its size, or
    0 if it is small. Bytes that were already received are reserved even if that exceeds the budget.
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
        """A small buffer, kept while the connection is busy."""
        self._frame_end = 0
        """The end of the large frame in the own buffer, possibly beyond it; 0 for a small frame or if unknown."""
        self._is_closed = False
        self.filled = 0
        """Received bytes that are not handled: the start of a frame, or complete frames (`has_frames`)."""
        self.reserved = 0
        self.is_waiting = False
        """Whether it waits for memory, and nothing may be received."""
        self.may_overdraw = False
        """Whether the current frame may exceed the budget."""
        self.has_frames = False
        """Whether complete frames have to be handled before anything is received."""

    @property
    def is_empty(self) -> bool:
        """Whether it holds no part of a frame."""
        return not self.filled

    @property
    def frame_bytes(self) -> int:
        """The size of the large frame that is being received; 0 if none is."""
        return self._frame_end

    def target(self) -> memoryview:
        """The memory to receive into; for a large frame, up to its end."""
        own = self._own
        if own is None:
            return self._scratch
        return own[self.filled : self._frame_end or len(own)]

    def only_frame(self, received: int) -> memoryview | None:
        """The frame, if exactly one was received into the scratch buffer, as from a client that waits for each answer;
        otherwise None, and `frames` has to be called."""
        size = received - SIZE_BYTES
        if self._own is not None or not 0 <= size <= self._max_bytes or _SIZE.unpack_from(self._scratch)[0] != size:
            return None
        return self._scratch[SIZE_BYTES:received]

    def frames(self, received: int) -> Generator[memoryview, None, None]:
        """Yields the complete frames, after this many bytes were received into `target`. Each is valid until the next.
        Closing the iterator keeps the remaining frames (`has_frames`) for another call with 0 bytes received. Raises
        `RefusedFrameError` for a frame that is too large or has a negative size."""
        own = self._own
        view = self._scratch if own is None else own
        end = self.filled + received
        self.has_frames = False
        if own is not None and self._frame_end > end:  # a large frame continues
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
        """Releases memory that the partial frame does not need."""
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
        """Releases all memory."""
        self._is_closed = True
        self._own = self._spare = None
        self.filled = self._frame_end = 0
        self.has_frames = self.is_waiting = self.may_overdraw = False
        self._reserve(0)

    def retry(self) -> bool:
        """Whether there is memory now for the frame that waits for it."""
        if self.is_waiting:
            self._grow()
        return not self.is_waiting

    def _refusal(self, seen: memoryview) -> RefusedFrameError:
        size = int.from_bytes(seen[:SIZE_BYTES], "big", signed=True)
        reason = f"the frame has {size} bytes; socket.request.max.bytes is {self._max_bytes}"
        return RefusedFrameError(reason, bytes(seen[:16]))

    def _keep(self, view: memoryview, start: int, end: int) -> None:
        """Moves a partial frame to the buffer that will receive the rest."""
        if self._is_closed:  # closed by the handler of the last frame
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
            # Perhaps only a byte of the size has arrived: a small buffer is enough until the size is known, unless the
            # scratch buffer already holds more of a large frame.
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
        """Grows the buffer of the large frame, or waits for memory."""
        own = self._own
        assert own is not None  # it holds the start of the frame
        if self.filled < _API_END and len(own) >= SMALL_FRAME:
            return  # there is room until the frame's API is known
        size = min(self._frame_end, _GROWTH * len(own))
        self.is_waiting = not (
            self.may_overdraw or self._budget.has_room(self.reserved, size) or self._is_control_frame(own)
        )
        if self.is_waiting:
            return
        self._reserve(size)
        grown = memoryview(bytearray(size))
        grown[: self.filled] = own[: self.filled]
        self._own = grown

    def _is_control_frame(self, own: memoryview) -> bool:
        """Whether it is a request of the controller, which must not wait for producers: they may be waiting for what
        the controller decides."""
        return self._frame_end <= _CONTROL_FRAME_MAX and bytes(own[SIZE_BYTES:_API_END]) in _CONTROL_APIS

    def _reserve(self, size: int) -> None:
        """Reserves a buffer of that size instead of the previous one."""
        counted = size if size > SMALL_FRAME else 0
        self._budget.used += counted - self.reserved
        self.reserved = counted


class Slot:
    """The place of an answer among the connection's others. Subclasses may carry more."""

    __slots__ = ("chunks",)

    def __init__(self) -> None:
        self.chunks: list[Chunk] | None = None
        """None until the request is answered; empty if it gets no answer."""

    def connection_closed(self) -> None:
        """Called once if the connection closes before the slot is filled: nobody will read the answer."""


class Answers:
    """A connection's answers: those that wait for earlier ones, and the chunks to send."""

    __slots__ = ("_slots", "ready")

    def __init__(self) -> None:
        self._slots: deque[Slot] = deque()
        self.ready: deque[Chunk] = deque()
        """Chunks for the driver to send, in order."""

    def __len__(self) -> int:
        """Requests that are not answered, or whose answer waits for an earlier one."""
        return len(self._slots)

    def add(self, chunks: list[Chunk]) -> None:
        """Adds an answer that is ready immediately."""
        if self._slots:
            slot = Slot()
            slot.chunks = chunks
            self._slots.append(slot)
        else:
            self.ready.extend(chunks)

    def reserve(self, slot: Slot) -> None:
        """Reserves the place of an answer that comes later."""
        self._slots.append(slot)

    def fill(self, slot: Slot, chunks: list[Chunk]) -> bool:
        """Sets the answer; returns whether anything became ready to send. Only the first answer of a slot counts."""
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
        """Drops everything and notifies the unfilled slots. One that raises does not affect the others."""
        slots, self._slots = self._slots, deque()
        self.ready.clear()
        for slot in slots:
            if slot.chunks is None:
                try:
                    slot.connection_closed()
                except Exception:
                    _logger.exception("Could not cancel a waiting request after its connection closed.")
