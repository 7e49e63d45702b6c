"""What groups of both protocols have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from ottla.base.ids import Uuid
from ottla.coordinator.key_values import KeyValue

PartitionCheck: TypeAlias = Callable[[Uuid | None, int], None]
"""Given a topic id and a partition; raises `CoordinatorError` if its offset may not be committed."""


class Group(ABC):
    """A group of a shard. Only replay changes its hard state."""

    __slots__ = ("group_id",)

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    @property
    @abstractmethod
    def type_name(self) -> str:
        """`classic` or `consumer`, as in ListGroups."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The state as tools show it: Empty, Stable, PreparingRebalance, …"""

    @property
    @abstractmethod
    def protocol_type(self) -> str:
        """`consumer` for consumers, otherwise what the members sent; empty if there never were members."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether it has no members. An empty group can be deleted, and its offsets expire."""

    @abstractmethod
    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, in_transaction: bool, version: int
    ) -> PartitionCheck | None:
        """Raises `CoordinatorError` if the member may not commit offsets with this generation or member epoch, in this
        version of OffsetCommit. Returns None if it may commit all partitions, otherwise a check to run for each of
        them; if one fails, the whole commit is refused."""

    @abstractmethod
    def note_commit(self, member_id: str) -> None:
        """Called when the member commits offsets. In the classic protocol this counts as a heartbeat."""

    @abstractmethod
    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises `CoordinatorError` if the member may not fetch offsets (OffsetFetch v9+; None and -1 without a
        member)."""

    @abstractmethod
    def check_offset_delete(self) -> None:
        """Raises `CoordinatorError` if no offset of any topic may be deleted now."""

    @abstractmethod
    def subscribes_to(self, topic: str) -> bool:
        """Whether a member subscribes to the topic. Its offsets then do not expire and may not be deleted."""

    @abstractmethod
    def retention_start_ms(self, committed_ms: int) -> int | None:
        """When the retention time of an offset starts that was committed at `committed_ms`, for a topic without
        subscribers; None if the group's offsets do not expire now."""

    @abstractmethod
    def deletion_records(self) -> list[KeyValue]:
        """Tombstones for all records of the group itself, without its offsets."""


class TopicImage(Protocol):
    """The cluster's topics, as far as a coordinator needs them."""

    def partition_count(self, topic: str) -> int | None:
        """None if the topic does not exist."""
        ...

    def topic_id(self, topic: str) -> Uuid | None: ...
    def topic_name(self, topic_id: Uuid) -> str | None: ...

    def topic_names(self) -> list[str]:
        """All topics, in no particular order."""
        ...

    @property
    def version(self) -> int:
        """Changes whenever a topic is created, deleted or gets partitions."""
        ...


class ConsumerTimes(NamedTuple):
    """Session timeout and heartbeat interval of members of the consumer protocol."""

    session_timeout_ms: int
    heartbeat_interval_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The broker's `group.*` and `offsets.*` configs that a shard reads, with Kafka's defaults."""

    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 300_000
    consumer_times: ConsumerTimes = ConsumerTimes(session_timeout_ms=45_000, heartbeat_interval_ms=5_000)
    own_consumer_times: Mapping[str, ConsumerTimes] = field(default_factory=dict)
    """Groups with times of their own, by group id. Read with every heartbeat, so changes take effect."""
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 604_800_000
    offsets_retention_check_interval_ms: int = 600_000

    def consumer_times_of(self, group_id: str) -> ConsumerTimes:
        return self.own_consumer_times.get(group_id, self.consumer_times)
