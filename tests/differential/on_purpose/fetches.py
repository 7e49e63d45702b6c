"""Differences in what is read from logs."""

from __future__ import annotations

from typing import Any, Final

from differential.comparison import Difference
from differential.on_purpose.entry import OnPurpose
from differential.on_purpose.places import (
    Place,
    deleted_records_here,
    place,
    sent_before,
    setting_here,
    settings,
    structs,
    topic_key,
)
from ottla.base.error_codes import ErrorCode

_RECORDS: Final = "responses/partitions/records"
_SIZES: Final = (f"{_RECORDS}/bytes", f"{_RECORDS}/torn_bytes")


def _records(found: Difference, tree: Any) -> dict[str, Any]:
    """Those of the partition, in one of the answers."""
    for struct in structs(found, tree):
        records = struct.get("records")
        if isinstance(records, dict):
            return records
    return {}


def _is_recompressed(found: Difference) -> bool:
    """The topic has had a codec of its own."""
    return bool(setting_here(found, "compression.type") - {"producer"})


def _fetches_recompressed(found: Difference) -> bool:
    """From any topic with a codec of its own."""
    topics = {topic_key(each.get("topic") or each["topic_id"]) for each in found.our_tree["responses"]}
    return any(settings(found, topic).get("compression.type", set()) - {"producer"} for topic in topics)


def _ends_elsewhere(found: Difference) -> bool:
    """The same batches in both answers, apart from their sizes, but perhaps more of them in one."""
    ours, theirs = (
        [_compared(batch, stamped=_is_stamped(found)) for batch in _records(found, tree).get("batches", [])]
        for tree in (found.our_tree, found.their_tree)
    )
    common = min(len(ours), len(theirs))
    return ours[:common] == theirs[:common]


def _compared(batch: dict[str, Any], *, stamped: bool) -> dict[str, Any]:
    """Without its size and, if producers set LogAppendTime, the times of its records."""
    left_out = ("bytes", "base_timestamp") if stamped else ("bytes",)
    compared = {key: value for key, value in batch.items() if key not in left_out}
    if stamped and isinstance(batch["records"], list):
        compared["records"] = [[offset, *rest] for offset, _, *rest in batch["records"]]
    return compared


def _is_stamped(found: Difference) -> bool:
    """Producers set LogAppendTime, which is the broker's to set, and the batches were compressed again."""
    return _is_recompressed(found) and any(batch.get("damage") == "log append time" for batch in sent_before(found))


def _answered(tree: dict[str, Any]) -> set[Place]:
    """The partitions that an answer to a fetch tells of."""
    return {
        Place(topic_key(topic.get("topic") or topic["topic_id"]), each["partition_index"])
        for topic in tree["responses"]
        for each in topic["partitions"]
    }


def _is_left_out(found: Difference) -> bool:
    """A fetch in a session does not tell of partitions of which nothing fitted."""
    only_one = _answered(found.our_tree) ^ _answered(found.their_tree)
    return (
        found.request.get("session_epoch", -1) > 0
        and bool(only_one)
        and all(settings(found, each.topic).get("compression.type", set()) - {"producer"} for each in only_one)
    )


def _has_enough(found: Difference, tree: dict[str, Any]) -> bool:
    """Whether an answer has the bytes that the request waits for."""
    partitions = (each for topic in tree["responses"] for each in topic["partitions"])
    size = sum(records["bytes"] for each in partitions if isinstance(records := each.get("records"), dict))
    return bool(size >= found.request["min_bytes"])


def _is_size_of_recompressed(found: Difference) -> bool:
    if found.api == "Fetch" and found.field == "waited":
        is_enough = _has_enough(found, found.our_tree)
        return is_enough != _has_enough(found, found.their_tree) and _fetches_recompressed(found)
    if found.api == "Fetch" and found.field in ("responses", "responses/partitions"):
        return _is_left_out(found)
    if found.api == "Fetch" and found.field == "responses/partitions/aborted_transactions":
        # Kafka lists none, or says nothing of them, depending on whether a few bytes are left for the partition.
        return not found.ours and not found.theirs and found.ours != found.theirs and _fetches_recompressed(found)
    if found.api != "Fetch" or not found.field.startswith(_RECORDS):
        return False
    if found.field == f"{_RECORDS}/batches/bytes":
        return _is_recompressed(found)
    return found.field in (*_SIZES, f"{_RECORDS}/batches") and _fetches_recompressed(found) and _ends_elsewhere(found)


def _is_other_segment(found: Difference) -> bool:
    return (
        found.api == "Fetch"
        and found.field in (*_SIZES, f"{_RECORDS}/batches")
        and bool(setting_here(found, "segment.bytes", "segment.index.bytes", "segment.ms"))
        and any("pid" in batch for batch in sent_before(found))
        and _ends_elsewhere(found)
    )


_LOOKED_UP: Final = (*(f"topics/partitions/{name}" for name in ("offset", "timestamp", "leader_epoch")),)
_TIMES: Final = (f"{_RECORDS}/batches/base_timestamp", f"{_RECORDS}/batches/records", *_LOOKED_UP)


def _asked_time(found: Difference) -> int | str | None:
    """That a request for offsets gives for the partition."""
    here = place(found)
    for topic in found.request["topics"]:
        for each in topic["partitions"]:
            if Place(topic_key(topic["name"]), each["partition_index"]) == here:
                time: int | str = each["timestamp"]
                return time
    return None


ENTRIES: Final[tuple[OnPurpose, ...]] = (
    OnPurpose(
        "sizes of recompressed batches",
        "Compressors differ in what they make of the same records, and so where a fetch by size ends.",
        _is_size_of_recompressed,
    ),
    OnPurpose(
        "segments that refused batches begin",
        "Kafka begins a new segment for a batch before it checks its sequence, and a fetch ends with a segment.",
        _is_other_segment,
    ),
    OnPurpose(
        "producers that set LogAppendTime, recompressed",
        "Kafka then gives every record the newest time of the batch; Ottla leaves each its own.",
        lambda found: found.field in _TIMES and _is_stamped(found),
    ),
    OnPurpose(
        "fetching from zstd topics in old versions",
        "Before version 10, Kafka 3.9.1 refuses to read from topics with compression.type=zstd; Kafka 4 does not.",
        lambda found: (
            found.peer == "3.9.1"
            and found.api == "Fetch"
            and found.version < 10
            and found.field == "responses/partitions/error_code"
            and found.theirs == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            and "zstd" in setting_here(found, "compression.type")
        ),
        parts_ways=True,
    ),
    OnPurpose(
        "offsets by time after records were deleted",
        "Kafka looks in one segment, and finds nothing if all its records that are new enough were deleted.",
        lambda found: (
            found.api == "ListOffsets"
            and found.field in _LOOKED_UP
            and found.theirs == -1
            and isinstance(_asked_time(found), str)
            and deleted_records_here(found)
        ),
    ),
)
