from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from ottla.client.errors import SerializationError
from ottla.client.serializers import ProtobufDeserializer, ProtobufSerializer, bound_deserializer, bound_serializer

TOPIC = "orders"


def with_a_required_number() -> Any:
    """The class of a message that has to have a number."""
    field = descriptor_pb2.FieldDescriptorProto(
        name="a",
        number=1,
        type=descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
        label=descriptor_pb2.FieldDescriptorProto.LABEL_REQUIRED,
    )
    message = descriptor_pb2.DescriptorProto(name="Numbered", field=[field])
    file = descriptor_pb2.FileDescriptorProto(name="numbered.proto", syntax="proto2", message_type=[message])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Numbered"))


def test_the_bytes_of_protobufs_documentation() -> None:
    numbered = with_a_required_number()
    assert ProtobufSerializer(numbered)(TOPIC, numbered(a=150)).hex() == "089601"


def test_there_and_back() -> None:
    moment = Timestamp(seconds=1720000000, nanos=5)
    assert ProtobufDeserializer(Timestamp)(TOPIC, ProtobufSerializer(Timestamp)(TOPIC, moment)) == moment


def test_equal_maps_are_equal_bytes() -> None:
    names = [f"field {number}" for number in range(50)]
    one, other = Struct(), Struct()
    one.update(dict.fromkeys(names, "x"))
    other.update(dict.fromkeys(reversed(names), "x"))
    serialize = ProtobufSerializer(Struct)
    assert serialize(TOPIC, one) == serialize(TOPIC, other)


@pytest.mark.parametrize("value", [Duration(seconds=1), {"seconds": 1}, b"bytes"])
def test_another_class_is_refused(value: object) -> None:
    with pytest.raises(
        SerializationError, match="the protobuf serializer accepts a message of class Timestamp, but not this"
    ):
        bound_serializer(ProtobufSerializer(Timestamp), "value")(TOPIC, value)


def test_a_message_that_lacks_what_it_has_to_have() -> None:
    numbered = with_a_required_number()
    with pytest.raises(SerializationError, match="EncodeError"):
        bound_serializer(ProtobufSerializer(numbered), "value")(TOPIC, numbered())


def test_bytes_that_are_no_message() -> None:
    with pytest.raises(SerializationError, match="a message of class Timestamp, and could not read these 3 bytes"):
        bound_deserializer(ProtobufDeserializer(Timestamp), "value")(TOPIC, [b"\xff\xff\xff"])


@pytest.mark.parametrize("given", [Timestamp(), dict, "Timestamp"])
def test_what_is_no_message_class(given: Any) -> None:
    for kind in ProtobufSerializer, ProtobufDeserializer:
        with pytest.raises(TypeError, match="not a message class"):
            kind(given)
