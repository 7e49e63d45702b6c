"""A member of a ZooKeeper group: carries out what `rebalance` decides, in the background or within polls.

Registering, reading the group's state, releasing and claiming run in the background, in one task (`_drive`). Polls call
the user's listener: in the phase GIVING_UP partitions are committed and given up, and claimed partitions are taken
over. ZooKeeper's session replaces heartbeats. The coordinator is used only if it stores the offsets.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Final

from ottla.base.coordination import CoordinationError
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.cluster import Backoff, Cluster, Deadline
from ottla.client.config import ConsumerConfig
from ottla.client.errors import (
    BrokerConnectionError,
    BrokerUnreachableError,
    ClientError,
    ConfigError,
    RebalanceFailedError,
)
from ottla.client.membership.commits import GroupCommits
from ottla.client.membership.handover import Invoke
from ottla.client.membership.metadata import NO_GENERATION, NO_MEMBER_ID, GroupMetadata
from ottla.client.membership.participation import MS, Participation
from ottla.client.membership.zookeeper.assignment import STRATEGIES, AssignmentError, GroupView, topics_of
from ottla.client.membership.zookeeper.group_tree import GroupTree, TreeSettings
from ottla.client.membership.zookeeper.kept_offsets import (
    CoordinatorOffsets,
    DualOffsets,
    OffsetNodes,
    ZooKeeperOffsets,
)
from ottla.client.membership.zookeeper.rebalance import Phase, Rebalance
from ottla.client.membership.zookeeper.topic_filter import filter_text
from ottla.client.subscriptions.subscription import Subscription
from ottla.zookeeper.client.connect_string import ConnectString
from ottla.zookeeper.znodes import ConsumerPattern, ConsumerRegistration

_logger = logging.getLogger(__name__)

_LOOK_UP_S: Final = 3.0
"""How often to check that the user still polls."""
_THREADS: Final = 1


class ZooKeeperMembership(Participation):
    def __init__(
        self, config: ConsumerConfig, cluster: Cluster, subscription: Subscription, group_id: str, invoke: Invoke
    ) -> None:
        with_internal = not config.exclude_internal_topics
        settings = TreeSettings(
            _checked_connect(config.zookeeper_connect or ""),
            config.zookeeper_session_timeout_ms,
            config.zookeeper_connection_timeout_ms,
        )
        self._tree = GroupTree(settings, group_id, with_internal=with_internal)
        self._tree.on_change = self._group_changed
        self._tree.on_release = self._owner_let_go
        self._tree.on_expiry = self._session_expired
        self._with_internal = with_internal
        strategy = STRATEGIES[config.partition_assignment_strategy[0]]
        self._rebalance = Rebalance(strategy, config.rebalance_max_retries, with_internal=with_internal)
        self._nodes = OffsetNodes(self._tree, lambda partition: partition in self._rebalance.owned)
        self._taken: frozenset[TopicPartition] | None = None
        """The partitions that the user has; None before the first assignment."""
        self._news = asyncio.Event()
        """Set when `_drive` may have something to do."""
        self._acting: asyncio.Task[None] | None = None
        self._is_leaving = False
        """Whether nothing new may be started."""
        self._has_warned = False
        """Whether a warning about missing brokers was logged."""
        super().__init__(config, cluster, subscription, group_id, invoke)

    def _commits(self) -> GroupCommits:
        common = (self._cluster, self._coordinator, self.ledger, self._identity, self._member_refused)
        timeout_s = self._config.default_api_timeout_ms / MS
        if self._config.offsets_storage == "zookeeper":
            return ZooKeeperOffsets(*common, has_epochs=False, timeout_s=timeout_s).use(self._nodes)
        if self._config.dual_commit_enabled:
            return DualOffsets(*common, has_epochs=False, timeout_s=timeout_s).use(self._nodes)
        return CoordinatorOffsets(*common, has_epochs=False, timeout_s=timeout_s)

    def _works(self) -> dict[str, Callable[[], Awaitable[None]]]:
        return {"polls": self._beat, "auto-commit": self._auto_commit.run, "rebalances": self._drive}

    def metadata(self) -> GroupMetadata:
        """The generation counts how often partitions were given up or lost."""
        if not self._rebalance.is_registered:
            return GroupMetadata(self._group_id, NO_GENERATION, NO_MEMBER_ID)
        return GroupMetadata(self._group_id, self._rebalance.generation, self._rebalance.member_id)

    def _identity(self) -> GroupMetadata | None:
        if self._subscription.is_by_group and (self._is_lost or self._tree.may_be_expired):
            return None
        return super()._identity()

    # Within polls.

    async def poll(self, deadline: Deadline) -> None:
        if self._is_leaving:  # leaving was interrupted, and the user polls again
            self._is_leaving = False
            self._news.set()
        await super().poll(deadline)

    def _has_steps(self) -> bool:
        rebalance = self._rebalance
        if rebalance.phase in (Phase.OUT, Phase.GIVING_UP, Phase.STUCK):
            return True
        return self._taken != rebalance.owned and (self._taken is not None or rebalance.is_settled)

    async def _step(self, deadline: Deadline) -> bool:
        rebalance = self._rebalance
        match rebalance.phase:
            case Phase.OUT:
                rebalance.wanted(_new_member_id(self._group_id))
                self._news.set()
                return True
            case Phase.GIVING_UP:
                return await self._hand_back(deadline)
        if self._taken != rebalance.owned and (self._taken is not None or rebalance.is_settled):
            self._taken = rebalance.owned
            self._nodes.forget_written()
            await self._handover.assign(sorted(rebalance.owned))
        if rebalance.phase is Phase.STUCK:
            rebalance.retry()
            self._news.set()
            raise RebalanceFailedError(
                f"group {self._group_id}: the rebalance failed and is retried with the next poll: {rebalance.reason}"
            )
        return True

    async def _hand_back(self, deadline: Deadline) -> bool:
        rebalance = self._rebalance
        session, going = rebalance.session, rebalance.going
        given = [one for one in going if one in self._subscription.partitions]
        if given:
            if not await self._is_committed(deadline):
                return False
            await self._handover.revoke(given)
        # It may be lost, or have left, while the listener was called.
        if session == rebalance.session and rebalance.phase is Phase.GIVING_UP and going == rebalance.going:
            rebalance.given_up()
            if self._taken is not None:
                self._taken -= going
            self._nodes.forget_written()
            self._news.set()
        return True

    # In the background.

    async def _pause(self) -> None:
        await asyncio.sleep(min(_LOOK_UP_S, self._config.max_poll_interval_ms / MS))

    async def _heartbeat(self) -> None:
        """Does nothing: ZooKeeper's client sends its own heartbeats."""

    async def _drive(self) -> None:
        """Runs until it is cancelled."""
        backoff = Backoff(self._cluster.options)
        while True:
            if self._acting is not None:  # left by a `_drive` that failed
                await self._end(self._acting)
            self._news.clear()
            if self._is_leaving:
                await self._news.wait()
                continue
            self._acting = self._task(self._act(self._rebalance.phase), "rebalance")
            try:
                await asyncio.wait([self._acting])
            finally:
                self._acting.cancel()
            acting, self._acting = self._acting, None
            if acting.cancelled():
                continue
            error = acting.exception()
            if error is None:
                backoff = Backoff(self._cluster.options)
            elif isinstance(error, BrokerUnreachableError):
                self._fail(error)
            elif isinstance(error, BrokerConnectionError):
                _logger.debug("group %s: %s", self._group_id, error)
                await asyncio.sleep(backoff.next_s())
            elif isinstance(error, ClientError):
                if self._rebalance.phase is not Phase.OUT:
                    self._rebalance.failed(str(error))
            else:
                raise error
            if self.needs_poll():
                self._subscription.wake_poll()

    async def _act(self, phase: Phase) -> None:
        """Does the work of the phase; the phase may be over by the end."""
        rebalance, session = self._rebalance, self._rebalance.session
        match phase:
            case Phase.REGISTERING:
                rebalance.registers()
                if self._config.allow_auto_create_topics:
                    await self._topics.layout(self._subscription.topics)
                await self._tree.register(rebalance.member_id, self._registration())
                if session == rebalance.session:
                    rebalance.registered()
            case Phase.LOOKING:
                rebalance.looks()
                view = await self._tree.look(rebalance.member_id)
                if session == rebalance.session and rebalance.phase is phase:
                    self._match_topics(view)
                    self._warn_if_none(view.brokers)
                    rebalance.saw(view)
                    self._log_plan()
            case Phase.RELEASING:
                await self._tree.release(rebalance.unreleased)
                if session == rebalance.session:
                    rebalance.released()
            case Phase.CLAIMING:
                await self._claim()
            case Phase.WAITING:
                try:
                    async with asyncio.timeout(self._config.rebalance_backoff_ms / MS):
                        await self._news.wait()
                except TimeoutError:
                    if session == rebalance.session and rebalance.phase is phase:
                        rebalance.retry()
            case _:
                await self._news.wait()

    async def _claim(self) -> None:
        rebalance, session = self._rebalance, self._rebalance.session
        missing = dict(rebalance.missing)
        granted = None
        try:
            granted = await self._tree.claim(missing)
        finally:
            if session != rebalance.session:
                rebalance.doubts(missing)
            elif granted is not None:
                rebalance.claimed(granted)
                waiting = sorted(missing.keys() - granted)
                if waiting:
                    _logger.info("group %s: other consumers still own %s", self._group_id, ", ".join(map(str, waiting)))

    def _registration(self) -> ConsumerRegistration:
        now_ms = time.time_ns() // 1_000_000
        pattern = self._subscription.pattern
        if pattern is not None:
            return ConsumerRegistration({filter_text(pattern): _THREADS}, ConsumerPattern.WHITE_LIST, now_ms)
        streams = dict.fromkeys(sorted(self._subscription.topics), _THREADS)
        return ConsumerRegistration(streams, ConsumerPattern.STATIC, now_ms)

    def _match_topics(self, view: GroupView) -> None:
        """Finds the topics that match the pattern, for `subscription()`."""
        me = view.members.get(self._rebalance.member_id)
        if me is None or self._subscription.pattern is None or me.pattern is ConsumerPattern.STATIC:
            return
        try:
            found = topics_of(me, view.topics, with_internal=self._with_internal)
        except AssignmentError:
            return  # the rebalance reports it
        self._subscription.matched(found)

    def _warn_if_none(self, brokers: frozenset[int]) -> None:
        if not brokers and not self._has_warned:
            connect = self._config.zookeeper_connect
            _logger.warning(
                "group %s: no brokers are registered in ZooKeeper at %s; check the chroot of zookeeper.connect",
                self._group_id,
                connect,
            )
        self._has_warned = not brokers

    def _log_plan(self) -> None:
        rebalance = self._rebalance
        if rebalance.going or rebalance.missing:
            _logger.info(
                "group %s: %s is to own %s",
                self._group_id,
                rebalance.member_id,
                ", ".join(map(str, sorted(rebalance.plan))) or "nothing",
            )

    # Reactions to events.

    def subscription_changed(self) -> None:
        self._rebalance.resubscribed()
        super().subscription_changed()

    def _topics_changed(self, reason: str) -> None:  # noqa: ARG002
        self._news.set()
        self._subscription.wake_poll()

    def _group_changed(self) -> None:
        if self._rebalance.phase is not Phase.OUT:
            self._rebalance.changed()
            self._news.set()

    def _owner_let_go(self) -> None:
        if self._rebalance.phase in (Phase.WAITING, Phase.STUCK):
            self._rebalance.retry()
            self._news.set()

    def _session_expired(self) -> None:
        if self._rebalance.phase is Phase.OUT:
            return
        _logger.warning("group %s: the session with ZooKeeper expired; the consumer registers again", self._group_id)
        self._rebalance.expired()
        self._lost_all()

    def _lost_all(self) -> None:
        self._is_lost = bool(self._subscription.partitions)
        self._taken = None
        self._nodes.forget_written()
        self._news.set()
        self._subscription.wake_poll()

    def _member_refused(self, member: GroupMetadata, code: ErrorCode) -> None:
        """Never called: the coordinator does not know the members of this group."""

    def _fail(self, failure: ClientError | BrokerConnectionError) -> None:
        """The next poll raises the error; the one after that tries again."""
        self._failure = failure
        self._lose(str(failure))

    def _raise_failure(self, failure: BaseException) -> None:
        self._failure = None
        raise failure

    # Leaving.

    async def _stop_joining(self) -> None:
        self._is_leaving = True
        if self._acting is not None:
            await self._end(self._acting)

    async def _leave(self, reason: str) -> None:  # noqa: ARG002
        self._tree.leave()

    def _forget(self) -> None:
        if self._rebalance.phase is not Phase.OUT:
            self._tree.leave()
            self._rebalance.left()
        self._taken = None
        self._is_leaving = False
        self._nodes.forget_written()
        self._news.set()

    async def end(self) -> None:
        try:
            await super().end()
        finally:
            await self._tree.close()


def _checked_connect(connect: str) -> str:
    try:
        ConnectString.parse(connect)
    except (CoordinationError, ValueError) as error:
        raise ConfigError("zookeeper.connect", str(error)) from None
    return connect


def _new_member_id(group_id: str) -> str:
    """Creates an id as Kafka 0.8 does: `<group>_<host>-<time>-<8 digits>`."""
    host = socket.gethostname().replace("/", "-")
    return f"{group_id}_{host}-{time.time_ns() // 1_000_000}-{uuid.uuid4().hex[:8]}"
