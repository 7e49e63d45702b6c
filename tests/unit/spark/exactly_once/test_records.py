from __future__ import annotations

import pytest

from ottla.client.transactions import PreparedTransaction
from ottla.spark.exactly_once.errors import CommitTopicError
from ottla.spark.exactly_once.identifiers import Identifiers, Owner, is_name, run_token
from ottla.spark.exactly_once.records import CommitRecord


def test_a_record_is_what_was_written() -> None:
    one = CommitRecord(
        batch=3,
        run="r",
        first=2,
        transactions=(PreparedTransaction("a/b:c", 4000, 2),),
        rows=10,
        written_at_ms=1,
        is_adopted=True,
        refused=("x", "y"),
    )
    assert CommitRecord.decode(one.encode()) == one


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b'"x"', b"\xff", b'{"version":1}'])
def test_what_is_no_record_is_told(value: bytes) -> None:
    with pytest.raises(CommitTopicError, match="is not a commit record"):
        CommitRecord.decode(value)


def test_a_newer_format_is_told() -> None:
    with pytest.raises(CommitTopicError, match="has the format 2"):
        CommitRecord.decode(b'{"version":2}')


def test_ids_say_whose_they_are() -> None:
    ids = Identifiers("pre", "query:q:name")
    owner = Owner(12, run_token("run"))
    one = ids.of_task(owner, "m-0", 3, 12)
    assert ids.owner_of(one) == owner
    assert one != ids.of_task(owner, "m-0", 3, 13)
    assert one == ids.of_task(owner, "m-0", 3, 14)
    for other in (ids.log, "pre", one.replace("pre", "post"), one.replace(":name", "")):
        assert ids.owner_of(other) is None


def test_names_of_sinks() -> None:
    assert is_name("orders-2.daily_x")
    assert not any(map(is_name, ("", "a/b", "a:b", "x" * 101, "ä", "a\n")))
