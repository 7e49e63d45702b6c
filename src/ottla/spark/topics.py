"""What the driver knows about the cluster: which partitions a query reads, and where they begin and end.

One object and one client per query; created and used in the planning process. An unavailable broker is asked again, for
`kafka.default.api.timeout.ms` at a time and `fetchOffset.numRetries` times.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from ottla.base.error_codes import ErrorCode
from ottla.base.errors import OttlaError
from ottla.base.ids import TopicPartition
from ottla.client.administer import Admin
from ottla.client.administer.outcomes import NOT_THERE, SomeRefusedError
from ottla.client.administer.topics import TopicDescription
from ottla.client.offsets import EARLIEST, LATEST, Place
from ottla.spark.offsets import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AtOffsets,
    AtTime,
    AtTimes,
    Earliest,
    Latest,
    PartitionOffsets,
    Position,
    TopicIds,
    named,
)
from ottla.spark.options import Partitions, ReadOptions, SubscribePattern, Topics

_logger = logging.getLogger(__name__)

T = TypeVar("T")


class SourceError(OttlaError):
    """A query cannot read what it should read."""


class MissingTopicError(SourceError):
    """Topics or partitions that a query names do not exist."""


class ClusterView:
    """The partitions of a query, and their current offsets. Only offsets of records that are visible at the query's
    isolation level. Not thread-safe."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._admin: Admin | None = None
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._partitions_until_s = -1.0
        self.topic_ids: TopicIds = {}
        """The ids of the topics of `partitions`, as of its last call, if the broker knows ids."""

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    # Partitions.

    def partitions(self, *, but_missing: bool = False) -> frozenset[TopicPartition]:
        """The current partitions. Missing ones that the query names are an error, or left out."""
        age_max_ms = self._options.partitions_age_max_ms
        if time.monotonic() < self._partitions_until_s:
            return self._partitions
        found = self._ask(lambda admin: self._find_partitions(admin, but_missing=but_missing))
        if age_max_ms is not None:
            self._partitions_until_s = time.monotonic() + age_max_ms / 1000
        self._partitions = frozenset(found)
        return self._partitions

    def _find_partitions(self, admin: Admin, *, but_missing: bool) -> set[TopicPartition]:
        match self._options.selection:
            case Topics(names):
                return self._all_of(_described(admin, names, but_missing=but_missing))
            case SubscribePattern(expression):
                # As in Spark's connector: a match anywhere in the name, and never internal topics.
                matches = re.compile(expression).search
                return self._all_of(topic for topic in admin.list_topics() if matches(topic.name))
            case Partitions(partitions):
                topics = dict.fromkeys(one.topic for one in partitions)
                there = self._all_of(_described(admin, topics, but_missing=but_missing))
                missing = set(partitions) - there
                if missing and not but_missing:
                    raise MissingTopicError(f"partition {named(missing)} in option assign does not exist")
                return there & set(partitions)

    def _all_of(self, topics: Iterable[TopicDescription]) -> set[TopicPartition]:
        found = list(topics)
        self.topic_ids = {topic.name: topic.topic_id for topic in found if topic.topic_id is not None}
        return {TopicPartition(topic.name, one.index) for topic in found for one in topic.partitions}

    # Offsets.

    def earliest(self, partitions: Collection[TopicPartition]) -> PartitionOffsets:
        """The earliest offsets of those that still exist."""
        return self._offsets(dict.fromkeys(partitions, EARLIEST), but_missing=True)

    def latest(self, known: Mapping[TopicPartition, int] | None = None) -> PartitionOffsets:
        """The latest offsets of all partitions. `known`: the earlier ones. With these, a missing topic is no error
        here, because the caller can report more; and an offset below the known one is requested again, because a newly
        elected leader may not know its end for a moment."""
        offsets: PartitionOffsets = {}
        for attempt in range(self._options.ask_attempts):
            if attempt:
                time.sleep(self._options.ask_interval_ms / 1000)
            partitions = self.partitions(but_missing=known is not None)
            offsets = self._offsets(dict.fromkeys(partitions, LATEST), but_missing=known is not None)
            if not known or all(known.get(partition, 0) <= offset for partition, offset in offsets.items()):
                break
        return offsets

    def position(self, position: Position, option: str, *, is_start: bool) -> PartitionOffsets:
        """Where the query's partitions are at that position: offsets, or -2 and -1 for their ends."""
        partitions = self.partitions()
        match position:
            case Earliest():
                return dict.fromkeys(partitions, EARLIEST_OFFSET)
            case Latest():
                return dict.fromkeys(partitions, LATEST_OFFSET)
            case AtOffsets(offsets):
                _check_same(offsets.keys(), partitions, option)
                return dict(offsets)
            case AtTimes(times_ms):
                _check_same(times_ms.keys(), partitions, f"{option}ByTimestamp")
                return self._at_times(times_ms, is_start=is_start)
            case AtTime(time_ms):
                return self._at_times(dict.fromkeys(partitions, time_ms), is_start=is_start)

    def resolved(self, offsets: Mapping[TopicPartition, int]) -> PartitionOffsets:
        """Replaces -2 and -1 with current offsets."""
        places = {EARLIEST_OFFSET: EARLIEST, LATEST_OFFSET: LATEST}
        ends = {partition: places[offset] for partition, offset in offsets.items() if offset in places}
        return {**offsets, **self._offsets(ends)}

    def _at_times(self, times_ms: Mapping[TopicPartition, int], *, is_start: bool) -> PartitionOffsets:
        places = {partition: Place.at_time(time_ms) for partition, time_ms in times_ms.items()}
        found = self._offsets(places)
        none_newer = times_ms.keys() - found.keys()
        if none_newer and is_start and not self._options.latest_if_none_is_newer:
            first = min(none_newer)
            raise SourceError(
                f"no record of {named(none_newer)} has the timestamp {times_ms[first]} or a later one, where the query "
                "should start; set startingOffsetsByTimestampStrategy to latest to start at the end"
            )
        return {**found, **dict.fromkeys(none_newer, LATEST_OFFSET)}

    def _offsets(self, places: Mapping[TopicPartition, Place], *, but_missing: bool = False) -> PartitionOffsets:
        """The offset at each position; without those that have none and, if requested, without deleted partitions."""
        if not places:
            return {}
        isolation = "read_committed" if self._options.is_read_committed else "read_uncommitted"

        def ask(admin: Admin) -> PartitionOffsets:
            try:
                found = admin.list_offsets(places, isolation_level=isolation)
            except SomeRefusedError as error:
                if not but_missing or any(one.code not in NOT_THERE for one in error.errors.values()):
                    raise
                found = error.results
            return {partition: one.offset for partition, one in found.items() if one.offset is not None}

        return self._ask(ask)

    def _ask(self, what: Callable[[Admin], T]) -> T:
        for left in reversed(range(self._options.ask_attempts)):
            try:
                if self._admin is None:
                    self._admin = Admin(self._options.admin_settings)
                return what(self._admin)
            except OttlaError as error:
                if not left:
                    raise
                _logger.warning("retrying, at most %d times: %s", left, error)
                time.sleep(self._options.ask_interval_ms / 1000)
        raise AssertionError("unreachable: there is at least one attempt")


def _described(admin: Admin, names: Iterable[str], *, but_missing: bool) -> Iterable[TopicDescription]:
    try:
        return admin.describe_topics(names).values()
    except SomeRefusedError as error:
        others = [one for one in error.errors.values() if one.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        if others:
            raise
        if but_missing:
            return error.results.values()
        missing = ", ".join(map(repr, sorted(error.errors)))
        raise MissingTopicError(f"topic {missing} does not exist: create it first, or check the name") from None


def _check_same(given: Collection[TopicPartition], there: frozenset[TopicPartition], option: str) -> None:
    """Checks that there is a position for every partition, and for no others."""
    missing, foreign = there - set(given), set(given) - there
    if missing:
        reason = f"lacks {named(missing)}: list all partitions, with -2 for the earliest offset and -1 for the latest"
        raise SourceError(f"option {option}: {reason}")
    if foreign:
        raise SourceError(f"option {option}: {named(foreign)} is not one of the partitions to read")
