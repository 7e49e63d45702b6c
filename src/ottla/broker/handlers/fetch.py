"""Fetch: reads batches for consumers, now or when there are enough of them (`fetching.reading`), and for followers
(`fetching.follower_reading`), on a fast path if they are in sync (`fetching.fast_follower_fetch`)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID
from ottla.broker.fetching.fast_follower_fetch import FastFollowerFetch, fetch_fast, fetch_reader
from ottla.broker.fetching.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    BrokerFetchSession,
    FetchedPartition,
    FetchSessionError,
    Key,
)
from ottla.broker.fetching.follower_reading import fetch_as_follower
from ottla.broker.fetching.reading import DelayedFetch, FetchReading
from ottla.broker.handlers import handles
from ottla.broker.requests.api import Deferred, RequestContext
from ottla.broker.requests.between_brokers import check_from_broker
from ottla.wire.messages.fetch import (
    FetchRequest,
    FetchResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


TOPIC_IDS_SINCE: Final = 13


@handles(FetchRequest, versions="4-18", reader=fetch_reader)
def fetch(
    broker: Broker, request: FetchRequest | FastFollowerFetch, context: RequestContext
) -> FetchResponse | Deferred:
    if isinstance(request, FastFollowerFetch):
        if context.listener == broker.config.inter_broker_listener:
            deferred = fetch_fast(broker, request, context)
            if deferred is not None:
                return deferred
        request = request.as_request()
    replica_id = request.replica_id if request.replica_state is None else request.replica_state.replica_id
    if replica_id >= 0:
        check_from_broker(broker, "Fetch of a follower", context)  # it moves the high watermark
        return fetch_as_follower(broker, request, context, replica_id)
    by_id = context.version >= TOPIC_IDS_SINCE
    asked = _asked(broker, request, by_id=by_id)
    session: BrokerFetchSession | None = None
    sessions = broker.fetch_sessions
    epoch = request.session_epoch
    if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        if request.session_id != NO_SESSION:
            sessions.end(request.session_id)
        if epoch == INITIAL_EPOCH:
            session = sessions.begin(by_id=by_id, partition_count=len(asked))
            if session is not None:
                session.partitions = asked
        is_incremental = False
    else:
        try:
            session = sessions.go_on(request.session_id, epoch, by_id=by_id)
        except FetchSessionError as error:
            return FetchResponse(error_code=error.code)
        if session.is_privileged:  # a follower's
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.update(asked.items(), request)
        is_incremental = True
        if not session.partitions:
            sessions.end(session.session_id)
            session = None
    reading = FetchReading(broker, request, context, session, asked, is_incremental=is_incremental)
    answers, size, is_final = reading.read()
    # Not more than the maximum, which could never be reached.
    min_bytes = min(request.min_bytes, reading.max_bytes)
    if is_final or size >= min_bytes or request.max_wait_ms <= 0:
        return reading.response(answers)
    delayed = DelayedFetch(reading, min_bytes)
    if delayed.has_enough():
        return reading.response(answers)
    fetches = broker.replicas.fetches
    fetches.wait(delayed, delayed.partitions, request.max_wait_ms / 1000)
    delayed.deferred.when_cancelled(partial(fetches.cancel, delayed))
    return delayed.deferred


def _asked(broker: Broker, request: FetchRequest, *, by_id: bool) -> dict[Key, FetchedPartition]:
    asked: dict[Key, FetchedPartition] = {}
    for topic in request.topics:
        if by_id:
            name = broker.metadata.name_of(topic.topic_id) or ""
            for partition in topic.partitions:
                asked[topic.topic_id, partition.partition] = FetchedPartition(name, topic.topic_id, partition)
        else:
            for partition in topic.partitions:
                asked[topic.topic, partition.partition] = FetchedPartition(topic.topic, ZERO_UUID, partition)
    return asked
