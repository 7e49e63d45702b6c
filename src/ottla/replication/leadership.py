"""A leader and its followers, for one leader epoch: what they have, who is in sync, how far records are committed.

The high watermark is the lowest log end of the leader, of the maximal ISR (`isr`), and of replicas that are caught up
and about to join: otherwise a leader with fast producers would move it ahead of such a replica for ever. It does not
move while the ISR is smaller than `min.insync.replicas`, so that members that were dropped before still have all
committed records.

No I/O: the caller brings the time and the log's offsets, and does what is returned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.replication.errors import ReplicationError
from ottla.replication.follower_state import UNKNOWN_BROKER_EPOCH, FollowerState
from ottla.replication.isr import Committed, IsrState, Next, Pending, answered, expand, shrink
from ottla.replication.role import PartitionRole

NOT_REPLICATED: Final = -1
"""Below every offset."""


class Leadership:
    """See the module. Only for partitions with followers. `epoch_start`: the leader's log end when its epoch began."""

    __slots__ = ("_broker_id", "epoch_start", "followers", "isr", "proposal", "proposed_epochs", "role")

    def __init__(self, broker_id: int, role: PartitionRole, *, epoch_start: int, now_s: float) -> None:
        self._broker_id = broker_id
        self.role = role
        self.epoch_start = epoch_start
        self.isr: IsrState = Committed(role.isr)
        self.proposal: PartitionRole | None = None
        """The role that the controller is asked for."""
        self.proposed_epochs: dict[int, int] = {}
        """The broker epochs of the followers when it was proposed. If one restarts before the controller answers, it
        may have lost what it had, and must not join by what its earlier process had (KIP-903)."""
        self.followers: dict[int, FollowerState] = {}
        self._set_followers(now_s)

    def update(self, role: PartitionRole, *, now_s: float) -> None:
        """The controller sent another ISR or other replicas in the same leader epoch."""
        self.role = role
        self.isr, self.proposal = Committed(role.isr), None
        self._set_followers(now_s)

    def _set_followers(self, now_s: float) -> None:
        known, isr = self.followers, self.role.isr
        self.followers = {
            replica: known.get(replica) or FollowerState(replica, caught_up_s=now_s if replica in isr else None)
            for replica in self.role.replicas
            if replica != self._broker_id
        }

    # --- the high watermark -----------------------------------------------------------------------------------------

    def is_under_min_isr(self, min_insync_replicas: int) -> bool:
        return len(self.isr.isr) < min(min_insync_replicas, len(self.followers) + 1)

    def committed_below(
        self,
        end: int,
        *,
        log_end: int,
        min_insync_replicas: int,
        lag_max_s: float,
        clock_s: Callable[[], float],
        is_alive: Callable[[int], bool],
    ) -> int:
        """Where the high watermark may be if the leader's own copy counts up to `end`; -1 if it must not move."""
        if self.is_under_min_isr(min_insync_replicas):
            return NOT_REPLICATED
        maximal = self.isr.maximal
        for replica, follower in self.followers.items():
            if follower.log_end < end and (
                replica in maximal
                or (follower.is_caught_up(log_end, now_s=clock_s(), lag_max_s=lag_max_s) and is_alive(replica))
            ):
                end = follower.log_end
        return end

    # --- followers --------------------------------------------------------------------------------------------------

    def fetched(
        self,
        replica_id: int,
        *,
        fetch_offset: int,
        log_start_offset: int,
        leader_end: int,
        broker_epoch: int,
        now_s: float,
        lag_max_s: float,
    ) -> FollowerState:
        """Raises `ReplicationError` for a replica that is not assigned, or a fetch from before its broker's restart.

        Nobody vouches for a broker epoch in a fetch, so a higher one counts only while fetches with it come: otherwise
        a single forged request would shut the follower out until the next leader epoch."""
        follower = self.followers.get(replica_id)
        if follower is None:
            raise ReplicationError(
                ErrorCode.UNKNOWN_LEADER_EPOCH, f"broker {replica_id} is not among the replicas {self.role.replicas}"
            )
        is_stale = UNKNOWN_BROKER_EPOCH != broker_epoch < follower.broker_epoch
        if is_stale and now_s - follower.last_fetch_s <= lag_max_s:
            raise ReplicationError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica_id} fetches with epoch {broker_epoch}, but has {follower.broker_epoch} by now",
            )
        follower.fetched(
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            leader_end=leader_end,
            broker_epoch=broker_epoch,
            now_s=now_s,
        )
        return follower

    def low_watermark(self, log_start: int, is_alive: Callable[[int], bool]) -> int:
        """The lowest log start of all live replicas: records before it are deleted everywhere."""
        return min(
            [log_start, *(each.log_start for replica, each in self.followers.items() if is_alive(replica))],
        )

    # --- the ISR ----------------------------------------------------------------------------------------------------

    def try_expand(self, follower: FollowerState, high_watermark: int) -> PartitionRole | None:
        """The role to propose if the follower should join. It must have everything that may be committed: up to the
        high watermark, and up to the start of this epoch, because an earlier leader may have committed that much."""
        state = self.isr
        if (
            not isinstance(state, Committed)
            or follower.replica_id in state.isr
            or follower.log_end < high_watermark
            or follower.log_end < self.epoch_start
        ):
            return None
        return self._propose(expand(state, follower.replica_id))

    def try_shrink(self, *, log_end: int, now_s: float, lag_max_s: float) -> PartitionRole | None:
        """The role to propose if members are behind."""
        state = self.isr
        if not isinstance(state, Committed):
            return None
        behind = [
            replica
            for replica in state.isr
            if replica != self._broker_id and not self._is_in_sync(replica, log_end, now_s, lag_max_s)
        ]
        return self._propose(shrink(state, behind)) if behind and len(behind) < len(state.isr) else None

    def _is_in_sync(self, replica: int, log_end: int, now_s: float, lag_max_s: float) -> bool:
        follower = self.followers.get(replica)
        return follower is not None and follower.is_caught_up(log_end, now_s=now_s, lag_max_s=lag_max_s)

    def _propose(self, state: Pending) -> PartitionRole:
        self.isr = state
        self.proposal = self.role._replace(isr=state.proposed, is_recovering=False)
        self.proposed_epochs = {replica: each.broker_epoch for replica, each in self.followers.items()}
        return self.proposal

    def answered(self, error: ErrorCode, answer: PartitionRole) -> Next:
        """The controller answered the current proposal."""
        state = self.isr
        if isinstance(state, Committed):
            raise ValueError(f"nothing was proposed for the ISR {state.isr}")
        self.isr, then = answered(state, self.role, error, answer)
        if then is Next.COMMITTED:
            self.role = self.role._replace(
                isr=answer.isr,
                partition_epoch=answer.partition_epoch,
                is_recovering=answer.is_recovering,
            )
        if then in (Next.COMMITTED, Next.RESET):
            self.proposal = None
        return then
