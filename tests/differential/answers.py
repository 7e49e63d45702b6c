"""Answers as trees of plain values that two brokers can be compared by.

Left out is what no two brokers share (hosts, ports, throttle times, the words of errors); ids become the symbols of the
dialogue; lists in which Kafka promises no order are sorted; records are decoded.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, Final

from differential.symbols import Symbols
from ottla.records import decode_batch
from ottla.records.batch import BatchView, batch_size
from ottla.records.errors import RecordError
from ottla.records.layout import HEADER_SIZE, LENGTH_PREFIX_SIZE
from ottla.wire.schema import Kind, Response, Struct, WireType
from ottla.wire.shape import ordered_fields, tagged_fields

LEFT_OUT: Final = {
    "throttle_time_ms",
    "host",
    "port",
    "cluster_id",
    "error_message",
    "batch_index_error_message",
    "client_host",
    "documentation",
}
_TIMES: Final = {"log_append_time_ms", "timestamp", "last_timestamp"}
_LEADER_EPOCHS: Final = {"leader_epoch", "epoch"}
_GROUP_EPOCHS: Final = {"member_epoch", "group_epoch", "assignment_epoch"}
_MEMBERS: Final = {"member_id", "leader"}
_KEYS: Final = (
    "name",
    "topic",
    "topic_id",
    "group_id",
    "resource_type",
    "resource_name",
    "partition_index",
    "partition",
    "index",
    "producer_id",
    "metadata",
    "client_id",
    "member_id",
    "node_id",
)
_OF_ALL: Final = {"ListGroups": "groups", "Metadata": "topics"}
"""Lists that tell of other dialogues as well."""


def tree_of(api: str, version: int, answer: Response, symbols: Symbols) -> dict[str, Any]:
    """The answer to a request of this API."""
    kept = _OF_ALL.get(api)
    if kept is not None:
        mine = [each for each in getattr(answer, kept) if _is_mine(each, symbols)]
        setattr(answer, kept, mine)
    tree = _struct(answer, version, symbols)
    if api == "Fetch":
        tree["responses"] = _merged(tree["responses"])
    if api == "Metadata":
        # Restarts raise the epochs of topics that no dialogue knows.
        for partition in (each for topic in tree["topics"] if topic.get("is_internal") for each in topic["partitions"]):
            partition.pop("leader_epoch", None)
    return tree


def _merged(topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Kafka tells of partitions with errors in an entry of its own for their topic."""
    merged: dict[str, dict[str, Any]] = {}
    for topic in topics:
        known = merged.setdefault(topic.get("topic") or topic["topic_id"], {**topic, "partitions": []})
        known["partitions"] = _sorted(known["partitions"] + topic["partitions"])
    return list(merged.values())


def _is_mine(element: Any, symbols: Symbols) -> bool:
    if hasattr(element, "group_id"):
        return bool(element.group_id.startswith(symbols.prefix))
    name = element.name
    return name is None or name.startswith(symbols.prefix) or not name.startswith("diff-")


def _struct(value: Struct, version: int, symbols: Symbols) -> dict[str, Any]:
    cls = type(value)
    fields = (*ordered_fields(cls, version), *tagged_fields(cls, version))
    return {
        field.name: _value(field.type, field.name, getattr(value, field.name), version, symbols)
        for field in fields
        if field.name not in LEFT_OUT
    }


def _value(wire_type: WireType, name: str, value: Any, version: int, symbols: Symbols) -> Any:
    if value is None:
        return None
    kind = wire_type.kind
    if kind is Kind.STRUCT:
        return _struct(value, version, symbols)
    if kind is Kind.ARRAY:
        element = wire_type.array_element()
        values = [_value(element, name, each, version, symbols) for each in value]
        if name == "configs" and values and isinstance(values[0], dict) and "name" in values[0]:
            return {each["name"]: each for each in values}
        return _sorted(values)
    if kind is Kind.RECORDS:
        return records_tree(bytes(value), symbols)
    if kind is Kind.UUID:
        return symbols.name_topic_id(value)
    if kind is Kind.BYTES:
        return symbols.name_text(bytes(value).decode("latin-1"))
    if kind is Kind.STRING:
        return symbols.name_member(value) if name in _MEMBERS else symbols.name_text(value)
    if name in _TIMES:
        return symbols.name_time(value)
    if name in _LEADER_EPOCHS:
        return symbols.name_leader_epoch(value)
    if name in _GROUP_EPOCHS:
        return symbols.name_group_epoch(value)
    if name == "producer_id":
        return symbols.name_producer_id(value)
    if name == "session_id":
        return symbols.name_session(value)
    return value


def _sorted(elements: list[Any]) -> list[Any]:
    if elements and isinstance(elements[0], dict):
        keys = [key for key in _KEYS if key in elements[0]]
        if not keys:
            return elements
        return sorted(elements, key=lambda each: json.dumps([[each[key] for key in keys], each]))
    return sorted(elements)


# --- records ----------------------------------------------------------------------------------------------------------


def records_tree(data: bytes, symbols: Symbols) -> dict[str, Any]:
    """Whole batches, and how many bytes of another one come after them."""
    batches, position = [], 0
    while len(data) - position >= HEADER_SIZE:
        try:
            size = batch_size(data, position)
            if position + size > len(data):
                break
        except RecordError:
            break
        batches.append(_batch_tree(data[position : position + size], symbols))
        position += size
    return {"bytes": len(data), "batches": batches, "torn_bytes": len(data) - position}


def _batch_tree(data: bytes, symbols: Symbols) -> dict[str, Any]:
    view = BatchView(data)
    tree: dict[str, Any] = {
        "base_offset": view.base_offset,
        "bytes": view.length + LENGTH_PREFIX_SIZE,
        "leader_epoch": symbols.name_leader_epoch(view.leader_epoch),
        "attributes": view.attributes,
        "last_offset": view.last_offset,
        "base_timestamp": symbols.name_time(view.base_timestamp_ms),
        "max_timestamp": symbols.name_time(view.max_timestamp_ms),
        "producer_id": symbols.name_producer_id(view.producer_id),
        "producer_epoch": view.producer_epoch,
        "base_sequence": view.base_sequence,
        "count": view.record_count,
    }
    try:
        records = decode_batch(view)
    except RecordError as error:
        return {**tree, "records": type(error).__name__}
    tree["records"] = [
        [
            each.offset,
            symbols.name_time(each.timestamp_ms),
            None if each.key is None else each.key.decode("latin-1"),
            None if each.value is None else f"{len(each.value)} bytes, {zlib.crc32(each.value):08x}",
            len(each.headers),
        ]
        for each in records
    ]
    return tree
