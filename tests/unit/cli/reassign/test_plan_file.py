"""Plans in files: what is written can be read, and what is wrong is told with the name of the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.base.ids import TopicPartition
from ottla.cli.reassign.command import parse_size
from ottla.cli.reassign.plan_file import plan_text, read_plan
from ottla.cli.session import CommandError


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    plan = {TopicPartition("b", 0): (1, 2), TopicPartition("a", 10): (3,)}
    file = tmp_path / "plan.json"
    file.write_text(plan_text(plan))
    assert read_plan(file) == plan
    assert json.loads(file.read_text()) == {
        "version": 1,
        "partitions": [
            {"topic": "a", "partition": 10, "replicas": [3], "log_dirs": ["any"]},
            {"topic": "b", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]},
        ],
    }


def test_kafkas_file_without_log_directories(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text('{"partitions":[{"topic":"foo","partition":1,"replicas":[1,2,3]}],"version":1}')
    assert read_plan(file) == {TopicPartition("foo", 1): (1, 2, 3)}


ROW = '{"topic": "a", "partition": 0, "replicas": [1]}'


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("no", "is not JSON"),
        ("[]", "has no list of partitions"),
        ('{"version": 2, "partitions": []}', "has version 2; only version 1 is known"),
        ('{"partitions": []}', "has no partitions"),
        ('{"partitions": [{"topic": "a"}]}', 'needs "topic", "partition" and "replicas"'),
        ('{"partitions": [{"topic": "a", "partition": 0, "replicas": []}]}', 'needs "topic"'),
        ('{"partitions": [{"topic": "a", "partition": 0, "replicas": [1, "2"]}]}', 'needs "topic"'),
        ('{"partitions": [{"topic": "a", "partition": 0, "replicas": [1, 1]}]}', "has a broker twice"),
        (f'{{"partitions": [{ROW}, {ROW}]}}', "has partition a-0 twice"),
        (
            '{"partitions": [{"topic": "a", "partition": 0, "replicas": [1], "log_dirs": ["/data"]}]}',
            "names log directory '/data'",
        ),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, content: str, told: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(content)
    with pytest.raises(CommandError) as raised:
        read_plan(file)
    assert str(file) in str(raised.value)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("1000", 1000), ("50MB", 50_000_000), ("50 MiB/s", 52_428_800), ("1.5k", 1500), ("2g", 2_000_000_000), ("7b", 7)],
)
def test_sizes(text: str, rate: int) -> None:
    assert parse_size(text) == rate


@pytest.mark.parametrize("text", ["", "0", "MB", "-5", "5 apples", "5mm", "1e"])
def test_what_is_not_a_size(text: str) -> None:
    with pytest.raises(CommandError, match="is not a number of bytes per second"):
        parse_size(text)
