"""The project of docs/spark/declarative.md, from topics to topics, run by the program behind `spark-pipelines`.

It talks to a Spark Connect server in the Java of the session that all tests share: no second one is started.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from docs.examples import ADDRESS
from ottla import Consumer, Producer, TopicPartition
from support.clients.nowhere import closed_port
from support.clients.peers import Peer, running_peer

PAGE = Path(__file__).parents[2] / "docs" / "spark" / "declarative.md"
DATABASE = "declared"
WAIT_S = 300
"""Only a failure waits that long."""


@pytest.fixture
def shop_broker(tmp_path: Path) -> Iterator[Peer]:
    """The topics of the page have fixed names."""
    with running_peer(tmp_path / "broker", {"auto.create.topics.enable": "true"}) as peer:
        yield peer


@pytest.fixture
def server(spark: SparkSession) -> Iterator[str]:
    """The address of a Spark Connect server."""
    java: Any = spark._jvm
    port = closed_port()
    settings = spark._jsc.sc().conf()
    settings.set("spark.connect.grpc.binding.address", "127.0.0.1").set("spark.connect.grpc.binding.port", str(port))
    plugin = java.org.apache.spark.sql.connect.SparkConnectPlugin().driverPlugin()
    plugin.init(spark._jsc.sc(), None)
    yield f"sc://127.0.0.1:{port}"
    plugin.shutdown()


@pytest.fixture
def project(spark: SparkSession, shop_broker: Peer, tmp_path: Path) -> Iterator[Path]:
    """The page's files, with checkpoints and tables in the directory of the test."""
    (spec,), (flows,) = (
        re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL) for kind in ("yaml", "py")
    )
    settings = yaml.safe_load(spec)
    settings |= {"storage": f"{tmp_path.as_uri()}/storage", "database": DATABASE}
    (tmp_path / "spark-pipeline.yml").write_text(yaml.safe_dump(settings))
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "orders.py").write_text(flows.replace(ADDRESS, shop_broker.bootstrap))
    spark.sql(f"CREATE DATABASE {DATABASE} LOCATION '{tmp_path.as_uri()}/tables'")
    yield tmp_path
    spark.sql(f"DROP DATABASE {DATABASE} CASCADE")


def run(project: Path, server: str) -> None:
    """What `spark-pipelines run` does in a directory, but for the Java that it starts."""
    ended = subprocess.run(
        [sys.executable, "-m", "pyspark.pipelines.cli", "run"],
        cwd=project,
        env={**os.environ, "SPARK_REMOTE": server},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (ended.returncode, "Run is COMPLETED" in ended.stdout + ended.stderr) == (0, True), ended.stderr


def committed(broker: Peer, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=broker.bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0, until=consumer.end_offsets([partition])[partition])
        return [(record.key, record.value) for record in consumer]


def test_from_topic_to_topic_and_on_from_there(
    spark: SparkSession, server: str, project: Path, shop_broker: Peer
) -> None:
    sent: list[list[bytes]] = [[b'{"id": 1, "item": "pen"}', b"nonsense"], [b'{"id": 2, "item": "ink"}', b"{}"]]
    for values in sent:
        with Producer(bootstrap_servers=shop_broker.bootstrap) as producer:
            for value in values:
                producer.send("orders", value)
        run(project, server)
    assert committed(shop_broker, "items") == [(b"1", b"pen"), (b"2", b"ink")]
    assert committed(shop_broker, "bad-orders") == [(None, b"nonsense"), (None, b"{}")]
    assert sorted(spark.table(f"{DATABASE}.orders").collect()) == [(1, "pen"), (2, "ink")]
