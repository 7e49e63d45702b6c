"""Removes members of consumer groups whose session ended, or that do not do their part in a rebalance.

A heartbeat only moves the end of the session; the timer compares, and waits again. It is never due after that time.

Removing a member needs records, which may be refused: every timer tries again a second later, until the member is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.consumer.member import ConsumerMember, MemberState, Standing
from ottla.coordinator.groups.shard import GroupShard
from ottla.coordinator.shards import WriteOutcome

Fence = Callable[[ConsumerGroup, ConsumerMember, str], WriteOutcome[None]]
"""Removes a member from its group; the reason is logged."""
_RETRY_S: Final = 1.0
"""The delay before the next attempt to remove a member if the records could not be written."""


class ConsumerTimers:
    def __init__(self, shard: GroupShard, fence: Fence) -> None:
        self._groups = shard.groups
        self._context = shard.context
        self._fence = fence

    # --- sessions ---

    def keep_alive(self, group: ConsumerGroup, member_id: str, timeout_ms: int) -> None:
        """Restarts the member's session."""
        timeout_s = timeout_ms / 1000
        end_s = self._context.clock.monotonic_s() + timeout_s
        before_s = group.session_ends_s.get(member_id)
        group.session_ends_s[member_id] = end_s
        if before_s is None or end_s < before_s:  # the timeout became shorter
            self._watch_session(group.group_id, member_id, timeout_s)

    def _watch_session(self, group_id: str, member_id: str, delay_s: float) -> None:
        name = _name("session", group_id, member_id)
        self._context.schedule(name, delay_s, lambda: self._session_due(group_id, member_id))

    def _session_due(self, group_id: str, member_id: str) -> WriteOutcome[None]:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or member_id not in group.session_ends_s:
            return WriteOutcome(None)
        remaining_s = group.session_ends_s[member_id] - self._context.clock.monotonic_s()
        if remaining_s > 0:
            self._watch_session(group_id, member_id, remaining_s)
            return WriteOutcome(None)
        self._watch_session(group_id, member_id, _RETRY_S)
        return self._give_up(group_id, member_id, "its session timed out")

    # --- rebalances ---

    def follow(self, group_id: str, member_id: str, standing: Standing, timeout_ms: int) -> None:
        """Watches the new state of a member of the consumer protocol: it must revoke partitions within the timeout."""
        name = _name("rebalance", group_id, member_id)
        if standing.state is not MemberState.UNREVOKED_PARTITIONS:
            self._context.cancel(name)
            return
        epoch = standing.epoch

        def due() -> WriteOutcome[None]:
            group = self._groups.get(group_id)
            member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
            if member is None or member.standing.epoch != epoch:
                return WriteOutcome(None)
            self._context.schedule(name, _RETRY_S, due)
            return self._give_up(group_id, member_id, f"it did not revoke its partitions within {timeout_ms} ms")

        self._context.schedule(name, timeout_ms / 1000, due)

    def expect_join(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """A classic member was told to rejoin; the timeout starts with the first time."""
        name = _name("join", group_id, member_id)
        if not self._context.is_scheduled(name):
            self._give_up_after(name, group_id, member_id, timeout_ms, f"it did not rejoin within {timeout_ms} ms")

    def expect_sync(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """A classic member has joined, and must send SyncGroup."""
        self._context.cancel(_name("join", group_id, member_id))
        reason = f"it did not send SyncGroup within {timeout_ms} ms"
        self._give_up_after(_name("sync", group_id, member_id), group_id, member_id, timeout_ms, reason)

    def synced(self, group_id: str, member_id: str) -> None:
        self._context.cancel(_name("sync", group_id, member_id))

    def excuse(self, group_id: str, member_id: str) -> None:
        """The member uses the consumer protocol now, and need not rejoin or sync."""
        self._context.cancel(_name("join", group_id, member_id))
        self._context.cancel(_name("sync", group_id, member_id))

    # --- the end ---

    def forget(self, group_id: str, member_id: str) -> None:
        """Stops all timers of a member that is gone."""
        for kind in ("session", "rebalance", "join", "sync"):
            self._context.cancel(_name(kind, group_id, member_id))
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.session_ends_s.pop(member_id, None)

    def _give_up_after(self, name: str, group_id: str, member_id: str, timeout_ms: int, reason: str) -> None:
        def due() -> WriteOutcome[None]:
            group = self._groups.get(group_id)
            if isinstance(group, ConsumerGroup) and member_id in group.members:
                self._context.schedule(name, _RETRY_S, due)
            return self._give_up(group_id, member_id, reason)

        self._context.schedule(name, timeout_ms / 1000, due)

    def _give_up(self, group_id: str, member_id: str, reason: str) -> WriteOutcome[None]:
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup) and member_id in group.members:
            return self._fence(group, group.members[member_id], reason)
        return WriteOutcome(None)


def _name(kind: str, group_id: str, member_id: str) -> str:
    """Contains the length of the group id, so that names are unique."""
    return f"consumer {kind} {len(group_id)} {group_id} {member_id}"
