"""The fast path of a follower that is in sync: answers with records of one partition, and the next request right after.

A round of `fetch_loop` costs a future, a turn of the task, and objects for every part of two messages. Where a producer
waits for acks=all, most rounds are alike: the answer has one batch of one partition, and the next request says that the
follower has it. Here such an answer is taken in the turn of the loop in which it arrives, and the next request leaves
in the same turn, in a frame of which only the numbers change.

Everything else falls back before anything is done: the answer is decoded as declared, and the task takes it. The task
also goes on where the next request is not of this kind.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Callable
from struct import Struct
from typing import Final

from ottla.base.clock import Clock
from ottla.replication.fetching.fetch_request import fetch_request
from ottla.replication.fetching.fetch_session import FollowerSession
from ottla.replication.fetching.fetcher_core import FetcherCore
from ottla.replication.fetching.followed import Followed, Sent
from ottla.replication.fetching.settings import FetchSettings
from ottla.wire.codec import encode
from ottla.wire.errors import ProtocolError
from ottla.wire.framing import api_of, read_response, request_frame
from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from ottla.wire.peer import FramePeer, FrameSender, PeerError
from ottla.wire.varint import OverlongError, read_unsigned

FAST_SINCE: Final = 15
"""The first version in which a follower is named in a tagged field, after everything that changes."""

_ANSWER: Final = Struct(">ibihiB16sBihqqqBi")
"""Correlation id, tags; throttle time, error, session, number of topics; topic id, number of partitions; index, error,
high watermark, last stable offset, log start, aborted transactions, preferred replica."""
_ONE: Final = 2
"""The length of a compact array with one element."""
_NONE_ABORTED: Final = 1
"""The length of an empty compact array; null is less."""
_NO_TAGS: Final = b"\x00\x00\x00"
"""Of the partition, the topic and the response."""

_ASKED: Final = Struct(">iB16sBiiqiq")
"""Session epoch, number of topics; topic id, number of partitions; index, leader epoch, offset, last epoch, log
start."""
_ASKED_AT: Final = 17
"""In the body: after maximum wait, minimum and maximum size, isolation level and session id."""


class FastRounds:
    """See the module. Owned by the event loop, used by one `FetchLoop`. `on_round` is called after each answer that was
    taken here."""

    def __init__(
        self,
        core: FetcherCore,
        peer: FramePeer,
        settings: FetchSettings,
        clock: Clock,
        loop: AbstractEventLoop,
        on_round: Callable[[], None],
    ) -> None:
        self._core = core
        self._peer = peer
        self._settings = settings
        self._clock = clock
        self._loop = loop
        self._on_round = on_round
        self._sender: FrameSender | None = None
        self._client_id = ""
        self._version = -1
        self._waiting: asyncio.Future[FetchResponse | None] | None = None
        """Of the task."""
        self._template: RequestTemplate | None = None

    async def ask(self, request: FetchRequest, version: int) -> FetchResponse | None:
        """Sends the request, and takes answers as long as they and the requests that follow them are of the fast kind.
        Returns the first that is not; None if the last one is taken, and the next request is not. Raises `PeerError`.
        """
        if self._sender is None:
            opened = self._peer.exchange(
                FetchRequest,
                answered=self._answered,
                failed=self._failed,
                timeout_s=self._settings.socket_timeout_ms / 1000,
            )
            if opened is None:
                raise PeerError("the connection was lost")
            self._sender, self._client_id = opened
        self._version = version
        waiting: asyncio.Future[FetchResponse | None] = self._loop.create_future()
        self._waiting = waiting
        try:
            self._send(bytearray(b"".join(request_frame(request, version, 0, self._client_id))))
            return await waiting
        finally:
            self._waiting = None
            if not waiting.done() or waiting.cancelled() or waiting.exception() is not None:
                self.close()

    def _send(self, frame: bytearray) -> None:
        if self._sender is None:
            raise PeerError("the connection was lost")
        try:
            self._sender.send(frame)
        except Exception as error:
            raise PeerError(str(error)) from error

    def close(self) -> None:
        """An answer that may still come is for nobody. To be called at the end, too, or the sender watches its time for
        ever. Idempotent."""
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    # --- called by the connection -----------------------------------------------------------------------------------

    def _failed(self, error: Exception) -> None:
        self._sender = None
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)

    def _answered(self, frame: bytes | memoryview) -> None:
        waiting = self._waiting
        if waiting is None or waiting.done():  # the task was cancelled
            return
        try:
            if not self._take(frame):
                waiting.set_result(self._decoded(frame))
            elif not self._ask_again():
                waiting.set_result(None)
        except Exception as error:
            waiting.set_exception(error)

    def _decoded(self, frame: bytes | memoryview) -> FetchResponse:
        try:
            response = read_response(api_of(FetchRequest.api_key), self._version, frame)[1]
        except ProtocolError as error:
            raise PeerError(f"cannot decode a response to Fetch: {error}") from error
        if not isinstance(response, FetchResponse):
            raise TypeError(f"the response of Fetch is FetchResponse, not {type(response).__name__}")
        return response

    def _take(self, frame: bytes | memoryview) -> bool:
        """False, with nothing done, if the answer is not of the fast kind."""
        size = len(frame)
        if self._version < FAST_SINCE or size <= _ANSWER.size + len(_NO_TAGS):
            return False
        (
            _,
            header_tags,
            _,
            error,
            session_id,
            topics,
            topic_id,
            partitions,
            index,
            partition_error,
            high_watermark,
            _,
            log_start,
            aborted,
            _,
        ) = _ANSWER.unpack_from(frame)
        if (
            header_tags
            or error
            or topics != _ONE
            or partitions != _ONE
            or partition_error
            or aborted > _NONE_ABORTED
            or frame[size - 3 :] != _NO_TAGS
        ):
            return False
        try:
            length, at = read_unsigned(frame, _ANSWER.size)
        except (IndexError, OverlongError):
            return False
        end = at + length - 1
        if end <= at or end + len(_NO_TAGS) != size:  # no records, or other fields
            return False
        followed = self._core.one_answered(session_id, topic_id, index)
        if followed is None:
            return False
        records = memoryview(frame)[at:end]
        self._core.take_one(followed, records, high_watermark, log_start, self._clock.monotonic_s())
        self._on_round()
        return True

    def _ask_again(self) -> bool:
        """Whether the next request is on its way."""
        if self._sender is None:
            return False
        asked = self._core.one_to_ask(self._clock.monotonic_s())
        if asked is None:
            return False
        followed, sent, session = asked
        broker_epoch, template = self._core.broker_epoch(), self._template
        if template is None or not template.fits(session.session_id, broker_epoch, self._version):
            template = self._template = RequestTemplate(
                followed, session, self._core.broker_id, broker_epoch, self._version, self._settings, self._client_id
            )
        self._send(template.filled(followed, sent, session.epoch))
        return True


class RequestTemplate:
    """The frame of a Fetch request with one partition, as the codec writes it. Only the numbers in its middle change
    within a session."""

    __slots__ = ("_at", "_broker_epoch", "_frame", "_session_id", "_version")

    def __init__(
        self,
        followed: Followed,
        session: FollowerSession,
        broker_id: int,
        broker_epoch: int,
        version: int,
        settings: FetchSettings,
        client_id: str,
    ) -> None:
        """`followed` is any partition that was sent."""
        self._session_id = session.session_id
        self._broker_epoch = broker_epoch
        self._version = version
        request = fetch_request(
            broker_id,
            broker_epoch,
            version,
            session,
            settings,
            max_wait_ms=settings.wait_max_ms,
            asked=[(followed.topic_id, followed)],
            forgotten=(),
        )
        self._frame = bytearray(b"".join(request_frame(request, version, 0, client_id)))
        self._at = len(self._frame) - len(encode(request, version)) + _ASKED_AT

    def fits(self, session_id: int, broker_epoch: int, version: int) -> bool:
        return (session_id, broker_epoch, version) == (self._session_id, self._broker_epoch, self._version)

    def filled(self, followed: Followed, sent: Sent, session_epoch: int) -> bytearray:
        """The frame, valid until the next call."""
        _ASKED.pack_into(
            self._frame,
            self._at,
            session_epoch,
            _ONE,
            followed.topic_id,
            _ONE,
            followed.name.partition,
            followed.leader_epoch,
            *sent,
        )
        return self._frame
