"""What the log tells operators, a line each: topics, configs, slow requests."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ottla.broker.dispatch import Dispatcher
from ottla.controller.wanted_topics import NewPartitionCount
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsEntry,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataTopic
from support.brokers import Client, with_client

TOPIC, BROKER, GROUP = 2, 4, 32


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was written since it was last emptied, without what a start says."""
    caplog.set_level(logging.INFO, "ottla")
    found: list[str] = []
    monkeypatch.setattr(caplog.handler, "emit", lambda record: found.append(record.getMessage()))
    return found


def taken(lines: list[str]) -> list[str]:
    found, lines[:] = list(lines), []
    return found


def test_topics_and_configs_that_change_are_reported(tmp_path: Path, lines: list[str]) -> None:
    async def alter(client: Client, kind: int, name: str, **changes: str | None) -> None:
        configs = [
            IncrementalAlterConfigsEntry(
                name=key.replace("_", "."), config_operation=0 if value is not None else 1, value=value
            )
            for key, value in changes.items()
        ]
        resource = IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = await client.ask(request, IncrementalAlterConfigsResponse, 1)
        assert [one.error_code for one in answer.responses] == [0], answer

    async def work(client: Client) -> None:
        taken(lines)
        await client.create_topic("orders", partitions=3, retention_ms="5000")
        assert taken(lines) == ["created topic orders with 3 partitions, replication factor 1, retention.ms=5000"]
        await client.ask(MetadataRequest(topics=[MetadataTopic(name="new")]), MetadataResponse, 9)
        assert taken(lines) == [
            "created topic new with 1 partition, replication factor 1 (automatically, because test at 127.0.0.1 asked "
            "for it: auto.create.topics.enable)"
        ]
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        await client.ask(request, FindCoordinatorResponse, 4)
        (told,) = [line for line in taken(lines) if line.startswith("created topic")]
        assert told.startswith("created topic __consumer_offsets with 2 partitions")
        assert told.endswith("(automatically, for the offsets of consumer groups)")

        await client.broker.controller.grow_topics([NewPartitionCount("orders", 5)])
        await client.broker.controller.close()  # the line comes after the answer
        assert taken(lines) == ["altered topic orders: it now has 5 partitions, up from 3"]
        await alter(client, TOPIC, "orders", retention_ms="1000", segment_ms="60000")
        told = "changed configs of topic orders: retention.ms=1000 (was 5000), segment.ms=60000 (was not set)"
        assert taken(lines) == [told]
        await alter(client, TOPIC, "orders", retention_ms="1000")
        assert taken(lines) == []  # nothing changed
        await alter(client, TOPIC, "orders", retention_ms=None)
        assert taken(lines) == ["changed configs of topic orders: retention.ms removed (was 1000)"]
        await alter(client, BROKER, "", log_retention_ms="77")
        assert taken(lines) == ["changed configs of all brokers: log.retention.ms=77 (was not set)"]
        await alter(client, BROKER, "1", log_retention_ms="78")
        assert taken(lines) == ["changed configs of broker 1: log.retention.ms=78 (was not set)"]
        await alter(client, GROUP, "g", consumer_session_timeout_ms="50000")
        assert taken(lines) == ["changed configs of group g: consumer.session.timeout.ms=50000 (was not set)"]

        deletion = DeleteTopicsRequest(topic_names=["orders", "unknown"], timeout_ms=1000)
        await client.ask(deletion, DeleteTopicsResponse, 5)
        await client.broker.controller.close()
        assert taken(lines) == ["deleted topic orders, which had 5 partitions"]

    with_client(tmp_path, work, offsets_topic_num_partitions="2")


def test_slow_requests_are_reported_and_those_that_wait_on_purpose_are_not(tmp_path: Path, lines: list[str]) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        taken(lines)
        for _ in range(3):
            await client.ask(DescribeClusterRequest(), DescribeClusterResponse, 1)
        (told,) = taken(lines)  # the others within ten seconds are left out
        assert told.startswith("slow request: DescribeCluster v1 of test at 127.0.0.1:1 took 0.")
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        topic = FetchTopic(topic="orders", partitions=[wanted])
        request = FetchRequest(max_wait_ms=20, min_bytes=1, max_bytes=1000, topics=[topic])
        await client.ask(request, FetchResponse, 12)
        assert taken(lines) == []

    with_client(tmp_path, work, ottla_slow_request_ms="0")


@pytest.mark.parametrize(("setting", "is_told"), [("-1", False), ("1000", False), ("0", True)])
def test_the_threshold_of_slow_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, is_told: bool
) -> None:
    async def work(client: Client) -> None:
        told: list[object] = []
        monkeypatch.setattr(Dispatcher, "tell_slow", lambda *_: told.append(1))
        await client.ask(DescribeClusterRequest(), DescribeClusterResponse, 1)
        assert bool(told) == is_told

    with_client(tmp_path, work, ottla_slow_request_ms=setting)
