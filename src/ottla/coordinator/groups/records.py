"""The records of `__consumer_offsets` as bytes: `record_of` makes one of key and value, `key_of` and `value_of` read it
again. Offset commits, of which there are most by far, have code of their own in `offsets.records`.

A key begins with the number of its kind. A value begins with its version: Kafka writes the one in `_VALUE_VERSIONS` and
reads all; fields that newer Kafkas add are tagged, and passed over.
"""

from __future__ import annotations

from typing import Final, TypeVar

from ottla.coordinator.key_values import KeyValue
from ottla.wire.codec import decode_versioned, encode_versioned
from ottla.wire.messages.group_records import GroupMetadataValue
from ottla.wire.schema import Data

D = TypeVar("D", bound=Data)

_VALUE_VERSIONS: Final[dict[type[Data], int]] = {GroupMetadataValue: 3}
"""Where it is not 0. Kafka 4.3.1 still writes what 2.3 wrote, so that one can go back."""


def record_of(key: Data, value: Data | None) -> KeyValue:
    """Without a value, the tombstone of what the key names."""
    kind = key.versions.high
    encoded = None if value is None else encode_versioned(value, _VALUE_VERSIONS.get(type(value), 0))
    return KeyValue(encode_versioned(key, kind), encoded)


def key_of(message: type[D], data: bytes) -> D:
    return decode_versioned(message, data)[0]


def value_of(message: type[D], data: bytes) -> D:
    return decode_versioned(message, data)[0]
