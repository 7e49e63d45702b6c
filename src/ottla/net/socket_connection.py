"""A connection over a non-blocking socket: receives into the core's buffers, sends bytes and file slices.

A slow client never makes others wait. The socket is read unless one of these reasons holds:

| reason | until |
| --- | --- |
| `BLOCKED`: the peer does not read its answers | the socket is writable and they are sent |
| `AWAY`: answers pile up behind one that the sending thread has | the thread is done with it |
| `UNANSWERED`: too many requests are unanswered | some are answered |
| `MEMORY`: there is no memory for the frame that is being received | the server grants it |
| `UNHANDLED`: received frames were not handled, for a reason above | they are handled, in a later turn |

`held_by` derives the reason from the state, and only `_regulate` turns the reader on and off. Everything that changes
the state calls it: `_flush` when sending blocks or continues, and each entry point (`_handle`, `fill`, `take_back`,
`retry_memory`) before it returns, whenever the reader is off or may have to stop.

A handler that raises closes its connection: no request on an open connection stays unanswered.
Owned by the loop.
"""

from __future__ import annotations

import logging
import os
import socket
from asyncio import CancelledError
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ottla.base.file_slice import FileSlice
from ottla.net.core import Answers, Chunk, InBuffer, RefusedFrameError, Slot

if TYPE_CHECKING:
    from ottla.net.server import Server

_logger = logging.getLogger(__name__)

BLOCKED: Final = "the peer does not read its answers"
AWAY: Final = "answers wait for the sending thread"
UNANSWERED: Final = "too many requests are unanswered"
MEMORY: Final = "there is no memory for the frame"
UNHANDLED: Final = "received frames are not handled yet"

_GATHERED_CHUNKS: Final = 64
"""The number of chunks in one system call."""
_JOINED_BYTES: Final = 64 * 1024
"""Up to this size, joining chunks is cheaper than sending them separately."""
_READY_CHUNKS: Final = 64
"""No more requests are handled while this many chunks wait to be sent."""
_MORE: Final = getattr(socket, "MSG_MORE", 0)
"""More data follows for the same packet: the records after their header."""


class SocketConnection:
    """One client. `attachment` belongs to the code that uses the server."""

    __slots__ = (
        "_answers",
        "_can_read",
        "_descriptor",
        "_frame_handler",
        "_in_frames",
        "_is_away",
        "_is_blocked",
        "_is_resuming",
        "_loop",
        "_server",
        "_socket",
        "_unanswered_max",
        "address",
        "attachment",
        "connection_id",
        "incoming",
        "is_closed",
        "last_active_s",
        "listener",
        "port",
    )

    def __init__(
        self, server: Server, sock: socket.socket, peer: tuple[str, int], listener: str, connection_id: int
    ) -> None:
        self._server = server
        self._loop = server.loop
        self._socket = sock
        self._descriptor = sock.fileno()
        self._frame_handler = server.on_frame
        self.incoming = InBuffer(server.scratch, server.limits.frame_max_bytes, server.budget)
        self._answers = Answers()
        self._unanswered_max = server.limits.unanswered_per_connection
        self._in_frames = False
        self._is_away = False
        self._is_blocked = False
        self._is_resuming = False
        self._can_read = True
        self.address, self.port = peer
        self.listener = listener
        self.connection_id = connection_id
        self.attachment: object = None
        self.is_closed = False
        self.last_active_s = self._loop.time()
        self._loop.add_reader(self._descriptor, self._readable)

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"

    # --- in ---------------------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        incoming = self.incoming
        try:
            received = self._socket.recv_into(incoming.target())
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            received = 0
        if not received:
            self.close()
            return
        self.last_active_s = self._loop.time()
        self._handle(received)

    def _handle(self, received: int) -> None:
        """Handles frames as long as the peer reads its answers: those of a thousand small requests may be large."""
        incoming, answers, handle = self.incoming, self._answers, self._frame_handler
        ready, unanswered_max = answers.ready, self._unanswered_max
        self._in_frames = True
        try:
            frame = incoming.only_frame(received)
            if frame is not None:
                handle(self, frame)
                if self.is_closed:
                    return
            else:
                frames = incoming.frames(received)
                for frame in frames:
                    handle(self, frame)
                    if len(ready) >= _READY_CHUNKS:
                        self._flush()
                    if self.is_closed:
                        return
                    is_held = self._is_blocked or self._is_away or len(answers) >= unanswered_max
                    if is_held and self._handling_held_by is not None:
                        frames.close()
                        break
        except RefusedFrameError as error:
            self._server.refuse(self, error, error.seen)
            return
        except BaseException as error:
            self._server.failed(self, error)
            if not isinstance(error, (Exception, CancelledError)):
                raise
            return
        finally:
            self._in_frames = False
        try:
            self._server.on_handled()
        except Exception:  # affects only waiting requests; those handled here have their answers
            _logger.exception("Could not check the requests that wait for others.")
        if ready and not self._is_blocked:
            self._flush()
        # Ready chunks remain: sending is blocked, or waits for the sending thread.
        if ready or not self._can_read or incoming.is_waiting or incoming.has_frames or len(answers) >= unanswered_max:
            self._regulate()

    def _handle_rest(self) -> None:
        """Handles frames that had to wait."""
        self._is_resuming = False
        if self.held_by == UNHANDLED:
            self._handle(0)

    @property
    def held_by(self) -> str | None:
        """Why the socket is not read; None if it is."""
        if (held := self._handling_held_by) is not None:
            return held
        if self.incoming.is_waiting:
            return MEMORY
        return UNHANDLED if self.incoming.has_frames else None

    @property
    def _handling_held_by(self) -> str | None:
        """Why received frames are not handled."""
        answers = self._answers
        if self._is_blocked:
            return BLOCKED
        if self._is_away and len(answers.ready) >= _READY_CHUNKS:
            return AWAY
        return UNANSWERED if len(answers) >= self._unanswered_max else None

    def _regulate(self) -> None:
        """Turns the reader on or off, and makes sure that something will end the reason for it to be off."""
        if self.is_closed or self._in_frames:  # `_handle` does it at its end
            return
        held_by = self.held_by
        if held_by is MEMORY:
            self._server.wait_for_memory(self)
        elif held_by is UNHANDLED and not self._is_resuming:
            self._is_resuming = True
            self._loop.call_soon(self._handle_rest)
        can_read = held_by is None
        if can_read != self._can_read:
            self._can_read = can_read
            if can_read:
                self._loop.add_reader(self._descriptor, self._readable)
            else:
                self._loop.remove_reader(self._descriptor)

    def release_memory(self) -> None:
        """Releases the buffer until the next large frame, unless it holds a partial frame."""
        self.incoming.release()

    def retry_memory(self) -> bool:
        """Whether it no longer has to wait for memory."""
        try:
            has_room = self.incoming.retry()
        except MemoryError as error:
            self._server.failed(self, error)
            return True
        self._regulate()
        return has_room

    @property
    def is_idle(self) -> bool:
        """Whether there are no requests, answers or partial frames."""
        return not self._answers and not self._answers.ready and not self._is_away

    # --- out --------------------------------------------------------------------------------------------------------

    def answer(self, chunks: list[Chunk]) -> None:
        """Answers the request that is being handled."""
        self._answers.add(chunks)
        if not self._in_frames:
            self.flush()
            if self._is_away:
                self._regulate()

    def reserve(self, slot: Slot) -> None:
        """Reserves the place of the answer to the current request; `fill` answers it later."""
        self._answers.reserve(slot)

    def fill(self, slot: Slot, chunks: list[Chunk]) -> None:
        """Answers a request whose place was reserved; without chunks, it gets no answer."""
        if self.is_closed:
            return
        is_ready = self._answers.fill(slot, chunks)
        if self._in_frames:
            return
        if is_ready and not self._is_blocked:
            held = self._server.held
            if held is None:
                self._flush()
            else:
                held.append(self)
        if self._is_away or not self._can_read:
            self._regulate()

    def flush(self) -> None:
        """Sends what was held back. Never raises: closes the connection if it cannot send."""
        if self._answers.ready and not self._is_blocked:
            self._flush()

    @property
    def descriptor(self) -> int:
        return self._descriptor

    def take_only_answer(self, max_bytes: int) -> bytes | None:
        """Gives the only chunk to the sender, which calls `take_back` later; None if there is no chunk, more than one,
        or one that is too large or cannot be sent now."""
        ready = self._answers.ready
        if len(ready) != 1 or self._is_blocked or self._is_away:
            return None
        answer = ready[0]
        if type(answer) is not bytes or len(answer) > max_bytes:
            return None
        ready.clear()
        self._is_away = True
        return answer

    def take_back(self, answer: bytes, sent: int) -> None:
        """This many bytes were sent; a negative number if `send` failed, which the next `send` reports again."""
        self._is_away = False
        if self.is_closed:
            self._close_socket()
            return
        ready = self._answers.ready
        if sent < len(answer):
            ready.appendleft(memoryview(answer)[max(sent, 0) :])
        if ready:
            self.flush()
        if not self._can_read:
            self._regulate()

    def _flush(self) -> None:
        if self._is_away:
            return
        ready = self._answers.ready
        try:
            while ready:
                chunk = ready[0]
                if type(chunk) is FileSlice:
                    # Asked each time: after the file is closed, its descriptor may belong to another file.
                    sent = os.sendfile(self._descriptor, chunk.file.fileno(), chunk.position, chunk.size)
                    if not sent:
                        raise EOFError(f"{chunk.file.path} ends before the slice that is being sent")
                    chunk.position += sent
                    chunk.size -= sent
                    if not chunk.size:
                        ready.popleft()
                elif len(ready) == 1:
                    sent = self._socket.send(chunk)
                    if sent == len(chunk):
                        ready.popleft()
                    else:
                        ready[0] = memoryview(chunk)[sent:]
                else:
                    self._send_gathered(ready)
        except (BlockingIOError, InterruptedError):
            if not self._is_blocked:
                self._is_blocked = True
                self._loop.add_writer(self._descriptor, self._writable)
                self._regulate()
            return
        except Exception as error:
            self._server.lost(self, error)
            self.close()
            return
        if self._is_blocked:
            self._is_blocked = False
            self._loop.remove_writer(self._descriptor)
            self._regulate()

    def _send_gathered(self, ready: deque[Chunk]) -> None:
        gathered = []
        flags = size = 0
        for chunk in ready:
            if type(chunk) is FileSlice:
                flags = _MORE
                break
            gathered.append(chunk)
            size += len(chunk)
            if len(gathered) == _GATHERED_CHUNKS:
                break
        if size <= _JOINED_BYTES:
            sent = self._socket.send(b"".join(gathered), flags)
        else:
            sent = self._socket.sendmsg(gathered, (), flags)
        for chunk in gathered:
            if sent < len(chunk):
                if sent:
                    ready[0] = memoryview(chunk)[sent:]
                return
            sent -= len(chunk)
            ready.popleft()

    def _writable(self) -> None:
        self.last_active_s = self._loop.time()
        self._flush()

    def say_and_close(self, words: bytes) -> None:
        """Sends bytes that are not an answer, as far as the socket accepts them immediately."""
        self._answers.ready.append(words)
        self._flush()
        self.close()

    def close(self) -> None:
        """Closes immediately; unsent data is dropped."""
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.remove_reader(self._descriptor)
        if self._is_blocked:
            self._loop.remove_writer(self._descriptor)
        if self._is_away:  # its descriptor must not be reused by another connection before the answer is back
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        else:
            self._close_socket()
        self.incoming.close()
        self._server.closed(self)
        self._answers.close()

    def _close_socket(self) -> None:
        with suppress(OSError):  # may report an earlier error of the peer, which no longer matters
            self._socket.close()
