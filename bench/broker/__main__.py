"""A broker of ours beside Apache Kafka 4.3.1, which is brought from Maven Central and started here.

Run: python -m bench.broker [--rounds 3] [--only LINE …] [--quick] [--save] [--directory FOLDER]

The two take turns at each line; medians count. Files are real and are removed afterwards, on a disk that should have
20 GB to spare. A full run takes about ten minutes.
"""

from __future__ import annotations

from typing import Final

from bench.broker.command import run
from bench.broker.lines import LINES
from bench.broker.report import Subject

NOTES: Final = (
    "Both brokers are up all the time and take turns; medians of the rounds, ratios of medians. Some of all work, and "
    "a turn of each line, come first and do not count, so that Kafka's compiler has seen them. Kafka runs with its own "
    "default config and the JVM options of its start script; only deleted topics go after half a second on both sides, "
    "not after a minute, because gigabytes of them would fill the page cache. CPU is that of the broker's process, "
    "user and system, from /proc. Most of the free memory is used once before it all begins: a virtual machine gets "
    "memory from its host when it first touches it, which costs more than all that a broker does with a record.",
    "Raw: frames made beforehand, sent over blocking sockets by a process that looks into no answer; big batches are "
    "of 256 KiB, one a request, five in flight on each of two connections. Catch-up fetches ask for a MiB, four in "
    "flight on each of two connections, of what is in the page cache. Latency: one record a request, from before it is "
    "sent to when a long-polling consumer has it.",
    "Start: from the start of the process, in an empty directory (formatted, for Kafka), to a record acknowledged in a "
    "topic that the request for its metadata made.",
)


if __name__ == "__main__":
    run(Subject("broker", "A broker", NOTES), (__doc__ or "").splitlines()[0], lambda _: LINES)
