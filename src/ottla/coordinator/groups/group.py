"""What every group has in common, whatever protocol its members speak."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from ottla.base.ids import Uuid
from ottla.coordinator.key_values import KeyValue

PartitionCheck: TypeAlias = Callable[[Uuid | None, int], None]
"""Raises `CoordinatorError` if offsets of that topic's partition may not be committed."""


class Group(ABC):
    """A group of the shard. Hard state changes by replay only."""

    __slots__ = ("group_id",)

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    @property
    @abstractmethod
    def type_name(self) -> str:
        """`classic` or `consumer`, as ListGroups tells it."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """As tools show it: Empty, Stable, PreparingRebalance, …"""

    @property
    @abstractmethod
    def protocol_type(self) -> str:
        """`consumer` for consumers, or what the members said; empty if nobody said anything."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether it has no members: then it can be deleted, and its offsets expire."""

    @abstractmethod
    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, in_transaction: bool, version: int
    ) -> PartitionCheck | None:
        """Raises `CoordinatorError` if that member may not commit offsets with that generation or member epoch, in that
        version of OffsetCommit. None if it may, for all partitions; else what is to be asked for each of them, and one
        that is refused refuses them all."""

    @abstractmethod
    def note_commit(self, member_id: str) -> None:
        """That member has committed offsets. In the classic protocol this shows, as a heartbeat does, that it lives."""

    @abstractmethod
    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises `CoordinatorError` if that member may not fetch offsets (OffsetFetch v9+; None and -1 for who is no
        member)."""

    @abstractmethod
    def check_offset_delete(self) -> None:
        """Raises `CoordinatorError` if no offset may be deleted now, of whatever topic."""

    @abstractmethod
    def subscribes_to(self, topic: str) -> bool:
        """Whether a member reads the topic: its offsets are then kept, and may not be deleted."""

    @abstractmethod
    def retention_start_ms(self, committed_ms: int) -> int | None:
        """From when on an offset ages that was committed then, of a topic that nobody reads; None where the group's
        offsets do not age now."""

    @abstractmethod
    def deletion_records(self) -> list[KeyValue]:
        """Tombstones for all that the log holds of the group itself, without its offsets."""


class TopicImage(Protocol):
    """What a coordinator may know of the cluster's topics; the broker's metadata."""

    def partition_count(self, topic: str) -> int | None:
        """None for a topic that is not there."""
        ...

    def topic_id(self, topic: str) -> Uuid | None: ...
    def topic_name(self, topic_id: Uuid) -> str | None: ...

    def topic_names(self) -> list[str]:
        """All of them, in no order."""
        ...

    @property
    def version(self) -> int:
        """Another number whenever any topic came, went or grew."""
        ...


class ConsumerTimes(NamedTuple):
    """How long members of the consumer protocol may be silent, and how often they are asked to be heard."""

    session_timeout_ms: int
    heartbeat_interval_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The broker's keys `group.*` and `offsets.*` that a shard reads, by Kafka's defaults."""

    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 300_000
    consumer_times: ConsumerTimes = ConsumerTimes(session_timeout_ms=45_000, heartbeat_interval_ms=5_000)
    own_consumer_times: Mapping[str, ConsumerTimes] = field(default_factory=dict)
    """Of groups that have other times, by id. Looked at with every heartbeat: it may change meanwhile."""
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 604_800_000
    offsets_retention_check_interval_ms: int = 600_000

    def consumer_times_of(self, group_id: str) -> ConsumerTimes:
        return self.own_consumer_times.get(group_id, self.consumer_times)
