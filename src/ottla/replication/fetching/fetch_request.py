"""Builds a follower's Fetch requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.base.ids import ZERO_UUID, Uuid
from ottla.replication.fetching.fetch_session import FollowerSession
from ottla.replication.fetching.followed import Followed
from ottla.replication.fetching.settings import FetchSettings
from ottla.wire.messages.fetch import FetchPartition, FetchReplicaState, FetchRequest, FetchTopic, ForgottenTopic

TRUNCATION_SINCE: Final = 12
"""The version in which a leader answers where the logs part (KIP-595)."""
TOPIC_IDS_SINCE: Final = 13
_BROKER_EPOCH_SINCE: Final = 15

Key = tuple[str | Uuid, int]
"""A partition in a fetch session: topic id, or name with old leaders and topics without id; and number."""


def fetch_request(
    broker_id: int,
    broker_epoch: int,
    version: int,
    session: FollowerSession,
    settings: FetchSettings,
    *,
    max_wait_ms: int,
    asked: Iterable[tuple[str | Uuid, Followed]],
    forgotten: Iterable[Key],
) -> FetchRequest:
    """The request of the session. `asked`: new and changed partitions, with the topic part of their key, for which
    `sent` is set."""
    by_id = version >= TOPIC_IDS_SINCE
    truncates = version >= TRUNCATION_SINCE
    max_bytes = settings.max_bytes
    topics: dict[str | Uuid, FetchTopic] = {}
    for topic_key, followed in asked:
        sent = followed.sent
        if sent is None:
            continue
        topic = topics.get(topic_key)
        if topic is None:
            topic = topics[topic_key] = FetchTopic(topic=followed.name.topic, topic_id=followed.topic_id)
        topic.partitions.append(
            FetchPartition(
                partition=followed.name.partition,
                current_leader_epoch=followed.leader_epoch,
                fetch_offset=sent.offset,
                last_fetched_epoch=sent.last_fetched_epoch if truncates else -1,
                log_start_offset=sent.log_start,
                partition_max_bytes=max_bytes,
            )
        )
    removed: dict[str | Uuid, ForgottenTopic] = {}
    for topic_key, index in forgotten:
        gone = removed.get(topic_key)
        if gone is None:
            gone = removed[topic_key] = ForgottenTopic(
                topic="" if isinstance(topic_key, bytes) else topic_key,
                topic_id=Uuid(topic_key) if isinstance(topic_key, bytes) and by_id else ZERO_UUID,
            )
        gone.partitions.append(index)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=settings.min_bytes,
        max_bytes=settings.response_max_bytes,
        session_id=session.session_id,
        session_epoch=session.epoch,
        topics=list(topics.values()),
        forgotten_topics_data=list(removed.values()),
    )
    if version >= _BROKER_EPOCH_SINCE:
        request.replica_state = FetchReplicaState(replica_id=broker_id, replica_epoch=broker_epoch)
    else:
        request.replica_id = broker_id
    return request
