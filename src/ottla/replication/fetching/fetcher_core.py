"""What to ask one leader for the partitions that follow it, and what to do with its answers. No I/O but their logs.

Each partition is in one of these states (`followed.State`), and can be held for a while in any of them:

    state           event                                          next state
    STARTING        its log has epochs, the leader is not old      FETCHING from the log end, with the last epoch
    STARTING        its log has epochs, the leader is old          TRUNCATING
    STARTING        its log has none                               FETCHING from the high watermark, the rest is cut
    TRUNCATING      answered: largest common epoch                 FETCHING, or TRUNCATING again (`truncation`)
    FETCHING        records, or a new high watermark               FETCHING
    FETCHING        diverging epoch                                FETCHING from where the logs part
    FETCHING        OFFSET_OUT_OF_RANGE                            FINDING_END
    FINDING_END     the leader's log is shorter                    FETCHING from there, the rest is cut
    FINDING_END     it is not                                      FINDING_START
    FINDING_START   the leader deleted what would come next        FETCHING from there, everything is cut
    FINDING_START   it did not                                     FETCHING from the log end
    FINDING_*       any other error                                FETCHING, held
    any             FENCED_LEADER_EPOCH, failed disk, a bug        failed: not followed until the controller's next word
    any             any other error, damaged records               the same, held: shortly at first, then longer

    held            because                                        until
    delayed         of an error                                    that time is over
    syncing         `flush.messages=1`: fetching on says that      they are on disk
                    the records are safe
    throttled       the replica is behind, the quota exceeded      the rate is low enough

A held partition is not in the leader's fetch session. One request is in flight at a time, so an answer is for what was
sent last: an answer for a partition that was not sent since (it was held, removed, or follows in a new epoch) is
dropped. A round costs as much as there are partitions with news, however many wait for news.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.log.errors import CorruptRecordsError, InvalidRecordsError, LogError
from ottla.replication.errors import ReplicationError
from ottla.replication.fetching import queries
from ottla.replication.fetching.fetch_request import TOPIC_IDS_SINCE, TRUNCATION_SINCE, Key, fetch_request
from ottla.replication.fetching.fetch_session import FollowerSession
from ottla.replication.fetching.followed import ChangedRoleError, Followed, Sent, State
from ottla.replication.fetching.replication_quota import ReplicationQuota
from ottla.replication.fetching.settings import FetchSettings
from ottla.wire.messages.fetch import FetchPartitionResponse, FetchRequest, FetchResponse
from ottla.wire.schema import Bytes, Request, Response

_logger = logging.getLogger(__name__)

_STARTING: Final = State.STARTING
_FETCHING: Final = State.FETCHING
_SYNC_WAIT_S: Final = 0.02
"""How long the other partitions wait for one that is written to disk, if they have no news; and how long a fetch of
them then waits at the leader."""
_THROTTLE_CHECK_S: Final = 0.1
_NEVER_S: Final = float("inf")
_QUIET: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Usual for a moment after a leader change, or while a topic is created."""
_QUIET_FAILURES: Final = 4


@dataclass(slots=True)
class FetchStats:
    """Of all fetchers of a broker."""

    bytes_in: int = 0
    request_count: int = 0
    lost_count: int = 0
    """Requests that were not answered."""
    failed: set[TopicPartition] = field(default_factory=set)
    """Partitions that are not followed until the controller's next word."""


class FetcherCore:
    """See the module."""

    def __init__(
        self,
        leader_id: int,
        broker_id: int,
        broker_epoch: Callable[[], int],
        settings: FetchSettings,
        quota: ReplicationQuota,
        stats: FetchStats,
    ) -> None:
        self.leader_id = leader_id
        self.partitions: dict[TopicPartition, Followed] = {}
        self.on_change: Callable[[], None] = lambda: None
        """Called when there may be something to ask earlier than `wake_s` said."""
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self._settings = settings
        self._quota = quota
        self._stats = stats
        self._session = FollowerSession()
        self._in_session: dict[Key, Followed] = {}
        """What the leader's session has, as far as it is wanted."""
        self._forgotten: dict[Key, None] = {}
        """What the leader's session has, but shall not."""
        self._ready: dict[State, dict[Followed, None]] = {state: {} for state in State}
        """All partitions that are not held."""
        self._dirty: dict[Followed, None] = {}
        """Ready partitions whose place the leader does not know yet."""
        self._delayed: list[tuple[float, int, Followed, object]] = []
        """A heap, by the end of their delay."""
        self._delay_count = 0
        self._syncing: dict[Followed, None] = {}
        self._throttled: dict[Followed, None] = {}
        self._behind: dict[Followed, None] = {}
        """Those not known to be in sync: they can be throttled."""
        self._without_id = 0
        self._by_id = True
        self._truncates_on_fetch = True
        self._sync_until_s = 0.0
        self.retry_at_s = 0.0
        """The leader is not asked before that."""
        self._failures = 0
        """Of whole requests, in a row."""
        self._refusals: dict[ErrorCode, list[TopicPartition]] = {}
        """To be logged."""
        self._fenced: list[TopicPartition] = []
        """Partitions whose leader has a newer epoch, to be logged."""

    # --- partitions come and go -------------------------------------------------------------------------------------

    def add(self, followed: Followed) -> None:
        """Begins to follow. The controller says that the leader is there, so an unreachable one is tried at once."""
        followed.core, followed.sent = self, None
        self.partitions[followed.name] = followed
        self._without_id += followed.topic_id == ZERO_UUID
        self.retry_at_s, self._failures = 0.0, 0
        if not followed.is_in_sync:
            self._behind[followed] = None
        if followed.hold is None:
            self._enter(followed)
        else:
            self._syncing[followed] = None  # handed over while it waits for the disk

    def hand_over(self, other: FetcherCore) -> None:
        """Lets another core continue with all partitions."""
        for name, followed in list(self.partitions.items()):
            hold = followed.hold if followed in self._syncing else None
            self.remove(name)
            followed.hold = hold
            other.add(followed)

    def remove(self, name: TopicPartition) -> Followed | None:
        """Nothing will be appended to it any more."""
        followed = self.partitions.pop(name, None)
        if followed is not None:
            self._leave(followed)
            followed.core, followed.hold = None, None
            for held in (self._syncing, self._throttled, self._behind):
                held.pop(followed, None)
            self._without_id -= followed.topic_id == ZERO_UUID
        return followed

    def _enter(self, followed: Followed) -> None:
        """Ready for what its state needs."""
        self._ready[followed.state][followed] = None
        if followed.state is _FETCHING:
            self._dirty[followed] = None

    def _leave(self, followed: Followed) -> None:
        self._ready[followed.state].pop(followed, None)
        self._dirty.pop(followed, None)
        if followed.sent is not None:
            followed.sent = None
            key = self._key(followed)
            del self._in_session[key]
            self._forgotten[key] = None

    def _key(self, followed: Followed) -> Key:
        name = followed.name
        return (followed.topic_id if self._by_id else name.topic), name.partition

    # --- holds ------------------------------------------------------------------------------------------------------

    def _delay(self, followed: Followed, delay_s: float, now_s: float) -> None:
        self._leave(followed)
        followed.hold = hold = object()
        self._delay_count += 1
        heappush(self._delayed, (now_s + delay_s, self._delay_count, followed, hold))

    def _retry_later(self, followed: Followed, now_s: float) -> None:
        followed.failures += 1
        self._delay(followed, self._settings.retry_s(followed.failures), now_s)

    def _wait_for_disk(self, followed: Followed, now_s: float) -> None:
        """If the topic wants that: the next fetch tells the leader that the records are safe."""
        hold = object()

        def synced(error: BaseException | None) -> None:
            core = followed.core  # it may belong to another one by now
            if core is not None and followed.hold is hold:
                core._synced(followed, error)

        if not followed.partition.when_on_disk(synced):
            return
        self._leave(followed)
        followed.hold = hold
        if not self._syncing:
            self._sync_until_s = now_s + _SYNC_WAIT_S
        self._syncing[followed] = None

    def _synced(self, followed: Followed, error: BaseException | None) -> None:
        if error is not None:
            self._fail(followed, f"its records could not be flushed: {error}")
            return
        self._syncing.pop(followed, None)
        followed.hold = None
        self._enter(followed)
        self.on_change()

    def _release_due(self, now_s: float) -> None:
        delayed = self._delayed
        while delayed and delayed[0][0] <= now_s:
            _, _, followed, hold = heappop(delayed)
            if followed.hold is hold and followed.core is self:
                followed.hold = None
                self._enter(followed)

    def _throttle(self) -> None:
        """Costs nothing without a limit."""
        quota = self._quota
        if quota.limit is None or not quota.is_exceeded:
            for followed in self._throttled:
                followed.hold = None
                self._enter(followed)
            self._throttled.clear()
            return
        for followed in self._behind:
            if followed.hold is None and followed.state is _FETCHING and quota.is_throttled(followed.name):
                self._leave(followed)
                followed.hold = self._throttled
                self._throttled[followed] = None

    def wake_s(self, now_s: float) -> float:
        """When there may be something to ask again without another event."""
        if now_s < self.retry_at_s:
            return self.retry_at_s
        wake_s = self._due_s(now_s)
        return min(wake_s, self._sync_until_s) if self._syncing and self._ready[_FETCHING] else wake_s

    def _due_s(self, now_s: float) -> float:
        """When the next held partition may be ready; not those that wait for the disk."""
        due_s = self._delayed[0][0] if self._delayed else _NEVER_S
        return min(due_s, now_s + _THROTTLE_CHECK_S) if self._throttled else due_s

    # --- requests ---------------------------------------------------------------------------------------------------

    def next_request(self, now_s: float, fetch_version: int) -> Request | None:
        """The next request, for a leader that serves Fetch in this version; None if nothing is to be asked now. It must
        be answered, or lost, before the next one."""
        if now_s < self.retry_at_s:
            return None
        self._speak(fetch_version)
        self._release_due(now_s)
        if self._ready[_STARTING]:
            self._start(now_s)
        ready = self._ready
        if asking := self._with_log(State.TRUNCATING, now_s):
            return queries.ends_of_epochs(self.broker_id, asking)
        if asking := self._with_log(State.FINDING_END, now_s):
            return queries.offsets(self.broker_id, asking, queries.LATEST)
        if asking := self._with_log(State.FINDING_START, now_s):
            return queries.offsets(self.broker_id, asking, queries.EARLIEST)
        self._throttle()
        if not ready[_FETCHING]:
            return None
        if self._syncing and not self._dirty and now_s < self._sync_until_s:
            return None
        return self._fetch(now_s, fetch_version)

    def _with_log(self, state: State, now_s: float) -> list[Followed]:
        """The partitions that are ready in that state. Those whose directory failed meanwhile fail."""
        ready = []
        for followed in list(self._ready[state]):
            with _Guard(self, followed, now_s):
                followed.log()
                ready.append(followed)
        return ready

    def fetch_version(self, served: int) -> int:
        """The version for Fetch, by what the leader serves: older ones name topics by name."""
        return served if self._by_id else min(served, TOPIC_IDS_SINCE - 1)

    def _speak(self, fetch_version: int) -> None:
        self._truncates_on_fetch = fetch_version >= TRUNCATION_SINCE
        by_id = fetch_version >= TOPIC_IDS_SINCE and not self._without_id
        if by_id != self._by_id:
            # The keys of the session change, and the leader refuses a session with both kinds.
            self._session.restart()
            self._end_session()
            self._by_id = by_id

    def _end_session(self) -> None:
        for followed in self._in_session.values():
            followed.sent = None
        self._in_session.clear()
        self._forgotten.clear()

    def _start(self, now_s: float) -> None:
        for followed in list(self._ready[_STARTING]):
            with _Guard(self, followed, now_s):
                self._leave(followed)
                followed.start(truncates_on_fetch=self._truncates_on_fetch)
                self._enter(followed)
                self._wait_for_disk(followed, now_s)

    def _fetch(self, now_s: float, fetch_version: int) -> FetchRequest:
        if self._session.is_full:
            self._end_session()
            changed: Iterable[Followed] = list(self._ready[_FETCHING])
        else:
            changed = list(self._dirty)
        # Held partitions must not wait for the end of a fetch that waits for news of others.
        wait_s = min(self._settings.wait_max_ms / 1000, self._due_s(now_s) - now_s)
        if self._syncing:
            wait_s = min(wait_s, _SYNC_WAIT_S)
        asked = []
        for followed in changed:
            with _Guard(self, followed, now_s):
                followed.sent = followed.to_send()
                key = self._key(followed)
                self._in_session[key] = followed
                self._forgotten.pop(key, None)
                asked.append((key[0], followed))
        self._dirty.clear()
        forgotten, self._forgotten = self._forgotten, {}
        self._stats.request_count += 1
        return fetch_request(
            self.broker_id,
            self.broker_epoch(),
            self.fetch_version(fetch_version),
            self._session,
            self._settings,
            max_wait_ms=ceil(wait_s * 1000),
            asked=asked,
            forgotten=forgotten,
        )

    # --- answers ----------------------------------------------------------------------------------------------------

    def lost(self, now_s: float) -> float:
        """The request was not answered: the leader cannot be reached. Returns the delay before the next one."""
        self._stats.lost_count += 1
        self._session.restart()
        self._failures += 1
        delay_s = self._settings.retry_s(self._failures)
        self.retry_at_s = now_s + delay_s
        return delay_s

    def answered(self, request: Request, response: Response, now_s: float) -> Iterator[None]:
        """Takes the answer to the last request. Yields between partitions, where partitions may come and go."""
        if isinstance(response, FetchResponse):
            return self._fetched(response, now_s)
        return self._told(queries.answers(request, response), now_s)

    def _fetched(self, response: FetchResponse, now_s: float) -> Iterator[None]:
        session = self._session
        if response.error_code:
            self._session_failed(ErrorCode.of(response.error_code), now_s)
            return
        if session.is_full and sum(len(topic.partitions) for topic in response.responses) < len(self._in_session):
            _logger.warning("leader %d left partitions out of a full fetch; starting again", self.leader_id)
            self.lost(now_s)
            return
        session.answered(response.session_id)
        self._failures = 0
        by_id = self._by_id
        for topic in response.responses:
            name: str | Uuid = topic.topic_id if by_id else topic.topic
            for answer in topic.partitions:
                followed = self._in_session.get((name, answer.partition_index))
                if followed is not None:
                    with _Guard(self, followed, now_s):
                        self._take(followed, answer, now_s)
                    yield
        self._log_refusals()

    # --- answers with one partition, for a fast path ------------------------------------------------------------------

    def one_answered(self, session_id: int, topic_id: bytes, index: int) -> Followed | None:
        """The partition that an answer without errors is about, if it is all that the answer has, and the partition
        can take it (`take_one`); None, with nothing done, for an answer that `answered` must take."""
        session = self._session
        if session.is_full or session_id != session.session_id or not self._by_id:
            return None
        followed = self._in_session.get((topic_id, index))  # type: ignore[arg-type]  # equal to its Uuid
        if followed is None:
            return None
        log = followed.partition.log
        return followed if log is not None and log.next_offset == followed.fetch_offset else None

    def take_one(self, followed: Followed, records: Bytes, high_watermark: int, log_start: int, now_s: float) -> None:
        """Takes an answer that `one_answered` accepted."""
        self._session.answered(self._session.session_id)
        self._failures = 0
        with _Guard(self, followed, now_s):
            self._append(followed, records, high_watermark, log_start, now_s)

    def one_to_ask(self, now_s: float) -> tuple[Followed, Sent, FollowerSession] | None:
        """If the next request is a Fetch of the session that has only one partition: what it says. It counts as
        sent. None, with nothing done, if `next_request` must say what to ask."""
        dirty, ready = self._dirty, self._ready
        if (
            len(dirty) != 1
            or len(ready[_FETCHING]) != len(self.partitions)  # some are held, or need something else
            or self._forgotten
            or self._session.is_full
            or self._quota.limit is not None
            or self._without_id
            or not self._by_id
            or now_s < self.retry_at_s
        ):
            return None
        (followed,) = dirty
        if followed.partition.log is None or followed.sent is None:
            return None
        dirty.clear()
        followed.sent = sent = followed.to_send()
        self._stats.request_count += 1
        return followed, sent, self._session

    def _session_failed(self, error: ErrorCode, now_s: float) -> None:
        is_first = self._failures == 0
        self.lost(now_s)
        if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._session.forget()
        if is_first and error in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH):
            self.retry_at_s = 0.0  # the leader restarted, or needed the slot
        else:
            _logger.warning("leader %d refused a fetch: %s", self.leader_id, error.name)

    def _take(self, followed: Followed, answer: FetchPartitionResponse, now_s: float) -> None:
        if answer.error_code:
            self._refused(followed, ErrorCode.of(answer.error_code), now_s)
            return
        if followed.fetch_offset != followed.log().next_offset:  # somebody else changed the log
            self._restart(followed)
            return
        diverging = answer.diverging_epoch
        if diverging is not None and diverging.epoch >= 0:
            self._truncate(followed, diverging.epoch, diverging.end_offset, answer.log_start_offset)
            return
        self._append(followed, answer.records, answer.high_watermark, answer.log_start_offset, now_s)

    def _append(
        self, followed: Followed, records: Bytes | None, high_watermark: int, log_start: int, now_s: float
    ) -> None:
        """The leader answered without an error, and the log is where the request said."""
        size = followed.take(records, high_watermark, log_start)
        followed.failures = 0
        if followed.lag:
            self._behind[followed] = None
        else:
            self._behind.pop(followed, None)
        if size:
            self._stats.bytes_in += size
            self._quota.record(followed.name, size)
            self._wait_for_disk(followed, now_s)
        if followed.hold is None and followed.to_send() != followed.sent:
            self._dirty[followed] = None

    def _truncate(self, followed: Followed, epoch: int, end: int, start: int = -1) -> None:
        old_end = followed.log().next_offset
        self._leave(followed)
        followed.truncate_by(epoch, end, start, truncates_on_fetch=self._truncates_on_fetch)
        followed.failures = 0
        self._enter(followed)
        if followed.fetch_offset < old_end:
            _logger.info(
                "%s: truncated from %d to %d, because epoch %d of leader %d ends at %d",
                followed.name,
                old_end,
                followed.fetch_offset,
                epoch,
                self.leader_id,
                end,
            )

    def _restart(self, followed: Followed) -> None:
        self._leave(followed)
        followed.state = _STARTING
        self._enter(followed)

    def _refused(self, followed: Followed, error: ErrorCode, now_s: float) -> None:
        """The leader answered with an error."""
        if error is ErrorCode.OFFSET_OUT_OF_RANGE and followed.state is _FETCHING:
            _logger.info("%s: offset %d is out of the leader's range", followed.name, followed.fetch_offset)
            self._leave(followed)
            followed.state = State.FINDING_END
            self._enter(followed)
            return
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            self._fenced.append(followed.name)  # usual after an election
            self._give_up(followed)
            return
        if followed.failures == (_QUIET_FAILURES if error in _QUIET else 0):  # once
            self._refusals.setdefault(error, []).append(followed.name)
        self._leave(followed)
        if followed.state in (State.FINDING_END, State.FINDING_START):
            followed.state = _FETCHING
        if error is ErrorCode.KAFKA_STORAGE_ERROR:
            self._delay(followed, self._settings.backoff_ms / 1000, now_s)  # does not end within moments
        else:
            self._retry_later(followed, now_s)

    def _log_refusals(self) -> None:
        """In one line, however many partitions it is about."""
        for error, names in self._refusals.items():
            _logger.warning("leader %d refuses %s: %s; trying again", self.leader_id, _some(names), error.name)
        self._refusals.clear()
        if self._fenced:
            what = "has a newer epoch; not followed until the controller says more"
            _logger.info("leader %d of %s %s", self.leader_id, _some(self._fenced), what)
            self._fenced.clear()

    def _told(self, answers: Iterable[queries.Answer], now_s: float) -> Iterator[None]:
        """Answers to other requests than Fetch."""
        self._failures = 0
        for answer in answers:
            followed = self.partitions.get(answer.name)
            # It may have been removed, and be followed again in another epoch.
            if (
                followed is None
                or followed.hold is not None
                or followed.state is not answer.state
                or followed.leader_epoch != answer.asked_leader_epoch
            ):
                continue
            with _Guard(self, followed, now_s):
                self._told_one(followed, answer, now_s)
            yield
        self._log_refusals()

    def _told_one(self, followed: Followed, answer: queries.Answer, now_s: float) -> None:
        if answer.error:
            self._refused(followed, answer.error, now_s)
            return
        state, old_end = followed.state, followed.log().next_offset
        if state is State.TRUNCATING:
            self._truncate(followed, answer.epoch, answer.offset)
            return
        self._leave(followed)
        if state is State.FINDING_END:
            is_cut = followed.reset_to_end(answer.offset)
        else:
            is_cut = followed.reset_to_start(answer.offset)
        if is_cut:
            what = "ends" if state is State.FINDING_END else "starts"
            why = f"leader {self.leader_id}'s log {what} at {answer.offset}"
            _logger.warning("%s: truncated from %d to %d: %s", followed.name, old_end, followed.fetch_offset, why)
        self._enter(followed)

    # --- failures ---------------------------------------------------------------------------------------------------

    def _fail(self, followed: Followed, reason: str) -> None:
        _logger.warning("%s is not followed for now: %s", followed.name, reason)
        self._give_up(followed)

    def _give_up(self, followed: Followed) -> None:
        self.remove(followed.name)
        self._stats.failed.add(followed.name)

    def _stumbled(self, followed: Followed, error: Exception, now_s: float) -> None:
        """Something went wrong with a partition; the others go on."""
        if followed.core is not self:
            return
        if isinstance(error, ChangedRoleError) or not followed.is_current:
            self.remove(followed.name)  # whoever changed its role decides who follows
        elif isinstance(error, (CorruptRecordsError, InvalidRecordsError)):
            # Damaged on the way, or read while the leader truncated: the next answer may be sound.
            _logger.error("%s: damaged records from leader %d: %s", followed.name, self.leader_id, error)
            self._retry_later(followed, now_s)
        elif isinstance(error, ReplicationError) and followed.partition.log is not None:
            _logger.error("%s: %s; trying again", followed.name, error)  # a full disk
            self._restart(followed)  # a part may have been written
            self._delay(followed, self._settings.backoff_ms / 1000, now_s)
        elif isinstance(error, (ReplicationError, LogError)):
            self._fail(followed, str(error))
        else:
            _logger.error("%s: unexpected error", followed.name, exc_info=error)
            self._fail(followed, repr(error))


def _some(names: Sequence[TopicPartition]) -> str:
    some = ", ".join(str(name) for name in names[:3]) + (", …" if len(names) > 3 else "")
    return f"{len(names)} partition{'s' if len(names) > 1 else ''} ({some})"


class _Guard:
    """Keeps the failure of one partition away from the others."""

    __slots__ = ("_core", "_followed", "_now_s")

    def __init__(self, core: FetcherCore, followed: Followed, now_s: float) -> None:
        self._core = core
        self._followed = followed
        self._now_s = now_s

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self._core._stumbled(self._followed, error, self._now_s)
        return True
