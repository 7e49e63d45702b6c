"""What a YAML pipeline passes on to Spark, as far as it needs no session."""

from __future__ import annotations

from pathlib import Path

from ottla.spark.options import WriteOptions
from ottla.spark.pipelines.yaml_build import bad_options
from ottla.spark.pipelines.yaml_spec import read_spec

FAR = """\
sources:
  orders:
    topic: orders
    json: id BIGINT
    bad: bad-orders
    options:
      startingOffsets: earliest
      kafka.client.id: shop
      kafka.request.timeout.ms: 90000
      kafka.fetch.max.bytes: 1000000
      Kafka.Max.Request.Size: 5000000
sinks:
  orders: {topic: copy}
"""


def test_bad_records_are_written_with_the_sources_way_to_the_cluster(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(FAR)
    (source,) = read_spec(file, "broker:9092").sources
    written = WriteOptions.parse(bad_options(source))
    assert written.topic == "bad-orders"
    assert written.client_settings == {
        "bootstrap.servers": "broker:9092",
        "client.id": "shop",
        "request.timeout.ms": "90000",
        "max.request.size": "5000000",  # the file's own
        "buffer.memory": "104857600",
        "compression.type": "gzip",
    }
