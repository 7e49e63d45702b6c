"""Differences that are faults of ours, found and not mended yet. This list is to become empty and then to go.

A run reports them apart from what we want (`on_purpose`), and those that did not show, so that an entry whose fault is
mended does not stay.
"""

from __future__ import annotations

from typing import Final

from differential.comparison import Difference
from differential.on_purpose import OnPurpose
from ottla.base.error_codes import ErrorCode


def _sends(difference: Difference, text: str) -> bool:
    return text in str(difference.step.get("request"))


FAULTS: Final[tuple[OnPurpose, ...]] = (
    OnPurpose(
        "fault: partition_max_bytes below 0",
        "Kafka answers UNKNOWN_SERVER_ERROR for that partition and reads the others.",
        lambda found: found.api == "Fetch" and "'partition_max_bytes': -1" in str(found.steps),
        parts_ways=True,
    ),
    OnPurpose(
        "fault: aborted transactions that are null",
        "Kafka sends an empty list with errors that it finds before it reads, and null where nothing fits.",
        lambda found: found.api == "Fetch" and found.field.endswith("/aborted_transactions"),
    ),
    OnPurpose(
        "fault: id of a deleted topic",
        "Kafka answers DeleteTopics by name with the id of the topic.",
        lambda found: found.api == "DeleteTopics" and found.field.endswith("/topic_id") and found.ours == "$id:zero",
    ),
    OnPurpose(
        "fault: the same topic twice in CreateTopics or DeleteTopics",
        "Kafka answers one entry, INVALID_REQUEST.",
        lambda found: found.api in ("CreateTopics", "DeleteTopics") and found.field in ("topics", "responses"),
        parts_ways=True,
    ),
    OnPurpose(
        "fault: an empty fetch session",
        "Kafka opens a session without partitions.",
        lambda found: found.api == "Fetch" and found.field == "session_id" and found.ours == 0,
        parts_ways=True,
    ),
    OnPurpose(
        "fault: acks are checked first",
        "Kafka looks for the topic before it checks the acks of a Produce request.",
        lambda found: (
            found.api == "Produce"
            and found.ours == ErrorCode.INVALID_REQUIRED_ACKS
            and found.theirs in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
        ),
        parts_ways=True,
    ),
    OnPurpose(
        "fault: leader epoch of ListOffsets",
        "Kafka tells the epoch of a record that was deleted, and the current one for an empty log.",
        lambda found: found.api == "ListOffsets" and found.field.endswith("/leader_epoch") and found.ours == -1,
    ),
    OnPurpose(
        "fault: log start offset with errors",
        "Kafka tells where the log starts when it refuses records.",
        lambda found: found.api == "Produce" and found.field.endswith("/log_start_offset") and found.ours == -1,
    ),
    OnPurpose(
        "fault: code for batches of magic 1 and wrong lengths",
        "Kafka says INVALID_RECORD.",
        lambda found: (
            found.api == "Produce"
            and (found.ours, found.theirs) == (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
        ),
    ),
    OnPurpose(
        "fault: zstd in old versions of Produce",
        "Before version 7, Kafka refuses zstd with UNSUPPORTED_COMPRESSION_TYPE.",
        lambda found: (
            found.api == "Produce"
            and found.version < 7
            and (found.theirs == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE or _sends(found, "'codec': 4"))
        ),
        parts_ways=True,
    ),
    OnPurpose(
        "fault: producers that set LogAppendTime",
        "Kafka 4 takes batches whose attributes say LogAppendTime.",
        lambda found: found.api == "Produce" and _sends(found, "'log append time'"),
        parts_ways=True,
    ),
    OnPurpose(
        "fault: time of a duplicate",
        "Kafka answers a duplicate with the largest timestamp of the batch.",
        lambda found: found.api == "Produce" and found.field.endswith("/log_append_time_ms") and found.ours == -1,
    ),
    OnPurpose(
        "fault: a producer id without an epoch",
        "Kafka refuses such a batch.",
        lambda found: (
            found.api == "Produce"
            and (found.ours, found.theirs) in ((0, -1), ("unanswered", "closed"))
            and _sends(found, "'pid'")
        ),
        parts_ways=True,
    ),
)
