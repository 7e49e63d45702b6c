"""Messages come back as they were written; bytes from outside raise nothing but `JuteError`."""

from __future__ import annotations

import inspect
from contextlib import suppress
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.zookeeper.protocol import messages
from ottla.zookeeper.protocol.jute import JuteError, JuteReader, JuteWriter, Record
from ottla.zookeeper.protocol.messages import AclEntry, ClientInfo, Stat

KINDS: list[type[Record]] = [
    kind for _, kind in inspect.getmembers(messages, inspect.isclass) if issubclass(kind, Record) and kind is not Record
]
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=10)
VALUES: dict[str, st.SearchStrategy[object]] = {
    "bool": st.booleans(),
    "bytes | None": st.none() | st.binary(max_size=10),
    "str": TEXT,
    "tuple[str, ...]": st.lists(TEXT, max_size=4).map(tuple),
    "Stat": st.builds(Stat, *[INT64] * 4, *[INT32] * 3, INT64, INT32, INT32, INT64),
    "tuple[AclEntry, ...]": st.lists(st.builds(AclEntry, INT32, TEXT, TEXT), max_size=3).map(tuple),
    "tuple[ClientInfo, ...]": st.lists(st.builds(ClientInfo, TEXT, TEXT), max_size=3).map(tuple),
    "int": INT32,
}


def instances(kind: type[Record]) -> st.SearchStrategy[Record]:
    return st.builds(kind, *[VALUES[str(each.type)] for each in fields(kind)])  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_messages_come_back(kind: type[Record], data: st.DataObject) -> None:
    message = data.draw(instances(kind))
    writer = JuteWriter()
    message.write(writer)
    reader = JuteReader(writer.body())
    assert kind.read(reader) == message
    assert reader.left == 0


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(frame=st.binary(max_size=80))
def test_noise_is_refused(kind: type[Record], frame: bytes) -> None:
    with suppress(JuteError):
        kind.read(JuteReader(frame))


@given(data=st.data())
def test_a_cut_message_is_refused(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    writer = JuteWriter()
    data.draw(instances(kind)).write(writer)
    body = writer.body()
    with pytest.raises(JuteError):
        kind.read(JuteReader(body[: data.draw(st.integers(0, len(body) - 1))]))


def test_a_list_that_announces_too_much_costs_nothing() -> None:
    with pytest.raises(JuteError, match="announces 2147483647 items, and only 4 bytes are left"):
        messages.ChildrenResponse.read(JuteReader(b"\x7f\xff\xff\xff\x00\x00\x00\x00"))
