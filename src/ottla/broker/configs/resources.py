"""Config resources in requests, and how requests alter them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from ottla.base.config import ConfigError
from ottla.base.config_descriptions import ResourceType
from ottla.base.coordination import CoordinationError
from ottla.base.error_codes import ErrorCode
from ottla.broker.configs.group_configs import GROUP_CONFIG
from ottla.broker.configs.nodes import KeyOf, Settings
from ottla.broker.configs.store import broker_key
from ottla.broker.requests.api import BrokerError
from ottla.controller.topic_names import fault_of_name
from ottla.log.topic_config import TOPIC_CONFIG
from ottla.zookeeper.tree_file import TreeFileError

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_logger = logging.getLogger(__name__)

ChangeByKeys = Callable[[Settings, KeyOf], Settings]
"""Computes the new settings from the current ones and the known keys."""


class Entry(Protocol):
    @property
    def name(self) -> str: ...


class Resource(Protocol):
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def configs(self) -> Sequence[Entry]: ...


R = TypeVar("R", bound=Resource)

Outcome = tuple[ErrorCode, str | None]


async def outcomes(
    broker: Broker, resources: Sequence[R], plan: Callable[[R], ChangeByKeys | None], *, validate_only: bool
) -> list[Outcome]:
    """Alters the configs of topics, brokers and groups; an error in one does not affect the others. `plan` returns the
    change of a resource, or None if it is already done. Topics are written together."""
    named = Counter((each.resource_type, each.resource_name) for each in resources)
    found: list[Outcome] = []
    topics: dict[str, ChangeByKeys] = {}
    places: dict[str, int] = {}
    for place, each in enumerate(resources):
        outcome: Outcome = (ErrorCode.NONE, None)
        try:
            if named[each.resource_type, each.resource_name] > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Each resource can be altered once in a request.")
            if len({entry.name for entry in each.configs}) < len(each.configs):
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Each key of a resource can be altered once in a request.")
            change = plan(each)
            if change is not None and each.resource_type == ResourceType.TOPIC:
                _check_topic(broker, each.resource_name)
                topics[each.resource_name] = change
                places[each.resource_name] = place
            elif change is not None:
                await _alter_other(broker, each, change, validate_only=validate_only)
        except BrokerError as error:
            outcome = (error.code, str(error))
        except (CoordinationError, TreeFileError) as error:
            outcome = _not_stored(error)
        found.append(outcome)
    if topics:
        for name, outcome in (await _alter_topics(broker, topics, validate_only=validate_only)).items():
            found[places[name]] = outcome
    return found


async def _alter_other(broker: Broker, resource: Resource, change: ChangeByKeys, *, validate_only: bool) -> None:
    """Alters the configs of a broker or group; raises `BrokerError` if that is not possible."""
    match resource.resource_type:
        case ResourceType.BROKER:
            await _alter_broker(broker, resource.resource_name, change, validate_only=validate_only)
        case ResourceType.GROUP:
            await _alter_group(broker, resource.resource_name, change, validate_only=validate_only)
        case other:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"Resources of type {other} cannot be altered here.")


def _check_topic(broker: Broker, name: str) -> None:
    if not name:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "There are no configs for all topics: name a topic.")
    fault = fault_of_name(name)
    if fault is not None:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
    if broker.metadata.topic(name) is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {name!r} does not exist.")


async def _alter_topics(
    broker: Broker, changes: Mapping[str, ChangeByKeys], *, validate_only: bool
) -> dict[str, Outcome]:
    by_keys = {name: partial(_with_topic_keys, change) for name, change in changes.items()}
    try:
        outcomes = await broker.configs.alter_topics(by_keys, validate_only=validate_only)
    except (CoordinationError, TreeFileError) as error:
        return dict.fromkeys(changes, _not_stored(error))
    return {name: _outcome(error) for name, error in outcomes.items()}


def _with_topic_keys(change: ChangeByKeys, settings: Settings) -> Settings:
    return change(settings, TOPIC_CONFIG.__getitem__)


def _outcome(error: Exception | None) -> Outcome:
    if error is None:
        return ErrorCode.NONE, None
    if isinstance(error, BrokerError):
        return error.code, str(error)
    return ErrorCode.INVALID_CONFIG, str(error)


def _not_stored(error: Exception) -> Outcome:
    _logger.error("configs could not be changed: %s", error)
    return ErrorCode.UNKNOWN_SERVER_ERROR, f"The coordination tree could not be read or changed: {error}"


async def _alter_broker(
    broker: Broker,
    name: str,
    change: ChangeByKeys,
    *,
    validate_only: bool,
) -> None:
    broker_id = check_broker_name(broker, name) if name else None
    try:
        await broker.configs.alter_broker(
            broker_id, lambda settings: change(settings, broker_key), validate_only=validate_only
        )
    except ConfigError as error:  # Kafka's error code for invalid broker configs
        raise BrokerError(ErrorCode.INVALID_REQUEST, str(error)) from None


async def _alter_group(broker: Broker, group_id: str, change: ChangeByKeys, *, validate_only: bool) -> None:
    check_group_name(group_id)
    try:
        await broker.configs.groups.alter(
            group_id, lambda settings: change(settings, GROUP_CONFIG.__getitem__), validate_only=validate_only
        )
    except ConfigError as error:
        raise BrokerError(ErrorCode.INVALID_CONFIG, str(error)) from None


def check_group_name(group_id: str) -> None:
    if not group_id:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "There are no configs for all groups: name a group.")


def check_broker_name(broker: Broker, name: str) -> int:
    """Checks that the name is this broker's id: only a broker itself knows its valid configs."""
    if name != str(broker.broker_id):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"This is broker {broker.broker_id}, not {name!r}: send requests for a broker's configs to that broker.",
        )
    return broker.broker_id
