"""A connection over a plain non-blocking socket: receives into the core's buffers, sends bytes and file slices.

Reading stops while the peer does not take its answers, while too many of its requests are unanswered, and while there
is no memory for its frame: a slow client costs what it has, and nobody else waits for it. Owned by the loop.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ottla.base.file_slice import FileSlice
from ottla.net.core import Answers, Chunk, InBuffer, RefusedFrameError, Slot

if TYPE_CHECKING:
    from ottla.net.server import Server

_GATHERED_CHUNKS: Final = 64
"""As many go out in one call to the system."""
_JOINED_BYTES: Final = 64 * 1024
"""Up to this much is cheaper to copy together than to hand over in pieces."""
_READY_CHUNKS: Final = 64
"""As many may wait to be sent before no more requests are handled."""
_MORE: Final = getattr(socket, "MSG_MORE", 0)
"""What follows belongs to the same packet: the records behind their header."""


class SocketConnection:
    """One client. `attachment` is the user's of the server."""

    __slots__ = (
        "_answers",
        "_can_read",
        "_descriptor",
        "_frame_handler",
        "_in_frames",
        "_incoming",
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
        self._incoming = InBuffer(server.scratch, server.limits.frame_max_bytes, server.budget)
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
        incoming = self._incoming
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
        """Hands on the frames as long as their answers are taken: those of a thousand small requests may be large."""
        incoming, answers, handle = self._incoming, self._answers, self._frame_handler
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
                    if self.is_closed:
                        return
                    if len(ready) >= _READY_CHUNKS:
                        self._flush()
                    if self._is_blocked or len(answers) >= unanswered_max:
                        frames.close()
                        break
        except RefusedFrameError as error:
            self._server.refuse(self, error, error.seen)
            return
        finally:
            self._in_frames = False
        self._server.on_handled()
        if ready and not self._is_blocked:
            self._flush()
        if incoming.is_waiting:
            self._server.wait_for_memory(self)
        if self._is_blocked or incoming.is_waiting or incoming.has_frames or len(answers) >= unanswered_max:
            self._regulate()

    def _handle_rest(self) -> None:
        """Frames that were received and not handled, now that they may be."""
        self._is_resuming = False
        if not self.is_closed and self._may_handle:
            self._handle(0)

    @property
    def _may_handle(self) -> bool:
        return not self._is_blocked and len(self._answers) < self._unanswered_max

    def _regulate(self) -> None:
        """Reads, or not, as things stand."""
        if self.is_closed:
            return
        incoming = self._incoming
        if incoming.has_frames and self._may_handle and not self._is_resuming:
            self._is_resuming = True
            self._loop.call_soon(self._handle_rest)
        can_read = self._may_handle and not incoming.is_waiting and not incoming.has_frames
        if can_read != self._can_read:
            self._can_read = can_read
            if can_read:
                self._loop.add_reader(self._descriptor, self._readable)
            else:
                self._loop.remove_reader(self._descriptor)

    def release_memory(self) -> None:
        """Nothing is half received: the buffer can go, until the next large frame."""
        if self._incoming.is_empty:
            self._incoming.release()

    def retry_memory(self) -> bool:
        """Whether it need not wait for memory any longer."""
        if self.is_closed or self._incoming.retry():
            self._regulate()
            return True
        return False

    @property
    def is_idle(self) -> bool:
        """Whether nobody owes anything to anyone."""
        return not self._answers and not self._answers.ready and not self._is_away

    # --- out --------------------------------------------------------------------------------------------------------

    def answer(self, chunks: list[Chunk]) -> None:
        """Answers the request that is being handled."""
        self._answers.add(chunks)
        if not self._in_frames:
            self._flush()

    def reserve(self, slot: Slot) -> None:
        """The request that is being handled is answered later, by `fill`; this is its place."""
        self._answers.reserve(slot)

    def fill(self, slot: Slot, chunks: list[Chunk]) -> None:
        """Answers a request whose place was reserved; no chunks for no answer."""
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
        if not self._can_read:
            self._regulate()

    def flush(self) -> None:
        """Sends what was held back."""
        if self._answers.ready and not self._is_blocked:
            self._flush()

    @property
    def descriptor(self) -> int:
        return self._descriptor

    def take_only_answer(self, max_bytes: int) -> bytes | None:
        """What is to be sent, for somebody else to send, who then calls `take_back`; None if that is more than one
        piece of bytes, or none, or too much, or cannot be sent now."""
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
        """So much of it was sent; less than nothing for what the system refused, which is found out again."""
        self._is_away = False
        if self.is_closed:
            self._socket.close()
            return
        ready = self._answers.ready
        if sent < len(answer):
            ready.appendleft(memoryview(answer)[max(sent, 0) :])
        if ready:
            self.flush()

    def _flush(self) -> None:
        if self._is_away:
            return
        ready = self._answers.ready
        try:
            while ready:
                chunk = ready[0]
                if type(chunk) is FileSlice:
                    # Asked anew each time: a file that was removed meanwhile must not be another one's descriptor.
                    sent = os.sendfile(self._descriptor, chunk.file.fileno(), chunk.position, chunk.size)
                    if not sent:
                        raise EOFError(f"{chunk.file.path} ends before the slice of it that is being sent")
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
            return
        except (OSError, EOFError) as error:
            self._server.lost(self, error)
            self.close()
            return
        if self._is_blocked:
            self._is_blocked = False
            self._loop.remove_writer(self._descriptor)

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
        if not self._is_blocked:
            self._regulate()

    def say_and_close(self, words: bytes) -> None:
        """Something that is no answer, as far as it can be sent at once."""
        self._answers.ready.append(words)
        self._flush()
        self.close()

    def close(self) -> None:
        """At once; what was not sent is dropped."""
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.remove_reader(self._descriptor)
        if self._is_blocked:
            self._loop.remove_writer(self._descriptor)
        if self._is_away:  # the descriptor must not become another connection's before it is back
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        else:
            self._socket.close()
        self._incoming.release()
        self._answers.ready.clear()
        self._server.closed(self)
