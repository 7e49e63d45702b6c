"""Metadata (3): the brokers, and the leaders and replicas of partitions.

Every client sends this often, and most topics have not changed. So the response for a topic is built once, and again
when its `TopicState` is replaced.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID
from ottla.base.operations import NOT_ASKED
from ottla.broker.handlers import handles
from ottla.broker.metadata.automatic_topics import NEW_TOPIC_WAIT_S, automatic_topic
from ottla.broker.metadata.availability import leader_of, offline_replicas
from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.broker.requests.api import RequestContext
from ottla.broker.requests.authorized_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from ottla.controller.errors import ControllerError
from ottla.controller.state import NO_LEADER, UNKNOWN_PARTITION, PartitionState, TopicState
from ottla.controller.topic_names import fault_of_name, is_internal
from ottla.wire.messages.metadata import (
    MetadataBroker,
    MetadataPartitionResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataTopicResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_LISTENER_NOT_FOUND_SINCE: Final = 6
"""Older versions show a leader without the client's listener as not available."""


@handles(MetadataRequest)
def metadata(
    broker: Broker, request: MetadataRequest, context: RequestContext
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    if not broker.metadata.is_complete and not broker.metadata.knows(_names_in(request, context)):
        return _when_known(broker, request, context)
    return _answer(broker, request, context)


def _names_in(request: MetadataRequest, context: RequestContext) -> list[str] | None:
    """None for all topics, and for those that are asked for by id."""
    if request.topics is None or (context.version == 0 and not request.topics):
        return None
    names = [topic.name for topic in request.topics if topic.name is not None]
    return names if len(names) == len(request.topics) else None


async def _when_known(broker: Broker, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    await broker.metadata.until_known(_names_in(request, context))
    answer = _answer(broker, request, context)
    return answer if isinstance(answer, MetadataResponse) else await answer


def _answer(
    broker: Broker, request: MetadataRequest, context: RequestContext
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    cache = broker.metadata
    if request.topics is None or (context.version == 0 and not request.topics):
        return _response(cache, request, context, _known(cache, cache.topics.values(), context))
    if any(topic.name is None or topic.topic_id != ZERO_UUID for topic in request.topics):
        return _response(cache, request, context, _by_id(cache, request, context))
    names = list(dict.fromkeys(topic.name or "" for topic in request.topics))
    topics = cache.topics
    if all(name in topics for name in names):
        return _response(cache, request, context, _known(cache, [topics[name] for name in names], context))
    if request.allow_auto_topic_creation and broker.config["auto.create.topics.enable"]:
        return _create_missing(broker, request, context, names)
    return _response(cache, request, context, _by_name(cache, names, context, {}))


async def _create_missing(
    broker: Broker, request: MetadataRequest, context: RequestContext, names: Sequence[str]
) -> MetadataResponse:
    cache = broker.metadata
    missing = [name for name in names if name not in cache.topics and fault_of_name(name) is None]
    wanted = [automatic_topic(name, broker.config, len(cache.brokers)) for name in missing]
    try:
        who = f"{context.client_id or 'a client'} at {context.client_host}"
        reason = f"automatically, because {who} asked for it: auto.create.topics.enable"
        outcomes = await broker.controller.auto_create_topics(wanted, reason)
    except ControllerError as error:
        refusals = dict.fromkeys(missing, error.code)
    else:
        refusals = {
            name: outcome.code
            for name, outcome in zip(missing, outcomes, strict=True)
            # Another request created it first, or it is still being deleted: the client cannot fix either.
            if isinstance(outcome, ControllerError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS
        }
        made = [name for name in missing if name not in refusals]
        await cache.until(lambda: all(map(cache.has_leaders, made)) or None, NEW_TOPIC_WAIT_S)
    return _response(cache, request, context, _by_name(cache, names, context, refusals))


def _response(
    cache: MetadataCache, request: MetadataRequest, context: RequestContext, topics: list[MetadataTopicResponse]
) -> MetadataResponse:
    if request.include_topic_authorized_operations:
        topics = [_with_operations(topic) for topic in topics]
    return MetadataResponse(
        brokers=[
            MetadataBroker(node_id=endpoint.broker_id, host=endpoint.host, port=endpoint.port, rack=endpoint.rack)
            for endpoint in cache.brokers_of(context.listener).values()
        ],
        cluster_id=cache.cluster_id,
        controller_id=cache.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _with_operations(topic: MetadataTopicResponse) -> MetadataTopicResponse:
    """A copy: the given struct may be shared with other responses."""
    return MetadataTopicResponse(
        error_code=topic.error_code,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=topic.partitions,
        topic_authorized_operations=TOPIC_OPERATIONS if topic.name is not None else NOT_ASKED,
    )


def _by_name(
    cache: MetadataCache, names: Iterable[str], context: RequestContext, refusals: dict[str, ErrorCode]
) -> list[MetadataTopicResponse]:
    topics = cache.topics
    return [
        *_known(cache, [topics[name] for name in names if name in topics], context),
        *(
            MetadataTopicResponse(error_code=_error_of(cache, name, refusals), name=name, is_internal=is_internal(name))
            for name in names
            if name not in topics
        ),
    ]


def _error_of(cache: MetadataCache, name: str, refusals: dict[str, ErrorCode]) -> ErrorCode:
    if fault_of_name(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if cache.is_expected(name):
        return ErrorCode.LEADER_NOT_AVAILABLE
    return refusals.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _by_id(cache: MetadataCache, request: MetadataRequest, context: RequestContext) -> list[MetadataTopicResponse]:
    """If one topic is requested by id, all must be. Versions 10 and 11 have the field, but must not use it."""
    version = context.version
    asked = request.topics or []
    ids = list(dict.fromkeys(topic.topic_id for topic in asked if topic.topic_id != ZERO_UUID))
    if version < 12 or not ids:
        return [
            MetadataTopicResponse(
                error_code=ErrorCode.INVALID_REQUEST,
                name=topic.name or (None if version >= 12 else ""),
                topic_id=topic.topic_id,
            )
            for topic in asked
        ]
    found = {topic_id: cache.topic(cache.name_of(topic_id) or "") for topic_id in ids}
    return [
        *(
            MetadataTopicResponse(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
            for topic_id, topic in found.items()
            if topic is None
        ),
        *_known(cache, [topic for topic in found.values() if topic is not None], context),
    ]


# --- topics that exist ----------------------------------------------------------------------------------------------


class _MadeAnswers:
    """A cache of the responses for topics that were requested. Valid for one set of brokers."""

    __slots__ = ("by_name", "live", "reachable")

    def __init__(self, live: frozenset[int], reachable: frozenset[int]) -> None:
        self.live = live
        self.reachable = reachable
        """Those that have the client's listener."""
        self.by_name: dict[str, tuple[TopicState, MetadataTopicResponse]] = {}

    def forget_deleted(self, cache: MetadataCache) -> None:
        self.by_name = {name: made for name, made in self.by_name.items() if name in cache.topics}


_made_answers: WeakKeyDictionary[MetadataCache, dict[str, _MadeAnswers]] = WeakKeyDictionary()
"""By listener."""


def _known(cache: MetadataCache, topics: Iterable[TopicState], context: RequestContext) -> list[MetadataTopicResponse]:
    live, reachable = frozenset(cache.brokers), frozenset(cache.brokers_of(context.listener))
    if context.version < _LISTENER_NOT_FOUND_SINCE:
        live = reachable
    if context.version == 0:
        return [_topic(topic, live, reachable, only_live=True) for topic in topics]
    by_listener = _made_answers.setdefault(cache, {})
    made = by_listener.get(context.listener)
    if made is None or made.reachable != reachable or made.live != live:
        made = by_listener[context.listener] = _MadeAnswers(live, reachable)
    by_name = made.by_name
    answers = []
    for topic in topics:
        if cache.is_expected(topic.name):
            answers.append(_with_missing(_topic(topic, live, reachable), cache.expected_of(topic.name)))
            continue
        known = by_name.get(topic.name)
        if known is None or known[0] is not topic:
            known = by_name[topic.name] = topic, _topic(topic, live, reachable)
        answers.append(known[1])
    if len(by_name) > 2 * len(cache.topics):
        made.forget_deleted(cache)
    return answers


def _topic(
    topic: TopicState, live: frozenset[int], reachable: frozenset[int], *, only_live: bool = False
) -> MetadataTopicResponse:
    return MetadataTopicResponse(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[
            _partition(index, partition, live, reachable, only_live=only_live)
            for index, partition in enumerate(topic.partitions)
            if partition is not UNKNOWN_PARTITION
        ],
    )


def _with_missing(topic: MetadataTopicResponse, missing: Iterable[int]) -> MetadataTopicResponse:
    """With partitions that exist, but that the controller has not told this broker of yet. Clients would take a topic
    with fewer partitions for another one: producers would send keys elsewhere, groups would rebalance."""
    named = {partition.partition_index for partition in topic.partitions}
    topic.partitions += [
        MetadataPartitionResponse(
            error_code=ErrorCode.LEADER_NOT_AVAILABLE, partition_index=index, leader_id=NO_LEADER, leader_epoch=-1
        )
        for index in missing
        if index not in named
    ]
    topic.partitions.sort(key=lambda partition: partition.partition_index)
    return topic


def _partition(
    index: int, partition: PartitionState, live: frozenset[int], reachable: frozenset[int], *, only_live: bool
) -> MetadataPartitionResponse:
    """With `only_live`, for version 0, unavailable replicas are omitted, with an error code."""
    leader = leader_of(partition, reachable)
    replicas, isr = list(partition.replicas), list(partition.isr)
    error = ErrorCode.NONE
    if only_live and not reachable.issuperset(replicas):
        replicas = [replica for replica in replicas if replica in reachable]
        isr = [replica for replica in isr if replica in reachable]
        error = ErrorCode.REPLICA_NOT_AVAILABLE
    if leader == NO_LEADER:
        is_live = partition.leader in live
        error = ErrorCode.LISTENER_NOT_FOUND if is_live else ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataPartitionResponse(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline_replicas(partition, live),
    )
