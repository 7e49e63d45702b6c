"""Requests from what a dialogue says of them: fields by name, everything else as declared."""

from __future__ import annotations

from typing import Any

from differential import batches
from ottla.wire.codec import encode_versioned
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.registry import Api, apis
from ottla.wire.schema import Kind, Request, Struct, WireType


def api_named(name: str) -> Api:
    for api in apis().values():
        if api.name == name:
            return api
    raise ValueError(f"there is no API {name!r}")


def request_of(api: Api, fields: dict[str, Any]) -> Request:
    """Symbols are resolved already."""
    request: Request = _struct(api.request, fields)
    return request


def _struct(cls: type[Struct], fields: dict[str, Any]) -> Any:
    types = {field.name: field.type for field in cls.fields}
    if unknown := fields.keys() - types.keys():
        raise ValueError(f"{cls.__name__} has no fields {sorted(unknown)}")
    return cls(**{name: _value(types[name], value) for name, value in fields.items()})


def _subscription(value: dict[str, Any]) -> bytes:
    """What a member of a classic group of consumers says of itself: Kafka does not answer a join with anything else."""
    subscription = ConsumerProtocolSubscription(topics=value["topics"], user_data=value["user"].encode())
    return encode_versioned(subscription, value.get("version", 1))


def _value(wire_type: WireType, value: Any) -> Any:
    if value is None:
        return None
    if wire_type.kind is Kind.ARRAY:
        element = wire_type.array_element()
        return [_value(element, each) for each in value]
    if wire_type.kind is Kind.STRUCT:
        return _struct(wire_type.struct_class(), value)
    if wire_type.kind is Kind.RECORDS:
        return b"".join(batches.build(each) for each in value)
    if wire_type.kind is Kind.BYTES:
        return _subscription(value) if isinstance(value, dict) else value.encode()
    return value
