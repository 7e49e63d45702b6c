"""Requests to the state of a bucket."""

from __future__ import annotations

from typing import Any

import pyspark.sql.streaming.proto.StateMessage_pb2 as generated
import pytest
from pyspark.serializers import CPickleSerializer

from ottla.spark.streams.bucket_state import Frames

messages: Any = generated
pickler: Any = CPickleSerializer()


def request_of(frame: bytes) -> tuple[str, list[bytes]]:
    """The call, and the fields of its rows, as PySpark's messages read them."""
    assert frame[:4] == b"\0\0\0\0"
    assert int.from_bytes(frame[4:8], "big") == len(frame) - 8
    request = messages.StateRequest.FromString(frame[8:]).stateVariableRequest.mapStateCall
    assert request.stateName == "some"
    call = request.WhichOneof("method")
    rows = getattr(request, call)
    fields = [rows.userKey, rows.value] if call == "updateValue" else [rows.userKey]
    return call, [pickler.loads(field)[0] for field in fields]


@pytest.mark.parametrize("value_length", [0, 3, 5, 100, 255, 256, 70_000])
@pytest.mark.parametrize("key_length", [0, 1, 5, 9, 127, 128, 300])
def test_requests_say_what_is_asked(key_length: int, value_length: int) -> None:
    frames = Frames(messages, "some", pickler.dumps)
    for number in range(3):  # the first of its lengths, and others
        key, value = bytes([number]) * key_length, bytes([number + 100]) * value_length
        assert request_of(frames.frame("getValue", (key,))) == ("getValue", [key])
        assert request_of(frames.frame("removeKey", (key,))) == ("removeKey", [key])
        assert request_of(frames.frame("updateValue", (key, value))) == ("updateValue", [key, value])


def test_fields_that_look_like_the_samples() -> None:
    frames = Frames(messages, "some", pickler.dumps)
    for key, value in [(b"<key>", b"[val]"), (b"[val]", b"<key>"), (b"<key><key>", b"[val]<key>")] * 2:
        assert request_of(frames.frame("updateValue", (key, value))) == ("updateValue", [key, value])
