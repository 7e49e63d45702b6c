"""Values as Protobuf messages, of the classes that its compiler generates."""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

from google.protobuf.message import Message

AnyMessage = TypeVar("AnyMessage", bound=Message)


class ProtobufSerializer(Generic[AnyMessage]):
    """Writes messages of one class; maps in order, so that equal keys are equal bytes and go to the same partition."""

    __slots__ = ("_message",)
    name: Final = "protobuf"

    def __init__(self, message: type[AnyMessage]) -> None:
        _check(message)
        self._message = message

    @property
    def accepts(self) -> str:
        return f"a message of class {self._message.__qualname__}"

    def __call__(self, topic: str, value: AnyMessage) -> bytes:
        if not isinstance(value, self._message):
            raise TypeError
        return value.SerializeToString(deterministic=True)


class ProtobufDeserializer(Generic[AnyMessage]):
    """Reads messages of one class."""

    __slots__ = ("_message", "_read")
    name: Final = "protobuf"

    def __init__(self, message: type[AnyMessage]) -> None:
        _check(message)
        self._message = message
        self._read = message.FromString

    @property
    def accepts(self) -> str:
        return f"a message of class {self._message.__qualname__}"

    def __call__(self, topic: str, data: bytes) -> AnyMessage:
        return self._read(data)


def _check(message: Any) -> None:
    if not (isinstance(message, type) and issubclass(message, Message)):
        raise TypeError(f"{message!r} is not a message class as Protobuf's compiler generates it")
