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

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState

_logger = logging.getLogger(__name__)

STATE_KEY: Final = StructType([StructField("key", BinaryType(), nullable=False)])
STATE_VALUE: Final = StructType([StructField("data", BinaryType(), nullable=False)])

_ON_THE_WAY_BYTES: Final = 48 * 1024
"""Less than a socket buffers, or else both sides could wait until the other one reads."""
_ON_THE_WAY: Final = 256
_OK: Final = 0


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
        self._pickle: Callable[[Any], bytes] = client.pickleSer.dumps
        self._unpickle: Callable[[bytes], Any] = client.pickleSer.loads
        self._messages: Any = messages
        for name in ("MapStateCall", "GetValue", "UpdateValue", "RemoveKey", "StateVariableRequest", "StateResponse"):
            getattr(messages, name)

    def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        get_value, pickled = self._messages.GetValue, self._pickle
        calls = ({"getValue": get_value(userKey=pickled((key,)))} for key in keys)
        found = self._ask(calls)
        return [bytes(self._unpickle(data)[0]) if data else None for data in found]

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        self._ask(self._change(key, data) for key, data in changes.items())

    def _change(self, key: bytes, data: bytes | None) -> dict[str, Any]:
        packed = self._pickle((key,))
        if data is None:
            return {"removeKey": self._messages.RemoveKey(userKey=packed)}
        return {"updateValue": self._messages.UpdateValue(userKey=packed, value=self._pickle((data,)))}

    def _ask(self, calls: Iterator[dict[str, Any]]) -> list[bytes]:
        """Sends calls, and returns the values of their answers."""
        messages, file = self._messages, self._file
        answers: list[bytes] = []
        waiting = size = 0
        for call in calls:
            variable = messages.StateVariableRequest(mapStateCall=messages.MapStateCall(stateName=self._name, **call))
            data = messages.StateRequest(stateVariableRequest=variable).SerializeToString()
            if waiting and (size + len(data) > _ON_THE_WAY_BYTES or waiting == _ON_THE_WAY):
                self._read_answers(waiting, answers)
                waiting = size = 0
            file.write(b"\0\0\0\0" + len(data).to_bytes(4, "big") + data)  # the version of the protocol is 0
            waiting += 1
            size += len(data)
        if waiting:
            self._read_answers(waiting, answers)
        return answers

    def _read_answers(self, count: int, answers: list[bytes]) -> None:
        file, response = self._file, self._messages.StateResponse
        file.flush()
        failed = None
        for _ in range(count):
            answer = response()
            answer.ParseFromString(file.read(int.from_bytes(file.read(4), "big")))
            if answer.statusCode != _OK:
                failed = failed or answer.errorMessage or f"status {answer.statusCode}"
            answers.append(answer.value)
        if failed is not None:
            raise StateError(f"Spark could not read or write state {self._name!r}: {failed}")
