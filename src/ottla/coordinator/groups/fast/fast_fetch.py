"""Offsets as consumers fetch them when they are assigned partitions, for one topic of one group, answered in bytes.

Without metadata every partition takes the same number of bytes, and the offset's bytes are the same in the stored value
and in the response. Any other request, and any error, is left to `offsets.fetch`, whose answers this path must match.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import lru_cache
from struct import Struct
from typing import Final

from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.groups.fast.bare_values import OFFSET_AT, OFFSET_END, is_bare
from ottla.coordinator.groups.offsets.fetch import SEVERAL_GROUPS_SINCE, TOPIC_IDS_SINCE
from ottla.coordinator.groups.offsets.store import OffsetStore
from ottla.coordinator.groups.service import GroupCoordinatorService, ServedShard
from ottla.coordinator.groups.shard import GroupShard
from ottla.wire.codec import encode
from ottla.wire.messages.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchGroupResponse,
    OffsetFetchGroupTopicResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from ottla.wire.varint import encode_unsigned

_INDEX = Struct(">i")
_NOTHING = Struct(">iqiBhx")
"""Index, offset, leader epoch, metadata, error, no tags."""
_NONE_COMMITTED: Final = -1
_EMPTY: Final = 1
"""The first byte of an empty compact string or array."""
_ROW_END: Final = bytes([_EMPTY, 0, 0, 0])
"""No metadata, no error, no tags."""
_BEHIND_ROWS: Final = bytes(5)
"""No tags of the topic, no error and no tags of the group, no tags of the response."""
_NO_ROWS: Final = bytes([_EMPTY]) + _BEHIND_ROWS


def fetch_fast(groups: GroupCoordinatorService, request: OffsetFetchRequest, version: int) -> bytes | None:
    """The body of the response; None if `GroupCoordinatorService.fetch_offsets` has to answer."""
    asked = _only_group(request, version)
    if asked is None:
        return None

    def fetch(shard: ServedShard) -> bytes | None:
        return _fetch(shard, shard.offsets, asked, version, require_stable=request.require_stable)

    try:
        answer = groups.runtime.read_now(asked.group_id, fetch)
    except CoordinatorError:
        return None
    if isinstance(answer, Coroutine):  # it has to wait
        answer.close()
        return None
    return answer


def _only_group(request: OffsetFetchRequest, version: int) -> OffsetFetchGroup | None:
    """The group of the request, if the request is for one topic of one group."""
    if version < SEVERAL_GROUPS_SINCE or len(request.groups) != 1:
        return None
    group = request.groups[0]
    return group if group.topics is not None and len(group.topics) == 1 else None


def _fetch(
    shard: GroupShard, offsets: OffsetStore, asked: OffsetFetchGroup, version: int, *, require_stable: bool
) -> bytes | None:
    """The body of the response, or None. Raises `CoordinatorError` if the member may not fetch."""
    assert asked.topics is not None
    (topic,) = asked.topics
    group = shard.groups.get(asked.group_id)
    if group is not None:
        group.check_fetch(asked.member_id, asked.member_epoch)
    name = topic.name if version < TOPIC_IDS_SINCE else shard.topics.topic_name(topic.topic_id)
    if name is None or (require_stable and offsets.has_transactions(asked.group_id)):
        return None
    stored = offsets.topics_of(asked.group_id).get(name) if group is not None else None
    indexes = topic.partition_indexes
    if stored is None:
        rows = b"".join(map(_nothing, indexes))
    else:
        parts: list[bytes] = []
        for index in indexes:
            value = stored.values.get(index)
            if value is None:
                parts.append(_nothing(index))
            elif is_bare(value):
                parts += (_INDEX.pack(index), value[OFFSET_AT:OFFSET_END], _ROW_END)
            else:
                return None
        rows = b"".join(parts)
    answer = OffsetFetchGroupTopicResponse(name=name, topic_id=topic.topic_id, partitions=[])
    body = encode(
        OffsetFetchResponse(groups=[OffsetFetchGroupResponse(group_id=asked.group_id, topics=[answer])]), version
    )
    assert body.endswith(_NO_ROWS)
    return b"".join((body[: -len(_NO_ROWS)], encode_unsigned(len(indexes) + 1), rows, _BEHIND_ROWS))


@lru_cache(16_384)
def _nothing(index: int) -> bytes:
    return _NOTHING.pack(index, _NONE_COMMITTED, _NONE_COMMITTED, _EMPTY, 0)
