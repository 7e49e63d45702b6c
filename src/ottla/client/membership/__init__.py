"""How a consumer takes part in a group: its identity, its partitions, and its commits.

`create_membership` returns the membership for the configured protocol: `classic`, where a member of the group assigns
partitions (KIP-62 and later), `consumer`, where the coordinator assigns them (KIP-848), or `zookeeper`, where members
agree through ZooKeeper (Kafka 0.8).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from ottla.base.ids import TopicPartition
from ottla.client.cluster import Cluster, Deadline
from ottla.client.config import ConsumerConfig
from ottla.client.errors import ClientError
from ottla.client.membership.classic import ClassicMembership
from ottla.client.membership.consumer_protocol import ConsumerMembership
from ottla.client.membership.handover import Invoke
from ottla.client.membership.ledger import AskedCommit, CommitLedger
from ottla.client.membership.metadata import GroupMetadata
from ottla.client.offsets import OffsetAndMetadata
from ottla.client.subscriptions.subscription import Subscription

__all__ = ["GroupMetadata", "Membership", "create_membership"]


class Membership(Protocol):
    """Belongs to the loop, except `needs_poll`. Heartbeats and commits at an interval begin with the first poll."""

    ledger: CommitLedger
    """The requested commits, in order."""

    def needs_poll(self) -> bool:
        """Whether `poll` has anything to do now. Cheap and thread-safe. When this becomes true,
        `Subscription.wake_poll` is called."""

    async def poll(self, deadline: Deadline) -> None:
        """Does the group's work while the user polls: joins, takes over and gives up partitions, and calls the
        listener. Work that takes longer continues in the next poll; only the listener is waited for."""

    def subscription_changed(self) -> None:
        """Called when the user changed the subscription."""

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Returns when the offsets are committed, or newer ones are about to be. Can be called concurrently."""

    async def commit_asked(self, commits: Mapping[TopicPartition, AskedCommit]) -> None:
        """The same for commits that were requested before, one for each partition."""

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the group's committed offset of each partition; None if there is none."""

    async def unsubscribe(self, timeout_s: float) -> None:
        """Gives up all partitions and leaves the group. Must be called before the subscription is cleared."""

    async def close(self, timeout_s: float) -> None:
        """Like `unsubscribe`, and ends all background work permanently."""

    async def end(self) -> None:
        """Ends background work without telling the group: for a `close` that has no time left. Idempotent."""

    def metadata(self) -> GroupMetadata:
        """The identity of this consumer in its group."""


class NoMembership:
    """For a consumer without a group.id: it consumes manually assigned partitions, and commits nothing."""

    def __init__(self, subscription: Subscription) -> None:
        self.ledger = CommitLedger(subscription, lambda: None)

    def needs_poll(self) -> bool:
        return False

    async def poll(self, deadline: Deadline) -> None:
        pass

    def subscription_changed(self) -> None:
        raise self._refusal("subscribe to topics (set group.id, or assign partitions)")

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:  # noqa: ARG002
        raise self._refusal("commit offsets")

    async def commit_asked(self, commits: Mapping[TopicPartition, AskedCommit]) -> None:  # noqa: ARG002
        raise self._refusal("commit offsets")

    async def committed(
        self,
        partitions: Collection[TopicPartition],  # noqa: ARG002
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        raise self._refusal("have committed offsets")

    async def unsubscribe(self, timeout_s: float) -> None:
        pass

    async def close(self, timeout_s: float) -> None:
        pass

    async def end(self) -> None:
        pass

    def metadata(self) -> GroupMetadata:
        raise self._refusal("be a member of a group")

    @staticmethod
    def _refusal(what: str) -> ClientError:
        return ClientError(f"a consumer without a group.id cannot {what}")


def create_membership(
    config: ConsumerConfig, cluster: Cluster, subscription: Subscription, invoke: Invoke
) -> Membership:
    """`invoke` calls a method of the user's listener with partitions: in the loop, or in the polling thread."""
    if not config.group_id:
        return NoMembership(subscription)
    if config.group_protocol == "zookeeper":
        # Imported only here: no other protocol needs a ZooKeeper client.
        from ottla.client.membership.zookeeper.member import ZooKeeperMembership

        return ZooKeeperMembership(config, cluster, subscription, config.group_id, invoke)
    made = ConsumerMembership if config.group_protocol == "consumer" else ClassicMembership
    return made(config, cluster, subscription, config.group_id, invoke)
