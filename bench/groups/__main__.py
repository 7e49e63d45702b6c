"""Groups on a broker of ours beside Apache Kafka 4.3.1, which is brought from Maven Central and started here.

Run: python -m bench.groups [--rounds 3] [--only LINE …] [--quick] [--save] [--directory FOLDER]

The two take turns at each line; medians count. A full run takes about eight minutes.
"""

from __future__ import annotations

from typing import Final

from bench.broker.command import run
from bench.broker.report import Subject
from bench.groups.lines import HEARTBEAT_S, QUICK, Amounts, lines_of
from bench.groups.rebalances import RECORDS_PER_S
from bench.groups.session import SESSION_TIMEOUT_MS, GroupSession

NOTES: Final = (
    "Both brokers are up all the time and take turns; medians of the rounds, ratios of medians. Commits, and groups "
    "that form and grow, come first and do not count, so that Kafka's compiler has seen them. Kafka runs with its own "
    "default config and the JVM options of its start script; for the first two lines both brokers have "
    "`group.initial.rebalance.delay.ms=0`, and notice dead members of groups of the consumer protocol after "
    f"{SESSION_TIMEOUT_MS // 1000} s, which is the shortest that the classic protocol has by default. CPU is that of "
    "the broker's process, user and system, from /proc.",
    "Members are light: one process speaks for all, with a connection for each. They say that they are alive every "
    f"{HEARTBEAT_S:g} s, at moments that are the same in every round, and so hear of a rebalance up to that "
    "much after it has begun, on both sides. Classic groups rebalance eagerly, by ranges; in the consumer protocol the "
    "broker assigns (`uniform`). A member that loses a partition commits its offset, one that gets a partition fetches "
    "it first; only then the partition counts as consumed. An event is over when every partition is consumed and every "
    "member has its share. A member dies right after it was heard of; what is told is the time behind the end of its "
    f"session. Records that came late are those that arrive at paused partitions, at {RECORDS_PER_S} a second each "
    "(from the death on, in the case of a death): they are reckoned from the pauses, not sent.",
    "Commits come from frames made beforehand, one under way on each connection, of consumers that are no members. "
    "Offsets are known again when a group on each of the 50 partitions of `__consumer_offsets` answers OffsetFetch.",
)


def main() -> None:
    run(
        Subject("groups", "Groups", NOTES),
        (__doc__ or "").splitlines()[0],
        lambda quick: lines_of(QUICK if quick else Amounts()),
        GroupSession,
    )


if __name__ == "__main__":
    main()
