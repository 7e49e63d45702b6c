"""IncrementalAlterConfigs: sets and unsets single keys of a topic, broker or group, and levels of loggers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ottla.base.config import ConfigError, ConfigKey, ValueType
from ottla.base.config_descriptions import ResourceType
from ottla.base.error_codes import ErrorCode
from ottla.broker.configs.nodes import KeyOf
from ottla.broker.configs.resources import ChangeByKeys, check_broker_name, outcomes
from ottla.broker.handlers import handles
from ottla.broker.observability import log_levels
from ottla.broker.requests.api import BrokerError, RequestContext
from ottla.log.topic_config import TOPIC_CONFIG
from ottla.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsEntry,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_NAMES: Final = {_APPEND: "Appending", _SUBTRACT: "Subtracting"}


@handles(IncrementalAlterConfigsRequest)
async def incremental_alter_configs(
    broker: Broker, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    def plan(resource: IncrementalAlterConfigsResource) -> ChangeByKeys | None:
        _check_operations(resource)
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            check_broker_name(broker, resource.resource_name)
            _alter_loggers(resource.configs, validate_only=request.validate_only)
            return None
        return lambda settings, key_of: _altered(settings, resource.configs, key_of)

    altered = await outcomes(broker, request.resources, plan, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResourceResponse(
                error_code=code,
                error_message=reason,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, (code, reason) in zip(request.resources, altered, strict=True)
        ]
    )


def _check_operations(resource: IncrementalAlterConfigsResource) -> None:
    """Checks that do not need the resource, in Kafka's order."""
    for entry in resource.configs:
        if entry.value is None and entry.config_operation != _DELETE:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"The value of {entry.name} is null: delete it instead.")
    for entry in resource.configs:
        if entry.config_operation in _NAMES and resource.resource_type == ResourceType.TOPIC:
            with suppress(ConfigError):  # reported with the other unknown keys
                _check_is_list(TOPIC_CONFIG[entry.name], entry)
    for entry in resource.configs:
        if entry.config_operation not in (_SET, _DELETE, _APPEND, _SUBTRACT):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"Unknown operation {entry.config_operation} for {entry.name}."
            )


def _altered(
    settings: Mapping[str, str], entries: Sequence[IncrementalAlterConfigsEntry], key_of: KeyOf
) -> dict[str, str]:
    result = dict(settings)
    for entry in entries:
        value = entry.value or ""
        if entry.config_operation == _SET:
            result[entry.name] = value
        elif entry.config_operation == _DELETE:
            result.pop(entry.name, None)
        else:
            key = key_of(entry.name)
            _check_is_list(key, entry)
            result[entry.name] = _altered_list(key, result.get(entry.name), entry.config_operation, value)
    return result


def _check_is_list(key: ConfigKey, entry: IncrementalAlterConfigsEntry) -> None:
    if key.type is not ValueType.LIST:
        what = _NAMES[entry.config_operation]
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"{what} needs a list, and {entry.name} is a {key.type.value}.")


def _altered_list(key: ConfigKey, text: str | None, operation: int, value: str) -> str:
    """If the list is not set, the operation applies to its default."""
    present = key.default or () if text is None else key.parse(text)
    named = tuple(part.strip() for part in value.split(","))
    if operation == _APPEND:
        return key.text((*present, *(part for part in named if part not in present)))
    return key.text(tuple(part for part in present if part not in named))


def _alter_loggers(entries: Sequence[IncrementalAlterConfigsEntry], *, validate_only: bool) -> None:
    for entry in entries:
        if entry.config_operation in _NAMES:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"A logger has only one level: {entry.name} is not a list.")
        if not log_levels.exists(entry.name):
            raise BrokerError(ErrorCode.INVALID_CONFIG, f"Logger {entry.name!r} does not exist.")
        if entry.config_operation == _DELETE and entry.name == log_levels.ROOT:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "The root logger must have a level: set another one instead.")
        if entry.config_operation == _SET and entry.value not in log_levels.LEVELS:
            raise BrokerError(
                ErrorCode.INVALID_CONFIG,
                f"{entry.value!r} is not a level for {entry.name}; there are {', '.join(log_levels.LEVELS)}.",
            )
    if not validate_only:
        for entry in entries:
            log_levels.set_level(entry.name, entry.value if entry.config_operation == _SET else None)
