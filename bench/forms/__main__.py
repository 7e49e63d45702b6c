"""Many forms of work on a broker of ours beside Apache Kafka 4.3.1, which comes from Maven Central and is started here.

Run: python -m bench.forms [--rounds 3] [--only LINE …] [--quick] [--save] [--directory FOLDER]

The two take turns at each line; medians count. A full run takes about ten minutes.
"""

from __future__ import annotations

from typing import Final

from bench.broker.command import run
from bench.broker.report import Subject
from bench.forms.lines import QUICK, Amounts, lines_of
from bench.forms.session import FormSession

NOTES: Final = (
    "Both brokers are up all the time and take turns; medians of the rounds, ratios of medians. Some work, and a turn "
    "of each line, come first and do not count, so that Kafka's compiler has seen them. Kafka runs with its own "
    "default config and the JVM options of its start script, except that deleted topics go after half a second and "
    "groups do not wait for more members, on both sides. CPU is that of the broker's process, user and system, from "
    "/proc.",
    "Raw loads send frames that were made beforehand and look into the first answer only; afterwards the end offsets "
    "must be what was acknowledged. Rates of compressed batches count the records' bytes before compression: 1 KiB of "
    "text a record that compresses to about half, 256 KiB a batch, five requests in flight on each of two connections. "
    "Where a topic's `compression.type` differs from the producer's, the broker compresses again.",
    "Admin work is one request for all topics, from sending it to its answer; both brokers answer a creation or a "
    "deletion before the files are made or removed. CPU of admin work includes a second after the last answer. Groups "
    "that join have one member each, which joins, syncs and leaves over one connection.",
)


def main() -> None:
    run(
        Subject("forms", "Forms of work", NOTES),
        (__doc__ or "").splitlines()[0],
        lambda quick: lines_of(QUICK if quick else Amounts()),
        FormSession,
    )


if __name__ == "__main__":
    main()
