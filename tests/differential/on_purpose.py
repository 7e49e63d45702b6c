"""Differences that we want, or that Kafka's own versions have among themselves: each with its reason.

An entry applies to a single field that differs. Those that no run needs any more are reported, so that the list stays
short.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from differential.comparison import ABSENT, Difference
from ottla.base.error_codes import ErrorCode
from ottla.base.operations import Operation
from ottla.broker.requests.authorized_operations import GROUP_OPERATIONS


@dataclass(frozen=True)
class OnPurpose:
    name: str
    reason: str
    applies: Callable[[Difference], bool]
    parts_ways: bool = False
    """What the brokers hold differs from there on: the dialogue ends."""


_REMOVED_IN_4: Final = (
    "message.format.version",
    "message.downconversion.enable",
    "message.timestamp.difference.max.ms",
)
_ADDED_IN_4: Final = ("internal.segment.bytes",)
_GROUP_OPERATIONS_IN_4: Final = GROUP_OPERATIONS | 1 << Operation.DESCRIBE_CONFIGS | 1 << Operation.ALTER_CONFIGS


def _is_config_of_other_version(difference: Difference) -> bool:
    name = difference.path.rsplit("/", 1)[-1]
    if difference.ours == ABSENT:
        return name in _ADDED_IN_4
    return difference.theirs == ABSENT and name in _REMOVED_IN_4


def _has_null_records(difference: Difference) -> bool:
    topics = difference.step["request"]["topic_data"]
    return any(each.get("records") is None for topic in topics for each in topic["partition_data"])


_ABOUT_GROUPS: Final = (
    "DeleteGroups",
    "DescribeGroups",
    "ListGroups",
    "OffsetCommit",
    "OffsetDelete",
    "ConsumerGroupDescribe",
    "JoinGroup",
)
_TOO_LONG: Final = "m" * 4097


def _sent_batches(difference: Difference) -> list[dict[str, Any]]:
    topics = difference.step["request"]["topic_data"]
    return [
        batch for topic in topics for partition in topic["partition_data"] for batch in partition.get("records") or ()
    ]


def _has_damage(difference: Difference, damage: str) -> bool:
    return any(batch.get("damage") == damage for batch in _sent_batches(difference))


def _follows_a_bad_format(difference: Difference) -> bool:
    bad = ("'magic 3'", "'codec 5'", "'offset deltas'", "'trailing'")
    return any(
        step.get("api") == "Produce" and step["request"].get("acks") == 0 and any(each in str(step) for each in bad)
        for step in difference.steps
    )


def _has_several_batches(difference: Difference) -> bool:
    topics = difference.step["request"]["topic_data"]
    return any(len(partition.get("records") or ()) > 1 for topic in topics for partition in topic["partition_data"])


def _is_refused_here(difference: Difference) -> bool:
    """A batch that Kafka took, or refused for something else, with any acks."""
    if difference.api != "Produce":
        return False
    if difference.theirs == "unanswered":
        return bool(difference.ours == "closed")
    return difference.field.endswith("error_code") and difference.ours in (
        ErrorCode.INVALID_RECORD,
        ErrorCode.CORRUPT_MESSAGE,
    )


def _is_nameless_error(difference: Difference) -> bool:
    return (
        difference.field.endswith("error_code")
        and difference.theirs == ErrorCode.UNKNOWN_SERVER_ERROR
        and difference.ours not in (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR)
    )


def _recompresses(difference: Difference) -> bool:
    return any("compression.type" in str(step.get("request")) for step in difference.steps)


def _is_left_group(difference: Difference) -> bool:
    """Whether the group may be one that Kafka keeps although nothing is left of it, or nothing was ever in it."""
    return (
        difference.api in _ABOUT_GROUPS
        and any(
            step.get("api") in ("OffsetDelete", "DeleteTopics", "JoinGroup")
            or (step.get("api") == "OffsetCommit" and _TOO_LONG in str(step["request"]))
            for step in difference.steps
        )
        and (
            difference.field in ("groups", "groups/group_state")
            or (difference.ours, difference.theirs)
            == (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            or difference.ours in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.ILLEGAL_GENERATION)
            or difference.theirs == ErrorCode.GROUP_ID_NOT_FOUND
        )
    )


ENTRIES: Final[tuple[OnPurpose, ...]] = (
    OnPurpose(
        "topic configs of 3.9.1",
        "Ottla has the topic configs of Kafka 3.9.1; Kafka 4 removed three of them.",
        lambda found: found.peer == "4.3.1" and _is_config_of_other_version(found),
    ),
    OnPurpose(
        "operations on groups",
        "Groups have configs since Kafka 4, so two more operations; Ottla reports those of 3.9.1.",
        lambda found: (
            found.peer == "4.3.1"
            and found.field.endswith("authorized_operations")
            and (found.ours, found.theirs) == (GROUP_OPERATIONS, _GROUP_OPERATIONS_IN_4)
        ),
    ),
    OnPurpose(
        "source of min.insync.replicas",
        "KRaft clusters keep a dynamic default of min.insync.replicas for eligible leader replicas (KIP-966).",
        lambda found: (
            found.peer == "4.3.1"
            and "/min.insync.replicas/" in found.path
            and (found.field.endswith("synonyms") or (found.ours, found.theirs) == (5, 3))
        ),
    ),
    OnPurpose(
        "no answer to null records",
        "Kafka 4 leaves a Produce request with null records unanswered; Ottla refuses it.",
        lambda found: (
            found.api == "Produce" and not found.path and found.theirs == "timeout" and _has_null_records(found)
        ),
        parts_ways=True,
    ),
    OnPurpose(
        "a name for the error",
        "Where Kafka fails with UNKNOWN_SERVER_ERROR, because an exception was not expected, Ottla says what is wrong.",
        lambda found: found.api == "Produce" and _is_nameless_error(found),
    ),
    OnPurpose(
        "log start beside a name for the error",
        "As above: with UNKNOWN_SERVER_ERROR, Kafka does not tell where the log starts.",
        lambda found: (
            found.api == "Produce"
            and found.field.endswith("/log_start_offset")
            and found.theirs == -1
            and "'error_code': -1" in str(found.their_tree)
        ),
    ),
    OnPurpose(
        "a name for the error of other requests",
        "As for Produce; what else the answer holds may differ as well.",
        lambda found: found.api != "Produce" and _is_nameless_error(found),
        parts_ways=True,
    ),
    OnPurpose(
        "sizes of recompressed batches",
        "Compressors differ in what they make of the same records, and so where a fetch by size ends.",
        lambda found: found.api == "Fetch" and "/records/" in found.path and _recompresses(found),
    ),
    OnPurpose(
        "groups without offsets",
        "Kafka 4 keeps empty groups until its next clean-up: those whose last offset is gone, which 3.9.1 drops too, "
        "and those whose only join or commit was refused.",
        _is_left_group,
        parts_ways=True,
    ),
    OnPurpose(
        "whether a config is the default, in version 0",
        "To version 0 of DescribeConfigs, Kafka 3.9.1 says of no topic config that it is the default.",
        lambda found: found.peer == "3.9.1" and found.field.endswith("/is_default") and found.version == 0,
    ),
    OnPurpose(
        "commit to a group that is not there",
        "With a generation, Kafka 4 says that the group or member is unknown, 3.9.1 that the generation is.",
        lambda found: (
            found.peer == "3.9.1"
            and found.api == "OffsetCommit"
            and found.ours in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_MEMBER_ID)
            and found.theirs == ErrorCode.ILLEGAL_GENERATION
        ),
    ),
    OnPurpose(
        "assignments to nobody",
        "Kafka 3.9.1 makes topics whose replicas are on no broker, and waits for a leader; Kafka 4 refuses them.",
        lambda found: (
            found.peer == "3.9.1" and found.api == "CreateTopics" and "'assignments'" in str(found.step["request"])
        ),
        parts_ways=True,
    ),
    OnPurpose(
        "fetching from zstd topics in old versions",
        "Before version 10, Kafka 3.9.1 refuses to read from topics with compression.type=zstd; Kafka 4 does not.",
        lambda found: (
            found.peer == "3.9.1"
            and found.api == "Fetch"
            and found.version < 10
            and found.theirs == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        ),
        parts_ways=True,
    ),
    OnPurpose(
        "spelling of config values",
        "Kafka 3.9.1 answers CreateTopics with values as it understood them; Kafka 4 with those that were sent.",
        lambda found: (
            found.peer == "3.9.1"
            and found.api == "CreateTopics"
            and found.field.endswith("/value")
            and str(found.ours).strip().lower() == found.theirs
        ),
    ),
    OnPurpose(
        "assignments while a group rebalances",
        "DescribeGroups of Kafka 3.9.1 shows assignments of stable groups only; Kafka 4 shows them always.",
        lambda found: found.peer == "3.9.1" and found.field.endswith("/member_assignment") and found.theirs == "",
    ),
    OnPurpose(
        "configs of impossible topics",
        "Kafka 4 says that the name of the topic is invalid, 3.9.1 that there is no such topic or config.",
        lambda found: (
            found.peer == "3.9.1"
            and found.api in ("AlterConfigs", "IncrementalAlterConfigs")
            and found.ours == ErrorCode.INVALID_TOPIC_EXCEPTION
            and found.theirs in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_CONFIG)
        ),
    ),
    OnPurpose(
        "deleting neither a name nor an id",
        "Kafka 4 says that the request is invalid, 3.9.1 that the client may not delete the topic.",
        lambda found: (
            found.peer == "3.9.1"
            and found.api == "DeleteTopics"
            and (found.ours, found.theirs) == (ErrorCode.INVALID_REQUEST, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        ),
    ),
    OnPurpose(
        "default of message.timestamp.after.max.ms",
        "Kafka 4 changed the default to an hour; Ottla has that of 3.9.1.",
        lambda found: (
            found.peer == "4.3.1"
            and "/message.timestamp.after.max.ms/synonyms" in found.path
            and (found.ours, found.theirs) == (str(2**63 - 1), "3600000")
        ),
    ),
    OnPurpose(
        "offsets of records",
        "Kafka takes uncompressed batches whose records do not have offsets in sequence; Ottla refuses them.",
        lambda found: (
            (_is_refused_here(found) or found.field.endswith("/record_errors"))
            and found.api == "Produce"
            and _has_damage(found, "offset deltas")
        ),
        parts_ways=True,
    ),
    OnPurpose(
        "leader after a leader left",
        "Kafka makes any of the other members the leader, by the hash of its id; Ottla the one that joined first.",
        lambda found: (
            found.field == "leader"
            and any(step.get("api") == "LeaveGroup" for step in found.steps)
            and found.ours != found.theirs
            and "" not in (found.ours, found.theirs)
        ),
        parts_ways=True,
    ),
    OnPurpose(
        "segments that refused batches begin",
        "Kafka begins a new segment for a batch before it checks its sequence, and a fetch ends with a segment.",
        lambda found: (
            found.api == "Fetch"
            and found.field.startswith("responses/partitions/records")
            and any("'segment." in str(step.get("request")) for step in found.steps)
            and any("'pid'" in str(step.get("request")) for step in found.steps)
        ),
    ),
    OnPurpose(
        "producers that set LogAppendTime, recompressed",
        "Kafka then gives every record the newest time of the batch; Ottla leaves each its own.",
        lambda found: (
            found.api in ("Fetch", "ListOffsets")
            and _recompresses(found)
            and any("'log append time'" in str(step.get("request")) for step in found.steps)
        ),
    ),
    OnPurpose(
        "half a batch after a batch",
        "Kafka drops what follows a batch and is not a whole one; Ottla refuses it.",
        lambda found: _is_refused_here(found) and _has_several_batches(found),
        parts_ways=True,
    ),
    OnPurpose(
        "offsets by time after records were deleted",
        "Kafka looks in one segment, and finds nothing if all its records that are new enough were deleted.",
        lambda found: (
            found.api == "ListOffsets"
            and found.theirs == -1
            and any(step.get("api") == "DeleteRecords" for step in found.steps)
        ),
    ),
    OnPurpose(
        "a producer id without an epoch",
        "Kafka takes such a batch unless it compresses it again or knows the producer; Ottla refuses it always.",
        lambda found: (
            (_is_refused_here(found) or found.field.endswith("/record_errors"))
            and found.api == "Produce"
            and any("pid" in each and each.get("epoch", -1) < 0 for each in _sent_batches(found))
        ),
        parts_ways=True,
    ),
    OnPurpose(
        "bytes after compressed records",
        "Kafka does not look at what follows the end of a compressed stream; Ottla refuses it.",
        lambda found: _is_refused_here(found) and _has_damage(found, "trailing"),
        parts_ways=True,
    ),
    OnPurpose(
        "one bad partition",
        "A batch of an unknown format or codec makes Kafka refuse the whole request first; Ottla refuses that batch.",
        lambda found: (
            found.api == "Produce"
            and found.theirs in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR)
            and (_has_damage(found, "magic 3") or _has_damage(found, "codec 5"))
        ),
        parts_ways=True,
    ),
    OnPurpose(
        "one bad partition, without an answer",
        "What only one of the brokers refuses, as above, but with acks=0: the logs differ from then on.",
        _follows_a_bad_format,
        parts_ways=True,
    ),
    OnPurpose(
        "the group without a name",
        "All dialogues share it, so what is in it depends on the others that are played at the same time.",
        lambda found: found.step.get("request", {}).get("group_id") == "",
    ),
    OnPurpose(
        "topic configs that take a moment",
        "The logs of Kafka 3.9.1 hear of changed configs from ZooKeeper, after the request was answered.",
        lambda found: (
            found.peer == "3.9.1"
            and found.api == "Produce"
            and any(step.get("api") in ("AlterConfigs", "IncrementalAlterConfigs") for step in found.steps)
            and found.field.endswith("/log_append_time_ms")
        ),
        parts_ways=True,
    ),
    OnPurpose(
        "topics named twice",
        "Kafka 4 answers once for a topic that a request names twice, 3.9.1 as often as it is named.",
        lambda found: (
            found.peer == "3.9.1"
            and found.api in ("CreateTopics", "DeleteTopics")
            and found.field in ("topics", "responses")
        ),
        parts_ways=True,
    ),
    OnPurpose(
        "id of a topic deleted by name",
        "Kafka 4 tells it, 3.9.1 does not.",
        lambda found: (
            found.peer == "3.9.1"
            and found.api == "DeleteTopics"
            and found.field.endswith("topic_id")
            and found.theirs == "$id:zero"
        ),
    ),
    OnPurpose(
        "id of a topic that is only validated",
        "Kafka 4 answers an id that no topic will have; Ottla gives none.",
        lambda found: (
            found.api == "CreateTopics"
            and found.field.endswith("topic_id")
            and (found.ours, found.theirs) == ("$id:zero", "$id:?")
            and bool(found.step["request"].get("validate_only"))
        ),
    ),
)


class Explanations:
    """Finds the reason for a difference, and counts which were needed. Shared by threads: counting only adds."""

    def __init__(self, entries: tuple[OnPurpose, ...]) -> None:
        self._entries = entries
        self.used: Counter[str] = Counter()

    def __call__(self, difference: Difference) -> OnPurpose | None:
        for entry in self._entries:
            if entry.applies(difference):
                self.used[entry.name] += 1
                return entry
        return None

    def unused(self) -> list[OnPurpose]:
        return [entry for entry in self._entries if entry.name not in self.used]
