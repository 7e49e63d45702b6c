from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers.describe_log_dirs import describe_log_dirs
from ottla.wire.codec import encode
from ottla.wire.messages.describe_log_dirs import DescribedLogDir, DescribeLogDirsRequest, DescribeLogDirsTopic
from support.brokers.small_broker import SmallBroker, context, small_broker
from support.logs.batches import batch

Wanted = dict[str, list[int]]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmallBroker]:
    """Two topics of two partitions each, one of them in each directory."""
    with small_broker(tmp_path) as broker:
        for name in ("first", "second"):
            for partition in broker.topic(name, 2):
                partition.append(batch(2), all_replicas=True)
        yield broker


def ask(broker: SmallBroker, wanted: Wanted | None = None) -> list[DescribedLogDir]:
    topics = None
    if wanted is not None:
        topics = [DescribeLogDirsTopic(topic=name, partitions=indexes) for name, indexes in wanted.items()]
    response = describe_log_dirs(broker, DescribeLogDirsRequest(topics=topics), context(5))  # type: ignore[arg-type]
    for version in DescribeLogDirsRequest.versions:
        encode(response, version)
    assert response.error_code == ErrorCode.NONE
    return response.results


def held(result: DescribedLogDir) -> Wanted:
    return {topic.name: [each.partition_index for each in topic.partitions] for topic in result.topics}


def test_everything(broker: SmallBroker, tmp_path: Path) -> None:
    first, second = ask(broker)
    assert [first.log_dir, second.log_dir] == [str(tmp_path / "logs0"), str(tmp_path / "logs1")]
    assert held(first) == {"first": [0], "second": [0]}
    assert held(second) == {"first": [1], "second": [1]}
    for result in (first, second):
        assert result.error_code == ErrorCode.NONE
        for topic in result.topics:
            (answer,) = topic.partitions
            assert answer.partition_size == len(batch(2))
            assert answer.offset_lag == 0
            assert not answer.is_future_key


def test_the_volume(broker: SmallBroker, tmp_path: Path) -> None:
    first, _ = ask(broker)
    assert first.total_bytes == shutil.disk_usage(tmp_path).total
    assert 0 < first.usable_bytes < first.total_bytes


def test_only_what_is_asked_for(broker: SmallBroker) -> None:
    first, second = ask(broker, {"first": [1, 5], "none": [0]})
    assert held(first) == {}
    assert held(second) == {"first": [1]}
    assert [held(result) for result in ask(broker, {})] == [{}, {}]


def test_a_directory_that_failed(broker: SmallBroker) -> None:
    broker.directories.take_offline(broker.directories.directories[0], "gone")
    first, second = ask(broker)
    assert (first.error_code, held(first)) == (ErrorCode.KAFKA_STORAGE_ERROR, {})
    assert first.total_bytes == first.usable_bytes == -1
    assert (second.error_code, held(second)) == (ErrorCode.NONE, {"first": [1], "second": [1]})


def test_a_directory_that_is_found_to_be_gone(broker: SmallBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    usage_of = shutil.disk_usage

    def usage(path: Path) -> object:
        if path.name == "logs1":
            raise OSError(5, "Input/output error")
        return usage_of(path)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    first, second = ask(broker)
    assert (first.error_code, second.error_code) == (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
    partition = broker.replicas.get("first", 1)
    assert partition is not None
    assert partition.log is None
