"""Declarations: what a class becomes."""

from __future__ import annotations

import copy

import pytest

from ottla.base.ids import ZERO_UUID
from ottla.wire import codec
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.schema import Data, Struct, int32, nested, string


class Inner(Struct):
    number: int = int32(default=7)


class Outer(Data, versions="0-1", flexible="1+"):
    name: str = string()
    inner: Inner = nested(Inner)


def test_an_instance_holds_its_defaults() -> None:
    topic = FetchTopic()
    assert (topic.topic, topic.topic_id, topic.partitions) == ("", ZERO_UUID, [])
    assert Outer().inner == Inner(number=7)


def test_two_instances_never_share_a_struct() -> None:
    one, other = Outer(), Outer()
    one.inner.number = 8
    assert other.inner.number == 7
    decoded = codec.decode(Outer, 1, codec.encode(one, 1))
    assert decoded == one != other


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'partitoin'"):
        FetchPartition(partitoin=3)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        FetchPartition().partitoin = 3  # type: ignore[attr-defined]


def test_equality_is_by_class_and_value() -> None:
    assert FetchPartition(partition=1) == FetchPartition(partition=1)
    assert FetchPartition(partition=1) != FetchPartition(partition=2)
    assert FetchPartition() != FetchTopic()
    marked = FetchPartition()
    marked.unknown_tags = {1: b"x"}
    assert marked != FetchPartition()
    with pytest.raises(TypeError, match="unhashable"):
        hash(FetchPartition())


def test_a_copy_is_equal_and_apart() -> None:
    request = FetchRequest(topics=[FetchTopic(topic="a")])
    twin = copy.deepcopy(request)
    assert twin == request
    twin.topics[0].topic = "b"
    assert request.topics[0].topic == "a"
