"""DeleteTopics (20): delete topics with all their records.

TOPIC_DELETION_DISABLED since v3 (KIP-322), error messages and THROTTLING_QUOTA_EXCEEDED since v5 (KIP-599), topics by
id as well as by name since v6 (KIP-516).
"""

from __future__ import annotations

from ottla.base.ids import Uuid
from ottla.wire.schema import STRING, Request, Response, Struct, array, int16, int32, string, uuid


class DeletableTopic(Struct):
    """Named, or with its id and no name."""

    name: str | None = string(nullable="0+", default=None)
    topic_id: Uuid = uuid()


class DeleteTopicsRequest(Request, api_key=20, versions="0-6", flexible="4+"):
    topics: list[DeletableTopic] = array(DeletableTopic, "6+")
    topic_names: list[str] = array(STRING, "0-5", ignorable=True)
    timeout_ms: int = int32()


class DeletedTopic(Struct):
    name: str | None = string(key=True, nullable="6+")
    topic_id: Uuid = uuid("6+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)


class DeleteTopicsResponse(Response, api_key=20, versions="0-6", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: list[DeletedTopic] = array(DeletedTopic)
