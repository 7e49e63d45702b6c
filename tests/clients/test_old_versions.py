"""kafka-python speaking as to brokers of long ago: the same work in the requests of that time."""

from __future__ import annotations

import os
from typing import Any

import pytest

from support.clients.dialect import Client, ProducerSettings
from support.clients.expectations import VARIED, as_seen, numbered
from support.clients.kafka_python_client import KafkaPythonClient
from support.clients.peers import KAFKA, Peer
from support.waiting import wait_until

SPOKEN = [(0, 11), (1, 0), (1, 1), (2, 1), (2, 4), (2, 8), (3, 5), (4, 0)]
OLDEST_OF_KAFKA_4 = (2, 1)


def _named(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


@pytest.fixture(params=SPOKEN, ids=_named)
def old_client(request: pytest.FixtureRequest, broker: Peer) -> Client:
    version: tuple[int, ...] = request.param
    if os.environ.get("OTTLA_TEST_PEER") == KAFKA and version < OLDEST_OF_KAFKA_4:
        pytest.skip("Kafka 4 speaks no version that is older than 2.1")

    class OldClient(KafkaPythonClient):
        @property
        def common(self) -> dict[str, Any]:
            return {**super().common, "api_version": version}

    return OldClient(broker.bootstrap)


@pytest.mark.parametrize("idempotent", [False, True])
def test_records_are_written_and_read(idempotent: bool, old_client: Client, topic: str) -> None:
    old_client.produce(topic, VARIED, ProducerSettings(codec="gzip", idempotent=idempotent))
    with old_client.consumer(topic) as consumer:
        assert consumer.take(len(VARIED)) == as_seen(VARIED)
        assert consumer.bounds(0) == (0, len(VARIED))
        assert consumer.offset_for_time(0, VARIED[1].timestamp_ms or 0) == 1
        consumer.seek(0, 2)
        assert consumer.take(1) == as_seen(VARIED[2:3], 2)


@pytest.mark.parametrize("old_client", [version for version in SPOKEN if version >= (1, 0)], indirect=True, ids=_named)
def test_topics_are_managed(old_client: Client, topic: str) -> None:
    with old_client.admin() as admin:
        admin.create_topic(topic, partitions=2, config={"retention.ms": "5000"})
        admin.create_partitions(topic, 3)
        wait_until(lambda: sorted(admin.describe_topic(topic)) == [0, 1, 2], "the new partition is not there")
        assert admin.topic_config(topic)["retention.ms"].value == "5000"
        admin.replace_topic_config(topic, {"segment.bytes": "2000000"})
        wait_until(lambda: admin.topic_config(topic)["segment.bytes"].value == "2000000", "no change is seen")
        old_client.produce(topic, numbered(5, partition=2))
        assert admin.delete_records(topic, 2, before=3) == 3
        admin.delete_topic(topic)
        wait_until(lambda: topic not in admin.topics(), "the deleted topic is still listed")
