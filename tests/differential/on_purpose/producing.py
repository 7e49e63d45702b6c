"""Differences in what becomes of records that are sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from differential.comparison import Difference
from differential.on_purpose.entry import OnPurpose
from differential.on_purpose.places import Batch, asked_before, innermost, place, produced, sent_here, topic_key
from ottla.base.error_codes import ErrorCode

_PARTITION: Final = "responses/partition_responses"
_ERROR: Final = f"{_PARTITION}/error_code"
_LOG_END: Final = "log_ends/end"
_MADE_LATER: Final = (
    ErrorCode.NONE,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
"""What Kafka answers to a batch whose form it has accepted."""
_FOR_ALL: Final = ("magic 3", "codec 5")
"""Damages for which Kafka refuses the whole request."""
_NO_PARTITION: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_REFUSED_FOR: Final[dict[object, tuple[str, ...]]] = {
    ErrorCode.MESSAGE_TOO_LARGE: ("max.message.bytes",),
    ErrorCode.INVALID_RECORD: ("cleanup.policy",),
    ErrorCode.INVALID_TIMESTAMP: ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"),
}
"""The configs that a refusal may be due to."""
_NAMELESS: Final = ("payload", "record attributes", "codec 5", "offset deltas", "trailing")
"""Damages that Kafka does not expect."""


def _is_refused_here(found: Difference, is_such: Callable[[Batch], bool]) -> bool:
    """Whether Ottla refuses a batch of this sort, and Kafka does not mind what it is refused for. With acks=0, a
    refusal closes the connection, and shows in the end of the log."""
    if found.field == _ERROR:
        return (
            found.ours == ErrorCode.INVALID_RECORD
            and found.theirs in _MADE_LATER
            and any(is_such(batch) for batch in sent_here(found))
        )
    if found.field == f"{_PARTITION}/record_errors":  # both refuse it, and Kafka for some of its records
        return found.ours == [] and any(is_such(batch) for batch in sent_here(found))
    if found.path == "connection":
        return (found.ours, found.theirs) == ("closed", "open") and any(
            is_such(batch) for _, batches in produced(found.step) for batch in batches or ()
        )
    return found.field == _LOG_END and found.ours < found.theirs and any(is_such(batch) for batch in sent_here(found))


def _has_no_epoch(batch: Batch) -> bool:
    return "pid" in batch and batch.get("epoch", -1) < 0


def _is_half_after_whole(found: Difference) -> bool:
    sent = [batches for _, batches in produced(found.step) if batches and len(batches) > 1]
    halves = [batches[-1] for batches in sent if _is_half(batches[-1])]
    return _is_refused_here(found, lambda batch: any(batch is half for half in halves))


def _is_half(batch: Batch) -> bool:
    return batch.get("damage") in ("cut", "length more")


def _is_nameless(found: Difference) -> bool:
    return (
        found.field == _ERROR
        and (found.ours, found.theirs) == (ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR)
        and any(batch.get("damage") in _NAMELESS or _has_no_epoch(batch) for batch in sent_here(found))
    )


def _is_refused_for_another(found: Difference) -> bool:
    """This partition's batch is not the one for which Kafka refuses the request, or its partition is not there."""
    others = [batch for _, batches in produced(found.step) for batch in batches or ()]
    here = () if found.field == _ERROR and found.ours in _NO_PARTITION else sent_here(found)
    if not any(batch.get("damage") in _FOR_ALL and batch not in here for batch in others):
        return False
    if found.field == _ERROR:
        return found.theirs in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR)
    return found.field == _LOG_END and bool(found.ours > found.theirs)


def _has_two_faults(found: Difference) -> bool:
    """One of several batches has an unknown format: they are too many, too, and may be too large."""
    sent = sent_here(found)
    return (
        found.field == _ERROR
        and found.ours in (ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)
        and found.theirs == ErrorCode.CORRUPT_MESSAGE
        and len(sent) > 1
        and any(batch.get("damage") in _FOR_ALL for batch in sent)
    )


def _has_wrong_acks(found: Difference) -> bool:
    """Neither 0, 1 nor -1, and a batch of an unknown format besides."""
    return (
        found.field == _ERROR
        and found.ours == ErrorCode.INVALID_REQUIRED_ACKS
        and found.theirs in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR)
        and found.request.get("acks") not in (0, 1, -1)
        and any(batch.get("damage") in _FOR_ALL for _, batches in produced(found.step) for batch in batches or ())
    )


def _has_null_records(found: Difference) -> bool:
    return any(batches is None for _, batches in produced(found.step))


def _is_before_news_of_config(found: Difference) -> bool:
    if found.peer != "3.9.1":
        return False
    if found.field == _ERROR:
        refused = found.ours if found.theirs == ErrorCode.NONE else found.theirs
        return refused in _REFUSED_FOR and any(_has_changed(found, name) for name in _REFUSED_FOR[refused])
    return found.field == f"{_PARTITION}/log_append_time_ms" and _has_changed(found, "message.timestamp.type")


def _has_changed(found: Difference, name: str) -> bool:
    """Whether the dialogue has changed this config of a topic that this request writes to."""
    topics = {where.topic for where, _ in produced(found.step)}
    return any(
        topic_key(resource["resource_name"]) in topics
        and (
            exchange.api == "AlterConfigs"  # what it does not name goes back to its default
            or any(config["name"] == name for config in resource["configs"])
        )
        for exchange in asked_before(found, "AlterConfigs", "IncrementalAlterConfigs")
        for resource in exchange.request["resources"]
    )


def _is_known_after_restart(found: Difference) -> bool:
    """One of a producer's last batches comes again after a restart."""
    if not found.field.startswith(f"{_PARTITION}/"):
        return False
    ours, theirs = (innermost(found, tree).get("error_code") for tree in (found.our_tree, found.their_tree))
    if (ours, theirs) != (ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        return False
    restarts = [at for at, exchange in enumerate(found.history) if "restart" in exchange.step]
    here, batches = place(found), sent_here(found)
    return bool(restarts and batches) and any(
        _numbers(batches[0]) == _numbers(batch)
        for exchange in found.history[: restarts[-1]]
        for where, sent in produced(exchange.step)
        if where == here
        for batch in sent or ()
    )


def _numbers(batch: Batch) -> tuple[object, ...]:
    return batch.get("pid"), batch.get("epoch"), batch.get("seq")


ENTRIES: Final[tuple[OnPurpose, ...]] = (
    OnPurpose(
        "a batch that comes again after a restart",
        "Kafka's snapshots have only the last batch of a producer, and it refuses an earlier one that comes again "
        "after a restart; Ottla finds it in the log.",
        _is_known_after_restart,
    ),
    OnPurpose(
        "no answer to null records",
        "Kafka leaves a Produce request with null records unanswered; Ottla refuses it.",
        lambda found: found.path in ("", "connection") and found.theirs == "timeout" and _has_null_records(found),
        parts_ways=True,
    ),
    OnPurpose(
        "a name for the error",
        "Where Kafka fails with UNKNOWN_SERVER_ERROR, because an exception was not expected, Ottla says that the "
        "batch is invalid.",
        _is_nameless,
    ),
    OnPurpose(
        "log start beside a name for the error",
        "As above: with UNKNOWN_SERVER_ERROR, Kafka does not tell where the log starts.",
        lambda found: (
            found.field == f"{_PARTITION}/log_start_offset"
            and found.theirs == -1
            and innermost(found, found.their_tree).get("error_code") == ErrorCode.UNKNOWN_SERVER_ERROR
        ),
    ),
    OnPurpose(
        "one bad partition",
        "A batch of an unknown format or codec makes Kafka refuse the whole request first; Ottla refuses that batch.",
        _is_refused_for_another,
        parts_ways=True,
    ),
    OnPurpose(
        "several batches, and one of an unknown format",
        "Kafka refuses the format before anything else; Ottla refuses first that there are two, or their size.",
        _has_two_faults,
        parts_ways=True,
    ),
    OnPurpose(
        "wrong acks, and a batch of an unknown format",
        "Kafka refuses the format before anything else; Ottla refuses the acks first.",
        _has_wrong_acks,
    ),
    OnPurpose(
        "offsets of records",
        "Kafka takes uncompressed batches whose records do not have offsets in sequence; Ottla refuses them.",
        lambda found: _is_refused_here(
            found, lambda batch: batch.get("damage") == "offset deltas" and "codec" not in batch
        ),
        parts_ways=True,
    ),
    OnPurpose(
        "half a batch after a batch",
        "Kafka drops what follows a batch and is not a whole one; Ottla refuses it.",
        _is_half_after_whole,
        parts_ways=True,
    ),
    OnPurpose(
        "a producer id without an epoch",
        "Kafka takes such a batch unless it compresses it again or knows the producer; Ottla refuses it always.",
        lambda found: _is_refused_here(found, _has_no_epoch),
        parts_ways=True,
    ),
    OnPurpose(
        "bytes after compressed records",
        "Kafka does not look at what follows the end of a compressed stream; Ottla refuses it.",
        lambda found: _is_refused_here(found, lambda batch: batch.get("damage") == "trailing" and "codec" in batch),
        parts_ways=True,
    ),
    OnPurpose(
        "an append after a change of config",
        "The logs of Kafka 3.9.1 hear of changed configs from ZooKeeper, after the request was answered.",
        _is_before_news_of_config,
        parts_ways=True,
    ),
)
