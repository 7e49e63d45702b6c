"""Where offsets are moved to."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.ids import TopicPartition
from ottla.cli.offset_resets import Ends, PlannedOffset, Reset, parse_topic, planned, read_file
from ottla.cli.session import CommandError

PARTITION = TopicPartition("orders", 3)
ENDS = Ends(first=5, end=20, committed=12, at_time=8)
NEW = Ends(first=0, end=20, committed=None, at_time=None)


@pytest.mark.parametrize(
    ("reset", "offset", "offset_of_new"),
    [
        (Reset.to_earliest(), 5, 0),
        (Reset.to_latest(), 20, 20),
        (Reset.to_current(), 12, 20),
        (Reset.to_offset(7), 7, 7),
        (Reset.to_time(1_700_000_000_000), 8, 20),
        (Reset.to_each({PARTITION: 11}), 11, 11),
    ],
)
def test_each_way(reset: Reset, offset: int, offset_of_new: int) -> None:
    assert planned(reset, PARTITION, ENDS) == PlannedOffset(PARTITION, 12, offset)
    assert planned(reset, PARTITION, NEW) == PlannedOffset(PARTITION, None, offset_of_new)


@pytest.mark.parametrize(
    ("wanted", "new", "end"),
    [(0, 5, "beginning"), (4, 5, "beginning"), (21, 20, "end"), (99, 20, "end")],
)
def test_nothing_goes_outside_of_a_partition(wanted: int, new: int, end: str) -> None:
    found = planned(Reset.to_offset(wanted), PARTITION, ENDS)
    assert found.new == new
    assert found.remark == f"{wanted} is outside the log (5 to 20); using the {end}, {new}"


@pytest.mark.parametrize(("count", "new"), [(3, 15), (-4, 8), (-99, 5), (99, 20)])
def test_shifts_start_at_what_is_committed(count: int, new: int) -> None:
    assert planned(Reset.shift_by(count), PARTITION, ENDS).new == new
    with pytest.raises(CommandError, match="orders-3 has no committed offset"):
        planned(Reset.shift_by(count), PARTITION, NEW)


def test_topics_and_their_partitions() -> None:
    assert parse_topic("orders") == ("orders", None)
    assert parse_topic("orders:0, 3") == ("orders", [0, 3])


@pytest.mark.parametrize("text", ["orders:", ":1", "orders:a", "orders:-1", "orders:1,"])
def test_what_is_no_topic(text: str) -> None:
    with pytest.raises(CommandError, match="is neither TOPIC nor TOPIC:PARTITION"):
        parse_topic(text)


def test_offsets_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text('"orders",0,3\n\n payments , 1 , 22 \n')
    assert read_file(file) == {TopicPartition("orders", 0): 3, TopicPartition("payments", 1): 22}


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "has no line"), ("a,0,1\na,1\n", "line 2"), (",0,1", "line 1"), ("a,x,1", "line 1"), ("a,0,-1", "line 1")],
)
def test_files_that_hold_something_else(text: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(text)
    with pytest.raises(ValueError, match=reason):
        read_file(file)
