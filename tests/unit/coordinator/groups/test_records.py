"""Records of groups, as bytes."""

from __future__ import annotations

import pytest

from ottla.coordinator.groups.records import key_of, record_of, value_of
from ottla.wire.codec import encode_versioned
from ottla.wire.messages.group_records import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
)
from ottla.wire.schema import Data

GENERATION = GroupMetadataValue(
    protocol_type="consumer",
    generation=3,
    protocol="range",
    leader="m",
    current_state_timestamp=7,
    members=[GroupMetadataMember(member_id="m", client_id="c", client_host="/127.0.0.1", session_timeout=9)],
)


@pytest.mark.parametrize(
    ("key", "value", "kind", "version"),
    [
        (GroupMetadataKey(group="g"), GENERATION, 2, 3),
        (ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=5), 3, 0),
        (
            ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
            ConsumerGroupMemberMetadataValue(client_id="c", client_host="/127.0.0.1", subscribed_topic_names=["t"]),
            5,
            0,
        ),
    ],
)
def test_keys_have_the_number_of_their_kind_and_values_the_version_that_kafka_writes(
    key: Data, value: Data, kind: int, version: int
) -> None:
    record = record_of(key, value)
    assert record.key == encode_versioned(key, kind)
    assert record.value == encode_versioned(value, version)
    assert key_of(type(key), record.key) == key
    assert value_of(type(value), record.value or b"") == value
    assert record_of(key, None) == (record.key, None)


@pytest.mark.parametrize("version", range(5))
def test_values_of_all_versions_are_read(version: int) -> None:
    found = value_of(GroupMetadataValue, encode_versioned(GENERATION, version))
    assert (found.generation, found.members[0].member_id) == (3, "m")


def test_tags_of_newer_kafkas_are_skipped() -> None:
    record = record_of(ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=5))
    assert record.value == b"\x00\x00\x00\x00\x00\x05\x00"
    assert value_of(ConsumerGroupMetadataValue, record.value[:-1] + b"\x01\x63\x02ab").epoch == 5
