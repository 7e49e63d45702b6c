"""The records of `__consumer_offsets` as bytes: `record_of` encodes key and value, `key_of` and `value_of` decode them.
`offsets.records` has a codec of its own for offset commits, by far the most frequent records.

A key starts with the number of its kind, a value with its version. Kafka writes the versions in `_VALUE_VERSIONS` and
reads all of them; fields that newer Kafka versions add are tagged, and ignored here.
"""

from __future__ import annotations

from typing import Final, TypeVar

from ottla.coordinator.key_values import KeyValue
from ottla.wire.codec import decode_versioned, encode_versioned
from ottla.wire.messages.group_records import GroupMetadataValue
from ottla.wire.schema import Data

D = TypeVar("D", bound=Data)

_VALUE_VERSIONS: Final[dict[type[Data], int]] = {GroupMetadataValue: 3}
"""Versions other than 0. Kafka 4.3.1 still writes the versions of 2.3, so that a downgrade is possible."""


def record_of(key: Data, value: Data | None) -> KeyValue:
    """The record of key and value; without a value, a tombstone."""
    kind = key.versions.high
    encoded = None if value is None else encode_versioned(value, _VALUE_VERSIONS.get(type(value), 0))
    return KeyValue(encode_versioned(key, kind), encoded)


def key_of(message: type[D], data: bytes) -> D:
    return decode_versioned(message, data)[0]


def value_of(message: type[D], data: bytes) -> D:
    return decode_versioned(message, data)[0]
