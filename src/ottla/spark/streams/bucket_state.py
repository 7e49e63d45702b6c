"""The state of a bucket of keys: a map that many keys are read from and written to at once.

PySpark's map state asks Java for one key at a time, and waits for the answer. `PipelinedMap` sends many requests before
it reads the answers, with the messages that `MapState` sends. `PlainMap` uses only PySpark's public methods. It is the
oracle in tests, and used if a version of PySpark lacks what the other needs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark.sql.types import BinaryType, StructField, StructType

from ottla.base.errors import OttlaError
from ottla.spark.streams.pickled_bytes import PickledBytes

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState

_logger = logging.getLogger(__name__)

STATE_KEY: Final = StructType([StructField("key", BinaryType(), nullable=False)])
STATE_VALUE: Final = StructType([StructField("data", BinaryType(), nullable=False)])

_ON_THE_WAY_BYTES: Final = 48 * 1024
"""Less than a socket buffers, or else both sides could wait until the other one reads."""
_ON_THE_WAY: Final = 256
_OK: Final = 0
_SHAPES: Final = 1024
"""Combinations of lengths that are remembered."""
_MARKS: Final = (b"<key>", b"[val]")


class StateError(OttlaError):
    """Spark could not read or write the state of an operator."""


class BucketMap(Protocol):
    """The map state of the current group."""

    def read(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        """None removes a key."""


def bucket_map(state: MapState) -> BucketMap:
    """The fast one, if this version of PySpark has what it needs."""
    try:
        return PipelinedMap(state)
    except (AttributeError, ImportError) as error:
        _logger.warning("reading and writing state key by key: this version of PySpark is not known (%s)", error)
        return PlainMap(state)


class PlainMap:
    """One key at a time."""

    def __init__(self, state: MapState) -> None:
        self._state = state

    def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        rows = (self._state.getValue((key,)) for key in keys)
        return [None if row is None else bytes(row[0]) for row in rows]

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        for key, data in changes.items():
            if data is None:
                self._state.removeKey((key,))
            else:
                self._state.updateValue((key,), (data,))


class PipelinedMap:
    """Many keys at a time."""

    def __init__(self, state: MapState) -> None:
        import pyspark.sql.streaming.proto.StateMessage_pb2 as messages

        internal: Any = state
        client = internal._mapStateClient._stateful_processor_api_client
        self._name: str = internal._stateName
        self._file: Any = client.sockfile
        self._frames = Frames(messages, self._name, client.pickleSer.dumps)
        self._values = PickledBytes(client.pickleSer.loads)
        self._messages: Any = messages
        getattr(messages, "StateResponse")  # noqa: B009  # fails here if it is missing

    def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        frame = self._frames.frame
        found = self._ask(frame("getValue", (key,)) for key in keys)
        value_of = self._values.bytes_of
        return [value_of(data) if data else None for data in found]

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        frame = self._frames.frame
        self._ask(
            frame("removeKey", (key,)) if data is None else frame("updateValue", (key, data))
            for key, data in changes.items()
        )

    def _ask(self, frames: Iterator[bytes]) -> list[bytes]:
        """Sends requests, and returns the values of their answers."""
        file = self._file
        answers: list[bytes] = []
        waiting = size = 0
        for frame in frames:
            if waiting and (size + len(frame) > _ON_THE_WAY_BYTES or waiting == _ON_THE_WAY):
                self._read_answers(waiting, answers)
                waiting = size = 0
            file.write(frame)
            waiting += 1
            size += len(frame)
        if waiting:
            self._read_answers(waiting, answers)
        return answers

    def _read_answers(self, count: int, answers: list[bytes]) -> None:
        file, answer = self._file, self._messages.StateResponse()
        file.flush()
        failed = None
        for _ in range(count):
            answer.ParseFromString(file.read(int.from_bytes(file.read(4), "big")))
            if answer.statusCode != _OK:
                failed = failed or answer.errorMessage or f"status {answer.statusCode}"
            answers.append(answer.value)
        if failed is not None:
            raise StateError(f"Spark could not read or write state {self._name!r}: {failed}")


class Frames:
    """Requests to a map state, as bytes.

    A message is five nested objects, with pickled rows in the innermost one. Those of fields with the same lengths
    differ in nothing but the fields, so that most can be put together from the pieces around them.
    """

    def __init__(self, messages: Any, state_name: str, pickle: Callable[[Any], bytes]) -> None:
        self._messages = messages
        self._state_name = state_name
        self._pickle = pickle
        self._calls = {
            "getValue": messages.GetValue,
            "updateValue": messages.UpdateValue,
            "removeKey": messages.RemoveKey,
        }
        self._pieces: dict[tuple[str, int, int], tuple[bytes, ...]] = {}

    def frame(self, call: str, fields: tuple[bytes, ...]) -> bytes:
        """`fields` are the key, and the value if there is one."""
        shape = (call, len(fields[0]), len(fields[-1]))
        pieces = self._pieces.get(shape)
        if pieces is None:
            whole = self.encoded(call, fields)
            if len(self._pieces) < _SHAPES:
                self._pieces[shape] = self._pieces_of(call, fields, whole)
            return whole
        if not pieces:
            return self.encoded(call, fields)
        if len(fields) == 1:
            return pieces[0] + fields[0] + pieces[1]
        return pieces[0] + fields[0] + pieces[1] + fields[1] + pieces[2]

    def encoded(self, call: str, fields: tuple[bytes, ...]) -> bytes:
        """Encoded by protobuf and pickle."""
        messages = self._messages
        rows = (self._pickle((field,)) for field in fields)
        arguments = dict(zip(("userKey", "value"), rows, strict=False))
        map_call = messages.MapStateCall(stateName=self._state_name, **{call: self._calls[call](**arguments)})
        variable = messages.StateVariableRequest(mapStateCall=map_call)
        data: bytes = messages.StateRequest(stateVariableRequest=variable).SerializeToString()
        return b"\0\0\0\0" + len(data).to_bytes(4, "big") + data  # the version of the protocol is 0

    def _pieces_of(self, call: str, fields: tuple[bytes, ...], whole: bytes) -> tuple[bytes, ...]:
        """What is around fields of these lengths. Nothing if a field is too short to be found in a message."""
        samples = tuple((mark * len(field))[: len(field)] for mark, field in zip(_MARKS, fields, strict=False))
        rest, pieces = self.encoded(call, samples), []
        for sample in samples:
            if len(sample) < len(_MARKS[0]) or sample not in rest:
                return ()
            piece, _, rest = rest.partition(sample)
            pieces.append(piece)
        pieces.append(rest)
        again = b"".join(part for pair in zip(pieces, (*fields, b""), strict=True) for part in pair)
        return tuple(pieces) if again == whole else ()
