"""Three brokers of ours beside three of Apache Kafka 3.9.1 on ZooKeeper, which are brought from Maven Central.

Run: python -m bench.cluster [--rounds 3] [--only LINE …] [--quick] [--save] [--directory FOLDER]

The two clusters take turns at each line; medians count. A full run takes about half an hour, because Kafka notices a
killed broker only after 18 seconds.
"""

from __future__ import annotations

from typing import Final

from bench.broker.command import run
from bench.broker.machine import versions
from bench.broker.report import Subject
from bench.cluster.lines import QUICK_AMOUNTS, Amounts, ClusterSession, lines_of
from bench.cluster.sides import KAFKA_VERSION

NOTES: Final = (
    "Both clusters are up all the time and take turns; medians of the rounds, ratios of medians. All six brokers, two "
    "ZooKeepers and the load share the machine. Topics have three replicas and `min.insync.replicas=2`; every produce "
    "request has acks=all. Everything else has its default on both sides, the session timeout with ZooKeeper "
    "included; only deleted topics go after half a second. Ours run on the embedded ZooKeeper, Kafka's on Apache "
    "ZooKeeper. CPU is that of the three brokers.",
    "A killed broker: librdkafka sends a record every 5 ms to each partition in turn; what is told is the time from "
    "the kill to the acknowledgement of a record that was sent after it. It waits 20 ms between tries.",
)


def main() -> None:
    run(
        Subject(
            "cluster",
            "A cluster",
            NOTES,
            f"Apache Kafka {KAFKA_VERSION}",
            lambda: {**versions(), "kafka": KAFKA_VERSION},
        ),
        (__doc__ or "").splitlines()[0],
        lambda quick: lines_of(QUICK_AMOUNTS if quick else Amounts()),
        ClusterSession,
    )


if __name__ == "__main__":
    main()
