"""What a leader knows about one of its followers: how far it has fetched, and when it had everything.

A follower is caught up if it has all records of the leader, or had all of them at some time within
`replica.lag.time.max.ms`. A busy leader always has a little more than its followers, so it compares each fetch with the
log end at the fetch before: a follower that asks for what came after that had everything then.
Times are monotonic seconds. No I/O.
"""

from __future__ import annotations

from typing import Final

UNKNOWN_OFFSET: Final = -1
UNKNOWN_BROKER_EPOCH: Final = -1
_NEVER_S: Final = float("-inf")


class FollowerState:
    """One follower, in one leader epoch. Its log end is unknown (-1) until its first fetch."""

    __slots__ = (
        "broker_epoch",
        "last_caught_up_s",
        "last_fetch_leader_end",
        "last_fetch_s",
        "log_end",
        "log_start",
        "replica_id",
    )

    def __init__(self, replica_id: int, *, caught_up_s: float | None) -> None:
        """`caught_up_s`: the current time for an in-sync replica, which gets the full time to fetch; None for any
        other, which must not hold the high watermark back."""
        self.replica_id = replica_id
        self.log_end = UNKNOWN_OFFSET
        self.log_start = UNKNOWN_OFFSET
        self.last_fetch_leader_end = UNKNOWN_OFFSET
        self.last_fetch_s = _NEVER_S
        self.last_caught_up_s = _NEVER_S if caught_up_s is None else caught_up_s
        self.broker_epoch = UNKNOWN_BROKER_EPOCH

    def __repr__(self) -> str:
        return f"FollowerState({self.replica_id}, log_end={self.log_end}, caught_up={self.last_caught_up_s})"

    def fetched(
        self, *, fetch_offset: int, log_start_offset: int, leader_end: int, broker_epoch: int, now_s: float
    ) -> None:
        """The follower has everything below `fetch_offset`. `leader_end` is the leader's log end when it was read."""
        if fetch_offset >= leader_end:
            self.last_caught_up_s = max(self.last_caught_up_s, now_s)
        elif fetch_offset >= self.last_fetch_leader_end:
            self.last_caught_up_s = max(self.last_caught_up_s, self.last_fetch_s)
        self.log_start = log_start_offset
        self.log_end = fetch_offset
        self.last_fetch_leader_end = max(leader_end, self.last_fetch_leader_end)
        self.last_fetch_s = now_s
        self.broker_epoch = broker_epoch

    def still_caught_up(self, now_s: float) -> None:
        """The follower fetched at that time. It had everything before, and nothing had changed."""
        self.last_caught_up_s = max(self.last_caught_up_s, now_s)
        self.last_fetch_s = max(self.last_fetch_s, now_s)

    def is_caught_up(self, leader_end: int, *, now_s: float, lag_max_s: float) -> bool:
        return self.log_end == leader_end or now_s - self.last_caught_up_s <= lag_max_s
