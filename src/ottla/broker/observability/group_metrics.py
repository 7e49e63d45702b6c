"""Metrics of groups for Prometheus: their number and their lag.

Imported only if `ottla.metrics.port` is set, like `metrics`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ottla.coordinator.groups.offsets.lag import EndOf, lags
from ottla.coordinator.groups.service import GroupCoordinatorService

_TOPICS_AT_A_TIME: Final = 100
_PAUSE_S: Final = 0.001
"""Long enough for the loop to take over the interpreter."""


class GroupCollector(Collector):
    """`collect` may run in any thread."""

    def __init__(self, groups: GroupCoordinatorService, end_of: EndOf) -> None:
        self._groups = groups
        self._end_of = end_of

    def describe(self) -> Iterable[Metric]:
        """Empty: otherwise registering would collect once."""
        return ()

    def collect(self) -> Iterator[Metric]:
        shards = self._groups.runtime.active_shards()
        counts = Counter(
            (group.type_name, group.state_name) for shard in shards for group in list(shard.groups.values())
        )
        groups = GaugeMetricFamily("ottla_groups", "Groups of this coordinator.", labels=["type", "state"])
        for labels, count in sorted(counts.items()):
            groups.add_metric(labels, count)
        offsets = GaugeMetricFamily("ottla_group_offsets", "Partitions with an offset.", labels=["group", "topic"])
        behind = GaugeMetricFamily("ottla_group_lag", "Records not read yet.", labels=["group", "topic"])
        for seen, topic in enumerate(lags([shard.offsets for shard in shards], self._end_of)):
            if seen % _TOPICS_AT_A_TIME == _TOPICS_AT_A_TIME - 1:
                time.sleep(_PAUSE_S)
            offsets.add_metric([topic.group_id, topic.topic], topic.partition_count)
            behind.add_metric([topic.group_id, topic.topic], topic.lag)
        yield from (groups, offsets, behind)
