"""DescribeConfigs: the configs of topics, brokers, loggers and groups, and the source of each value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.base.config_descriptions import ConfigSource, ResourceType
from ottla.base.error_codes import ErrorCode
from ottla.broker.configs.described import (
    described_broker,
    described_broker_defaults,
    described_group,
    described_loggers,
    described_topic,
)
from ottla.broker.configs.resources import check_broker_name, check_group_name
from ottla.broker.handlers import handles
from ottla.broker.requests.api import BrokerError, RequestContext
from ottla.controller.topic_names import fault_of_name
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResponse,
    DescribeConfigsResponse,
    DescribedConfig,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


Alike = tuple[frozenset[tuple[str, str]], frozenset[str]]
"""A topic's own settings and the requested keys: topics with the same ones are described once per request."""


@handles(DescribeConfigsRequest)
async def describe_configs(
    broker: Broker, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    names = [each.resource_name for each in request.resources if each.resource_type == ResourceType.TOPIC]
    await broker.configs.learn_topics([name for name in names if broker.metadata.topic(name) is not None])
    alike: dict[Alike, list[DescribedConfig]] = {}
    results = [_result(broker, each, request, alike) for each in request.resources]
    if context.version == 0:  # which has no other sources
        for result in results:
            for config in result.configs:
                config.is_default = config.config_source == ConfigSource.DEFAULT
    return DescribeConfigsResponse(results=results)


def _result(
    broker: Broker,
    resource: DescribeConfigsResource,
    request: DescribeConfigsRequest,
    alike: dict[Alike, list[DescribedConfig]],
) -> DescribeConfigsResourceResponse:
    result = DescribeConfigsResourceResponse(resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        # As in Kafka, an empty list also means all keys.
        wanted = frozenset(resource.configuration_keys or ())
        described = _described(broker, resource)
        if resource.resource_type == ResourceType.TOPIC:
            own = broker.configs.topic_config(resource.resource_name)
            key = frozenset(own.items()), wanted
            if (known := alike.get(key)) is not None:
                result.configs = known
                return result
            alike[key] = result.configs
        for config in described:
            if not wanted or config.name in wanted:
                if not request.include_synonyms:
                    config.synonyms = []
                if not request.include_documentation:
                    config.documentation = None
                result.configs.append(config)
    except BrokerError as error:
        result.error_code = error.code
        result.error_message = str(error)
    return result


def _described(broker: Broker, resource: DescribeConfigsResource) -> Iterable[DescribedConfig]:
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            fault = fault_of_name(name)
            if fault is not None:
                raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
            if broker.metadata.topic(name) is None:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {name!r} does not exist.")
            return described_topic(broker.configs, name)
        case ResourceType.BROKER:
            if not name:
                return described_broker_defaults(broker.configs)
            check_broker_name(broker, name)
            return described_broker(broker.configs)
        case ResourceType.BROKER_LOGGER:
            check_broker_name(broker, name)
            return described_loggers()
        case ResourceType.CLIENT_METRICS if name:
            return ()  # there are no subscriptions
        case ResourceType.GROUP:
            check_group_name(name)
            return described_group(broker.configs, name)
        case other:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"Resources of type {other} have no config here.")
