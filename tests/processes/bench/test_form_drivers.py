"""The loads of the bench of forms on a broker of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from bench.broker.control import Control
from bench.forms.driver import drivers
from bench.forms.lines import QUICK, Amounts, lines_of

from ottla.testing.broker import Broker

DRIVERS = drivers()
TEXT = {"value_bytes": 100, "count": 20, "connections": 2, "in_flight": 2, "seconds": 0.05}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


def figures(load: str, broker: Broker, **arguments: Any) -> dict[str, float]:
    found: dict[str, float] = DRIVERS[load](address=broker.bootstrap, pid=broker.process.pid, **arguments)
    return found


@pytest.mark.parametrize(
    ("load", "configs", "arguments"),
    [
        ("batches", {"compression.type": "lz4"}, {**TEXT, "compression": "gzip", "keys": 0}),
        ("batches", {"cleanup.policy": "compact"}, {**TEXT, "compression": "none", "keys": 5}),
        ("wide_produce", {}, {"width": 4, "seconds": 0.05}),
        ("wide_fetch", {}, {"width": 4, "seconds": 0.05}),
        ("fan_out", {}, {"consumers": 2, "total_mb": 3}),
        ("librdkafka", {}, {"value_bytes": 100, "total_mb": 1, "compression": "zstd", "keys": 10}),
    ],
)
def test_loads_of_records(broker: Broker, load: str, configs: dict[str, str], arguments: dict[str, Any]) -> None:
    topic = f"{load}-{len(configs)}-{arguments.get('compression')}"
    with Control(broker.bootstrap) as control:
        control.create_topic(topic, 4, configs)
    found = figures(load, broker, topic=topic, **arguments)
    assert found.get("mb_per_s", found.get("requests_per_s", 0)) > 0


def test_admin_work(broker: Broker) -> None:
    found = figures("topics_live", broker, prefix="live", topics=5, partitions=2, settled_s=0)
    steps = {f"{step}_ms" for step in ("create", "list_offsets", "describe", "alter", "grow", "delete")}
    assert found.keys() == {*steps, "cpu_s"}
    assert figures("one_by_one", broker, prefix="single", seconds=0.05)["requests_per_s"] > 0
    assert figures("all_metadata", broker, seconds=0.05)["requests_per_s"] > 0


def test_groups_join(broker: Broker) -> None:
    with Control(broker.bootstrap) as control:
        control.create_topic("joined")
    assert figures("joins", broker, prefix="group", seconds=0.2)["requests_per_s"] > 0


def test_every_line_has_a_key_of_its_own_and_a_target() -> None:
    for amounts in (QUICK, Amounts()):
        lines = lines_of(amounts)
        assert len({line.key for line in lines}) == len(lines)
        assert all(any(metric.target is not None for metric in line.metrics) for line in lines)
