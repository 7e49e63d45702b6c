"""What a YAML pipeline passes on to Spark, as far as it needs no session."""

from __future__ import annotations

from pathlib import Path

from ottla.spark.options import WriteOptions
from ottla.spark.pipelines.yaml_build import bad_options
from ottla.spark.pipelines.yaml_spec import read_spec

SECURE = """\
bootstrap: broker:9093
sources:
  orders:
    topic: orders
    json: id BIGINT
    bad: bad-orders
    options:
      startingOffsets: earliest
      kafka.max.request.size: 5000000
      Kafka.client.id: shop
      kafka.isolation.level: read_committed
sinks:
  orders:
    topic: copies
"""


def test_the_writer_of_bad_records_has_the_client_configs_of_the_source(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(SECURE)
    options = bad_options(read_spec(file).sources[0])
    assert WriteOptions.parse({**options, "topic": "bad"}).client_settings == {
        "bootstrap.servers": "broker:9093",
        "max.request.size": "5000000",
        "client.id": "shop",
    }
