"""CreateTopics (19): creates topics, with counts or with replica assignments.

From version 5 on the response has the result: partitions, replicas, and all configs with their sources (KIP-525). With
`validate_only` it has what the result would be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.controller.errors import ControllerError
from ottla.controller.state import TopicState
from ottla.controller.wanted_topics import WantedTopic
from ottla.log.broker_config import topic_defaults
from ottla.log.topic_config import TOPIC_CONFIG
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatedTopic,
    CreatedTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.configs.broker_config import BrokerConfig
    from ottla.broker.configs.store import ConfigStore

_DEFAULT: Final = -1
"""For a count: the broker's default."""
_BY_TOPIC: Final = 1
_BY_BROKER: Final = 2
_BY_ALL_BROKERS: Final = 3
_BY_FILE: Final = 4
_NOT_SET: Final = 5

Defaults = Mapping[str, tuple[str, int]]
"""The configs of topics without their own settings that differ from Kafka's defaults, with their sources."""


@handles(CreateTopicsRequest)
async def create_topics(broker: Broker, request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """The response has one entry per name. A topic that appears more than once is not created."""
    times = Counter(topic.name for topic in request.topics)
    wanted: list[WantedTopic] = []
    outcomes: dict[str, TopicState | ControllerError] = {}
    for topic in request.topics:
        try:
            wanted.append(_wanted(topic, broker.config, times[topic.name]))
        except ControllerError as error:
            outcomes[topic.name] = error
    try:
        created = await broker.controller.create_topics(wanted, validate_only=request.validate_only)
        outcomes.update(zip((topic.name for topic in wanted), created, strict=True))
    except ControllerError as error:
        outcomes.update((topic.name, error) for topic in wanted)
    configs = _Configs(_broker_defaults(broker.configs)) if context.version >= 5 else None
    return CreateTopicsResponse(topics=[_answer(name, outcomes[name], configs) for name in times])


def _wanted(topic: CreatableTopic, config: BrokerConfig, times: int) -> WantedTopic:
    if times > 1:
        reason = f"Topic '{topic.name}' is in the request {times} times."
        raise ControllerError(ErrorCode.INVALID_REQUEST, reason)
    partition_count: int | None = topic.num_partitions
    replication_factor: int | None = topic.replication_factor
    if partition_count == _DEFAULT:
        partition_count = None if topic.assignments else config["num.partitions"]
    if replication_factor == _DEFAULT:
        replication_factor = None if topic.assignments else config["default.replication.factor"]
    return WantedTopic(
        topic.name,
        partition_count,
        replication_factor,
        [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
        {setting.name: setting.value for setting in topic.configs},
    )


def _answer(name: str, outcome: TopicState | ControllerError, configs: _Configs | None) -> CreatedTopic:
    """With all configs if `configs` is given."""
    if isinstance(outcome, ControllerError):
        return CreatedTopic(name=name, error_code=outcome.code, error_message=outcome.reason)
    return CreatedTopic(
        name=name,
        topic_id=outcome.topic_id,
        error_message=None,
        num_partitions=len(outcome.partitions),
        replication_factor=len(outcome.partitions[0].replicas),
        configs=[] if configs is None else configs.of(outcome.configs),
    )


def _broker_defaults(configs: ConfigStore) -> Defaults:
    defaults: dict[str, tuple[str, int]] = {}
    for settings, source in (
        (configs.static.given, _BY_FILE),
        (configs.for_all_brokers, _BY_ALL_BROKERS),
        (configs.for_broker, _BY_BROKER),
    ):
        defaults.update((key, (text, source)) for key, text in topic_defaults(settings).items())
    return defaults


class _Configs:
    """All configs of topics. Most keys are the same for all topics: those are built once."""

    def __init__(self, defaults: Defaults) -> None:
        self._defaults = [
            CreatedTopicConfig(name=key.name, value=value, config_source=source)
            for key in TOPIC_CONFIG
            for value, source in (defaults.get(key.name) or (key.text(key.default), _NOT_SET),)
        ]

    def of(self, own: Mapping[str, str]) -> list[CreatedTopicConfig]:
        if not own:
            return self._defaults
        return [
            CreatedTopicConfig(name=each.name, value=own[each.name], config_source=_BY_TOPIC)
            if each.name in own
            else each
            for each in self._defaults
        ]
