"""Transactions on a broker of ours beside Apache Kafka 4.3.1 and 3.9.1, which come from Maven Central.

Run: python -m bench.transactions [--rounds 3] [--only LINE …] [--quick] [--save] [--directory FOLDER]

The brokers take turns at each line; medians count. A run of one round takes about six minutes.
"""

from __future__ import annotations

from typing import Final

from bench.broker.command import run
from bench.broker.machine import versions
from bench.broker.report import Subject
from bench.broker.sides import KAFKA_VERSION
from bench.transactions.lines import PAUSE_S, QUICK, VALUE_BYTES, Amounts, lines_of
from bench.transactions.session import HASTY_MS, OLD_KAFKA, TransactionSession

NOTES: Final = (
    "All brokers are up all the time and take turns; medians of the rounds, ratios of medians. First, each broker "
    "gets transactions that do not count, until their CPU time does not fall any more: Kafka's compiler has seen them "
    "then. Kafka runs as its own "
    "controller, with its own default config and the JVM options of its start script, except that the topics of "
    "transactions and of groups have one replica, as there is one broker. CPU is that of the broker's process, user "
    "and system, from /proc.",
    f"Producers are light: one process speaks for all, with a connection and a partition for each, from frames made "
    f"beforehand. A transaction is one batch of records of {VALUE_BYTES} bytes for one partition, and its commit. "
    "With version 1 of the transaction protocol, a producer adds the partition first; with version 2 (KIP-890), the "
    "leader does, and every commit raises the epoch.",
    "A transaction that begins before the previous one of its producer is completed has to wait. With version 1, Kafka "
    f"answers CONCURRENT_TRANSACTIONS; the producer asks again after {PAUSE_S * 1e3:g} ms, as Kafka's own does. With "
    "version 2, Kafka 4.3.1 waits itself, for 20 ms (add.partitions.to.txn.retry.backoff.ms), and the producer sees "
    "nothing but a late answer: most transactions of a producer that goes on immediately take that long, which is why "
    f"so few of them fit into a second. Two lines show Kafka with this config at {HASTY_MS} ms. Ottla has no such "
    "pause. The driver treats all brokers alike.",
    "Latency is from just before the first request of a transaction to the moment when a consumer with read_committed "
    "has the record. Big batches are of 256 KiB with records of 1 KiB, five requests in flight on each of two "
    "connections, on our broker alone. The fastest of seven short turns in each mode counts: turns for which the host "
    "of a virtual machine has to find memory first take several times as long, in whichever mode.",
)


def main() -> None:
    run(
        Subject(
            "transactions",
            "Transactions",
            NOTES,
            f"Apache Kafka {KAFKA_VERSION} and {OLD_KAFKA}",
            lambda: {**versions(), "old kafka": OLD_KAFKA},
        ),
        (__doc__ or "").splitlines()[0],
        lambda quick: lines_of(QUICK if quick else Amounts()),
        TransactionSession,
    )


if __name__ == "__main__":
    main()
