from __future__ import annotations

import asyncio
import errno
import re
import socket
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.observability.group_metrics import GroupCollector
from ottla.broker.observability.metrics import MetricsServer
from ottla.broker.observability.replica_metrics import ReplicaCollector
from ottla.broker.observability.request_stats import RequestStats
from ottla.broker.observability.transaction_metrics import TransactionCollector
from ottla.broker.observability.upkeep_stats import UpkeepStats
from ottla.testing.manual_clock import ManualClock
from support.brokers.hosted_numbers import hosted_numbers
from support.brokers.small_broker import SmallBroker, small_broker
from support.coordinators.committers import Committers
from support.logs.batches import batch

DOCUMENTATION = Path(__file__).parents[4] / "docs" / "metrics.md"
PRODUCE, LIST_OFFSETS = 0, 2

Samples = dict[tuple[str, tuple[str, ...]], float]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmallBroker]:
    with small_broker(tmp_path) as broker:
        yield broker


def scrape(server: MetricsServer) -> tuple[Samples, dict[str, str]]:
    """Values by name and labels, and the kind of each metric that is ours."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as response:
        families = list(text_string_to_metric_families(response.read().decode()))
    samples = {(each.name, tuple(each.labels.values())): each.value for family in families for each in family.samples}
    kinds = {
        family.name + ("_total" if family.type == "counter" else ""): family.type
        for family in families
        if family.name.startswith("ottla_")
    }
    return samples, kinds


@pytest.fixture
def stats() -> RequestStats:
    return RequestStats()


@pytest.fixture
def upkeep() -> UpkeepStats:
    return UpkeepStats(ManualClock())


@pytest.fixture
def groups() -> Committers:
    return Committers()


@pytest.fixture
def collector(groups: Committers) -> GroupCollector:
    """Every partition of topic t ends at 100; those of u are elsewhere."""
    return GroupCollector(groups.coordinator, lambda topic, _: 100 if topic == "t" else None)


@pytest.fixture
def server(
    broker: SmallBroker, stats: RequestStats, collector: GroupCollector, upkeep: UpkeepStats
) -> Iterator[MetricsServer]:
    transactions = TransactionCollector(hosted_numbers(), broker.replicas, broker.clock)
    collectors = [ReplicaCollector(broker.replicas), collector, transactions]
    server = MetricsServer(stats, broker.directories, upkeep, collectors, host="127.0.0.1", port=0)
    yield server
    server.close()


def test_requests(server: MetricsServer, stats: RequestStats) -> None:
    produce = stats.api(PRODUCE)
    produce.observe(100, 50, 0.000_100)
    produce.observe(200, 60, 0.000_001)
    produce.observe(300, 70, 1_000.0)
    stats.api(LIST_OFFSETS).count_error(3)
    stats.api(LIST_OFFSETS).count_error(3)
    samples, _ = scrape(server)
    assert samples["ottla_request_total", ("Produce",)] == 3
    assert samples["ottla_request_total", ("ListOffsets",)] == 0
    assert samples["ottla_request_bytes_total", ("Produce",)] == 600
    assert samples["ottla_response_bytes_total", ("Produce",)] == 180
    assert samples["ottla_request_error_total", ("ListOffsets", "UNKNOWN_TOPIC_OR_PARTITION")] == 2
    assert samples["ottla_request_seconds_count", ("Produce",)] == 3
    assert samples["ottla_request_seconds_sum", ("Produce",)] == pytest.approx(1000.000101)
    buckets = {
        labels[1]: value
        for (name, labels), value in samples.items()
        if name == "ottla_request_seconds_bucket" and labels[0] == "Produce"
    }
    assert buckets["3.2e-05"] == 1
    assert buckets["6.4e-05"] == 1
    assert buckets["0.000128"] == 2
    assert buckets["33.554432"] == 2
    assert buckets["+Inf"] == 3


def test_connections_and_waiting_operations(server: MetricsServer, stats: RequestStats) -> None:
    stats.connections.opened, stats.connections.closed = 5, 2
    stats.connections.count_refused("max.connections")
    stats.purgatories["fetch"] = [1, 2, 3].__len__
    samples, _ = scrape(server)
    assert samples["ottla_connections", ()] == 3
    assert samples["ottla_connection_opened_total", ()] == 5
    assert samples["ottla_connection_closed_total", ()] == 2
    assert samples["ottla_connection_refused_total", ("max.connections",)] == 1
    assert samples["ottla_purgatory_size", ("fetch",)] == 3


def test_logs_are_summed_by_topic(server: MetricsServer, broker: SmallBroker) -> None:
    first = broker.topic("first", 3)
    for partition in first:
        partition.append(batch(4), all_replicas=True)
    first[0].delete_records(2)
    broker.topic("second")
    samples, _ = scrape(server)
    assert samples["ottla_partitions", ("first",)] == 3
    assert samples["ottla_log_size_bytes", ("first",)] == 3 * len(batch(4))
    assert samples["ottla_log_start_offset", ("first",)] == 2
    assert samples["ottla_log_end_offset", ("first",)] == 12
    assert samples["ottla_log_end_offset", ("second",)] == 0


def test_log_directories(server: MetricsServer, broker: SmallBroker, tmp_path: Path) -> None:
    first, second = str(tmp_path / "logs0"), str(tmp_path / "logs1")
    broker.directories.take_offline(broker.directories.directories[1], "gone")
    samples, _ = scrape(server)
    assert samples["ottla_log_directory_online", (first,)] == 1
    assert samples["ottla_log_directory_online", (second,)] == 0
    usable, size = (samples[f"ottla_log_directory_{what}_bytes", (first,)] for what in ("usable", "size"))
    assert 0 < usable < size
    assert ("ottla_log_directory_size_bytes", (second,)) not in samples


def test_groups_and_how_far_they_are_behind(server: MetricsServer, groups: Committers) -> None:
    asyncio.run(groups.commit({("t", 0): 90, ("t", 1): 40, ("u", 0): 7}))
    asyncio.run(groups.commit({("t", 0): 130}, group_id="ahead"))
    samples, _ = scrape(server)
    assert samples["ottla_groups", ("Empty", "classic")] == 2
    assert samples["ottla_group_offsets", ("g", "t")] == 2
    assert samples["ottla_group_lag", ("g", "t")] == 70
    assert samples["ottla_group_lag", ("ahead", "t")] == 0
    assert ("ottla_group_lag", ("g", "u")) not in samples


def test_the_process(server: MetricsServer) -> None:
    samples, _ = scrape(server)
    assert samples["process_resident_memory_bytes", ()] > 1_000_000
    assert samples["process_cpu_seconds_total", ()] > 0
    assert ("python_gc_collections_total", ("0",)) in samples


def test_every_metric_is_documented_as_it_is(server: MetricsServer) -> None:
    documented = dict(re.findall(r"^\| `(ottla_\w+)` \| (\w+) \|", DOCUMENTATION.read_text(), re.MULTILINE))
    assert scrape(server)[1] == documented


def test_topics_may_come_while_it_looks(server: MetricsServer, broker: SmallBroker) -> None:
    broker.topic("many", 50)
    is_over = threading.Event()
    failures: list[BaseException] = []

    def look() -> None:
        try:
            while not is_over.is_set():
                scrape(server)
        except BaseException as error:
            failures.append(error)

    looking = threading.Thread(target=look)
    looking.start()
    for number in range(40):
        broker.topic(f"topic{number}")
        broker.replicas.delete(broker.topic(f"gone{number}")[0].name)
    is_over.set()
    looking.join()
    assert not failures


def test_logs_that_cannot_be_looked_after(
    server: MetricsServer, broker: SmallBroker, upkeep: UpkeepStats, tmp_path: Path
) -> None:
    first, second = tmp_path / "logs0", tmp_path / "logs1"
    upkeep.uncleanable = lambda: [second / "a-0", second / "b-0"]
    (partition,) = broker.topic("orders")
    assert partition.log is not None
    upkeep.retention_failed(partition.log, ValueError("damaged"))
    samples, _ = scrape(server)
    assert samples["ottla_uncleanable_partitions", (str(first),)] == 0
    assert samples["ottla_uncleanable_partitions", (str(second),)] == 2
    where = str(partition.log.directory.parent)
    assert samples["ottla_retention_failed_partitions", (where,)] == 1
    assert samples["ottla_log_upkeep_failure_total", ("retention",)] == 1


def test_closing_gives_the_port_back(broker: SmallBroker, stats: RequestStats, collector: GroupCollector) -> None:
    upkeep = UpkeepStats(ManualClock())
    server = MetricsServer(stats, broker.directories, upkeep, [collector], host="127.0.0.1", port=0)
    threads = threading.active_count()
    server.close()
    assert threading.active_count() == threads - 1
    with socket.create_server(("127.0.0.1", server.port)):
        pass


def test_a_port_in_use_is_named(
    server: MetricsServer, broker: SmallBroker, stats: RequestStats, collector: GroupCollector
) -> None:
    with pytest.raises(OSError, match=rf"127\.0\.0\.1:{server.port}.*ottla\.metrics") as caught:
        MetricsServer(
            stats, broker.directories, UpkeepStats(ManualClock()), [collector], host="127.0.0.1", port=server.port
        )
    assert caught.value.errno == errno.EADDRINUSE
