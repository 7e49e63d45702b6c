"""What has a config, as requests name it, and how requests change it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from ottla.base.config import ConfigError
from ottla.base.config_descriptions import ResourceType
from ottla.base.error_codes import ErrorCode
from ottla.broker.configs.group_configs import GROUP_CONFIG
from ottla.broker.configs.nodes import KeyOf, Settings
from ottla.broker.configs.store import broker_key
from ottla.broker.requests.api import BrokerError
from ottla.controller.errors import ControllerError
from ottla.controller.topic_names import fault_of_name
from ottla.log.topic_config import TOPIC_CONFIG

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

ChangeByKeys = Callable[[Settings, KeyOf], Settings]
"""Makes what shall be set of what is set, and of what keys there are."""


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
    """Alters what topics, brokers and groups set; what is refused of one does not touch the others. `plan` tells what
    to do with a resource, or None if that is done already. Topics are written together."""
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
        except (BrokerError, ControllerError) as error:
            outcome = (error.code, str(error))
        found.append(outcome)
    if topics:
        for name, outcome in (await _alter_topics(broker, topics, validate_only=validate_only)).items():
            found[places[name]] = outcome
    return found


async def _alter_other(broker: Broker, resource: Resource, change: ChangeByKeys, *, validate_only: bool) -> None:
    """Changes what a broker or group sets; what cannot be raises `BrokerError`."""
    match resource.resource_type:
        case ResourceType.BROKER:
            await _alter_broker(broker, resource.resource_name, change, validate_only=validate_only)
        case ResourceType.GROUP:
            await _alter_group(broker, resource.resource_name, change, validate_only=validate_only)
        case other:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"Resources of type {other} cannot be altered so.")


def _check_topic(broker: Broker, name: str) -> None:
    if not name:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "There are no settings for all topics: name one.")
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
        outcomes = await broker.configs.alter_topics(
            by_keys, broker.controller.update_topic_configs, validate_only=validate_only
        )
    except ControllerError as error:
        return dict.fromkeys(changes, (error.code, str(error)))
    return {name: _outcome(error) for name, error in outcomes.items()}


def _with_topic_keys(change: ChangeByKeys, settings: Settings) -> Settings:
    return change(settings, TOPIC_CONFIG.__getitem__)


def _outcome(error: Exception | None) -> Outcome:
    if error is None:
        return ErrorCode.NONE, None
    if isinstance(error, BrokerError | ControllerError):
        return error.code, str(error)
    return ErrorCode.INVALID_CONFIG, str(error)


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
    except ConfigError as error:  # Kafka's code for what a broker cannot be set to
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
        raise BrokerError(ErrorCode.INVALID_REQUEST, "There are no settings for all groups: name one.")


def check_broker_name(broker: Broker, name: str) -> int:
    """This broker's id; another's is refused, since only it knows what it can be set to."""
    if name != str(broker.broker_id):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"This is broker {broker.broker_id}, and {name!r} was asked for: a broker's config is asked of itself.",
        )
    return broker.broker_id
