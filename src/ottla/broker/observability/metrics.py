"""A broker's metrics for Prometheus, collected from counters when scraped.

Served over HTTP by a separate thread. A scrape looks at every log, so it takes snapshots and yields to the loop from
time to time. Logs are summed by topic: a series for each of ten thousand partitions would cost more than it is worth.

Imported only if `ottla.metrics.port` is set: the library needs memory.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ottla.base.error_codes import ErrorCode
from ottla.broker.observability.request_stats import ApiStats, RequestStats
from ottla.broker.observability.upkeep_stats import UpkeepStats
from ottla.log.directories import LogDirectories
from ottla.wire.framing import api_of

_SHOWN_BUCKETS: Final = range(5, 26)
"""32 microseconds to half a minute; values outside count in the nearest bucket."""
_LOGS_AT_A_TIME: Final = 200
_PAUSE_S: Final = 0.001
"""Long enough for the loop to take over the interpreter."""


class BrokerCollector(Collector):
    """Metrics of requests, connections and logs. `collect` may run in any thread."""

    def __init__(self, stats: RequestStats, directories: LogDirectories, upkeep: UpkeepStats) -> None:
        self._stats = stats
        self._directories = directories
        self._upkeep = upkeep

    def describe(self) -> Iterable[Metric]:
        """Empty: otherwise registering would collect once."""
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from self._requests()
        yield from self._connections()
        yield from self._waiting()
        yield from self._logs()
        yield from self._log_directories()
        yield from self._log_upkeep()

    def _requests(self) -> Iterator[Metric]:
        count = CounterMetricFamily("ottla_request", "Requests that were answered.", labels=["api"])
        received = CounterMetricFamily("ottla_request_bytes", "Bytes of requests, with their sizes.", labels=["api"])
        sent = CounterMetricFamily("ottla_response_bytes", "Bytes of responses, with their sizes.", labels=["api"])
        errors = CounterMetricFamily("ottla_request_error", "Error codes in responses.", labels=["api", "error"])
        seconds = HistogramMetricFamily("ottla_request_seconds", "From reading to answering.", labels=["api"])
        for api_key, api in sorted(self._stats.apis.copy().items()):
            name = api_of(api_key).name
            count.add_metric([name], api.requests)
            received.add_metric([name], api.request_bytes)
            sent.add_metric([name], api.response_bytes)
            seconds.add_metric([name], _cumulated(api), api.seconds)
            for code, times in sorted(api.errors.copy().items()):
                errors.add_metric([name, ErrorCode.of(code).name], times)
        yield from (count, received, sent, errors, seconds)

    def _connections(self) -> Iterator[Metric]:
        connections = self._stats.connections
        yield GaugeMetricFamily("ottla_connections", "Connections that are open.", connections.open_now)
        yield CounterMetricFamily("ottla_connection_opened", "Connections that were accepted.", connections.opened)
        yield CounterMetricFamily("ottla_connection_closed", "Connections that ended.", connections.closed)
        refused = CounterMetricFamily(
            "ottla_connection_refused", "Connections that were not let in.", labels=["reason"]
        )
        for reason, times in sorted(connections.refused.copy().items()):
            refused.add_metric([reason], times)
        yield refused

    def _waiting(self) -> Iterator[Metric]:
        waiting = GaugeMetricFamily("ottla_purgatory_size", "Requests that wait.", labels=["operation"])
        for name, size in sorted(self._stats.purgatories.copy().items()):
            waiting.add_metric([name], size())
        yield waiting

    def _logs(self) -> Iterator[Metric]:
        sums: dict[str, list[int]] = {}
        for seen, log in enumerate(list(self._directories.logs())):
            if seen % _LOGS_AT_A_TIME == _LOGS_AT_A_TIME - 1:
                time.sleep(_PAUSE_S)
            topic = sums.setdefault(log.partition.topic, [0, 0, 0, 0, 0, 0])
            topic[0] += 1
            topic[1] += log.size
            topic[2] += log.log_start_offset
            topic[3] += log.next_offset
            topic[4] += log.damages.count
            topic[5] += log.damages.repair_count
        families = (
            GaugeMetricFamily("ottla_partitions", "Replicas on this broker.", labels=["topic"]),
            GaugeMetricFamily("ottla_log_size_bytes", "Bytes of records on disk.", labels=["topic"]),
            GaugeMetricFamily("ottla_log_start_offset", "Start offsets of all partitions, added up.", labels=["topic"]),
            GaugeMetricFamily("ottla_log_end_offset", "End offsets of all partitions, added up.", labels=["topic"]),
            GaugeMetricFamily("ottla_log_damaged_places", "Places in log files found damaged.", labels=["topic"]),
            GaugeMetricFamily("ottla_log_repaired_files", "Files found damaged and repaired.", labels=["topic"]),
        )
        for name, values in sorted(sums.items()):
            for family, value in zip(families, values, strict=True):
                family.add_metric([name], value)
        yield from families

    def _log_directories(self) -> Iterator[Metric]:
        online = GaugeMetricFamily(
            "ottla_log_directory_online", "1 if it is used, 0 if it failed.", labels=["directory"]
        )
        total = GaugeMetricFamily("ottla_log_directory_size_bytes", "Size of the volume.", labels=["directory"])
        usable = GaugeMetricFamily("ottla_log_directory_usable_bytes", "Room on the volume.", labels=["directory"])
        for directory in self._directories.directories:
            path = str(directory.path)
            online.add_metric([path], directory.failure is None)
            if directory.failure is None:
                try:
                    volume = shutil.disk_usage(directory.path)
                except OSError:  # the broker itself handles a failed directory
                    continue
                total.add_metric([path], volume.total)
                usable.add_metric([path], volume.free)
        yield from (online, total, usable)

    def _log_upkeep(self) -> Iterator[Metric]:
        uncleanable = GaugeMetricFamily(
            "ottla_uncleanable_partitions",
            "Logs that are not compacted any more, because of an error.",
            labels=["directory"],
        )
        not_retained = GaugeMetricFamily(
            "ottla_retention_failed_partitions",
            "Logs of which old records could not be deleted, because of an error.",
            labels=["directory"],
        )
        for family, folders in (
            (uncleanable, self._upkeep.uncleanable()),
            (not_retained, self._upkeep.not_retained),
        ):
            counts = Counter(folder.parent for folder in folders)
            for directory in self._directories.directories:
                family.add_metric([str(directory.path)], counts[directory.path])
        failures = CounterMetricFamily(
            "ottla_log_upkeep_failure", "Unexpected errors in the upkeep of logs.", labels=["task"]
        )
        for task, times in sorted(self._upkeep.failures.copy().items()):
            failures.add_metric([task], times)
        yield from (uncleanable, not_retained, failures)


def _cumulated(api: ApiStats) -> list[tuple[str, float]]:
    counts = list(api.buckets)
    shown = [(str(2**bits / 1_000_000), float(sum(counts[: bits + 1]))) for bits in _SHOWN_BUCKETS]
    return [*shown, ("+Inf", float(sum(counts)))]


class MetricsServer:
    """Serves scrapes until closed."""

    def __init__(
        self,
        stats: RequestStats,
        directories: LogDirectories,
        upkeep: UpkeepStats,
        others: Iterable[Collector],
        *,
        host: str,
        port: int,
    ) -> None:
        """`others` are collected as well. Port 0 chooses a free port."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(BrokerCollector(stats, directories, upkeep))
        for collector in others:
            registry.register(collector)
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            reason = f"metrics cannot be served on {host}:{port} ({error.strerror}); check ottla.metrics.host and .port"
            raise OSError(error.errno, reason) from error
        self.port: int = self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
