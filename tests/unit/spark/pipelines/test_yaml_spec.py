"""Pipelines in YAML: what they may say, and what is told of those that are wrong, with line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.example_files import write_example
from ottla.spark.pipelines.yaml_spec import PipelineSpec, Watermark, read_spec

GOOD = """\
bootstrap: broker:9092
sources:
  orders:
    topic: [orders, more]
    json: id BIGINT
    bad: bad-orders
    watermark: {column: at, delay: 1 minute}
    options: {startingOffsets: earliest, failOnDataLoss: false, minPartitions: 4}
  customers:
    format: csv
    path: customers.csv
transforms:
  totals: |
    SELECT 1
sinks:
  totals:
    topic: totals
    mode: update
    trigger: 10 seconds
  files:
    from: customers
    format: parquet
    path: s3a://lake/files
"""


def spec(folder: Path, text: str, bootstrap: str | None = None) -> PipelineSpec:
    file = folder / "shop.yaml"
    file.write_text(text)
    return read_spec(file, bootstrap)


def test_correct_histories_pass(tmp_path: Path) -> None:
    read = spec(tmp_path, GOOD)
    assert read.name == "shop"
    orders, customers = read.sources
    assert (orders.name, orders.format, orders.is_stream) == ("orders", "ottla", True)
    assert orders.options == {
        "kafka.bootstrap.servers": "broker:9092",
        "subscribe": "orders,more",
        "commitGroup": "shop-orders",
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
        "minPartitions": "4",
    }
    assert (orders.json, orders.bad, orders.watermark) == ("id BIGINT", "bad-orders", Watermark("at", "1 minute"))
    assert (customers.format, customers.is_stream, customers.options) == ("csv", False, {})
    assert customers.path == str(tmp_path / "customers.csv")
    assert [(one.name, one.sql) for one in read.transforms] == [("totals", "SELECT 1\n")]
    totals, files = read.sinks
    assert (totals.view, totals.mode, totals.trigger, totals.is_topic) == ("totals", "update", "10 seconds", True)
    assert totals.options == {"kafka.bootstrap.servers": "broker:9092", "topic": "totals"}
    assert (files.view, files.format, files.path, files.is_topic) == ("customers", "parquet", "s3a://lake/files", False)


def test_the_command_line_names_the_cluster(tmp_path: Path) -> None:
    read = spec(tmp_path, GOOD, "other:1")
    assert read.sources[0].options["kafka.bootstrap.servers"] == "other:1"
    assert read.sinks[0].options["kafka.bootstrap.servers"] == "other:1"


@pytest.mark.parametrize("option", ["commitOffsets: false", "kafka.group.id: mine", "groupIdPrefix: my"])
def test_a_group_that_the_file_names_stays(tmp_path: Path, option: str) -> None:
    read = spec(tmp_path, GOOD.replace("minPartitions: 4", option))
    assert "commitGroup" not in read.sources[0].options


def test_the_example_is_right(tmp_path: Path) -> None:
    assert [one.name for one in read_spec(write_example(tmp_path, as_yaml=True)[0]).sinks] == ["spending"]


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        (
            "topic: [orders, more]",
            "topik: orders",
            ":4: sources.orders.topik: unknown key; did you mean topic?",
        ),
        (
            "mode: update",
            "mode: updates",
            ":18: sinks.totals.mode: 'updates' is not one of append, update, complete, overwrite",
        ),
        ("mode: update", "zzz: 1", ":18: sinks.totals.zzz: unknown key; use one of from, topic, format"),
        ("sources:", "source:", ":2: source: unknown key; did you mean sources?"),
        (
            "from: customers",
            "from: custommers",
            ":21: sinks.files.from: unknown source or transform 'custommers'; did you",
        ),
        ("format: csv", "topic: x", ":11: sources.customers.path: belongs to a source with a format, not to a topic"),
        ("format: csv", "format: csv\n    json: a INT", ":11: sources.customers.json: belongs to a topic"),
        ("    format: csv\n", "", ":9: sources.customers: one of topic, pattern and format is required"),
        ("topic: totals", "topic: totals\n    format: x", ":18: sinks.totals.format: only one of topic and format"),
        (
            "    bad: bad-orders\n",
            "",
            ":3: sources.orders: bad is missing: set it to a topic for bad records, to `drop`, or to",
        ),
        ("    json: id BIGINT\n", "", ":5: sources.orders.bad: bad needs json or avro"),
        ("json: id BIGINT", "json: a INT\n    avro: x.avsc", ":6: sources.orders.avro: the file"),
        ("{column: at, delay: 1 minute}", "at", ":7: sources.orders.watermark: must be a mapping of keys to values"),
        (
            "{column: at, delay: 1 minute}",
            "{column: at}",
            ":7: sources.orders.watermark: column and delay are required",
        ),
        (
            "{column: at, delay: 1 minute}",
            "{colum: at}",
            ":7: sources.orders.watermark.colum: unknown key; did",
        ),
        ("bad: bad-orders", "stream: yep\n    bad: x", ":6: sources.orders.stream: must be true or false, not"),
        ("  totals: |\n    SELECT 1", "  orders: SELECT 1", ":13: transforms.orders: a source already has this name"),
        (
            "  totals: |\n    SELECT 1",
            "  Orders: SELECT 1",
            ":13: transforms.Orders: differs from orders only in case, which Spark ignores: use another name",
        ),
        ("  customers:", "  ORDERS:", ":9: sources.ORDERS: differs from orders only in case"),
        ("  files:", "  Totals:", ":20: sinks.Totals: differs from totals only in case"),
        (
            "  totals: |\n    SELECT 1",
            "  to-tals: SELECT 1",
            ":13: transforms.to-tals: a name must consist of letters, digits and _",
        ),
        (
            "  totals: |\n    SELECT 1",
            "  totals:",
            ":13: transforms.totals: must be a string, not nothing",
        ),
        ("    mode: update", "    raw: true\n    key: x", ":19: sinks.totals.key: cannot be used with raw"),
        ("path: customers.csv", "path: a\n    path: b", ":12: sources.customers.path: is given twice"),
        ("topic: totals", "topic: totals: 3", ":17: is not valid YAML: mapping values are not allowed here"),
        ("bootstrap: broker:9092", "bootstrap: [a", ": is not valid YAML: while parsing a flow sequence"),
    ],
)
def test_what_is_wrong(tmp_path: Path, right: str, wrong: str, told: str) -> None:
    assert right in GOOD
    with pytest.raises(PipelineError) as error:
        spec(tmp_path, GOOD.replace(right, wrong, 1))
    assert f"{tmp_path / 'shop.yaml'}" in str(error.value)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ":1: the file is empty. Create an example with `ottla pipeline new --yaml`"),
        ("[]", ":1: must be a mapping of keys to values, not a list"),
        ("sources: {}", ":1: sources: at least one is required"),
        ("sources: {a: {topic: a}}", ":1: sinks are missing"),
        ("a: !!python/object:os.system x", "is not valid YAML: could not determine a constructor"),
    ],
)
def test_files_that_say_too_little(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(PipelineError) as error:
        spec(tmp_path, text)
    assert told in str(error.value)


def test_a_file_of_bytes(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(b"a: \xff")
    with pytest.raises(PipelineError, match=r"is not valid UTF-8 \(at byte 3\)"):
        read_spec(file)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("id BIGINT", "id NONSENSE"),
        ("SELECT 1", "SELEKT 1"),
        ("startingOffsets: earliest", "startingOfsets: earliest"),
        ("format: csv", "format: cvs"),
        ("trigger: 10 seconds", "trigger: soon"),
        ("path: customers.csv", "path: absent.csv"),
    ],
)
def test_what_only_spark_can_judge_is_left_to_it(tmp_path: Path, right: str, wrong: str) -> None:
    """docs/spark/pipelines.md says what is checked when."""
    assert spec(tmp_path, GOOD.replace(right, wrong)).name == "shop"
