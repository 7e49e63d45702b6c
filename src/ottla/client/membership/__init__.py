"""How a consumer takes part in a group: who it is there, which partitions it gets, and what it has committed.

`create_membership` gives what a consumer calls, for the protocol that its config names: `classic`, where a member of
the group assigns (KIP-62 and what came after), `consumer`, where the coordinator does (KIP-848), or `zookeeper`, where
members agree through ZooKeeper (Kafka 0.8).
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
    """Belongs to the loop, but for `needs_poll`. Heartbeats and commits at an interval begin with the first poll."""

    ledger: CommitLedger
    """Which commits were asked for, in what order."""

    def needs_poll(self) -> bool:
        """Whether `poll` has anything to do now. Cheap, and safe in any thread. When this becomes true,
        `Subscription.wake_poll` is called."""

    async def poll(self, deadline: Deadline) -> None:
        """Does what is to be done for the group while the user polls: joins, takes partitions over and gives them up,
        and tells the listener. What takes longer goes on with the next poll; only the listener is waited for."""

    def subscription_changed(self) -> None:
        """The user subscribed to something else."""

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Returns when they are committed, or newer ones are about to be. Any number at once."""

    async def commit_asked(self, commits: Mapping[TopicPartition, AskedCommit]) -> None:
        """The same for commits that were asked for before, each partition's with its own."""

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group committed last for each; None where it has not."""

    async def unsubscribe(self, timeout_s: float) -> None:
        """Gives everything up and leaves the group. To be called before the subscription is emptied."""

    async def close(self, timeout_s: float) -> None:
        """The same, for good: nothing goes on in the background afterwards."""

    async def end(self) -> None:
        """Ends what goes on in the background, and says nothing to the group: for a `close` that had no time left.
        Idempotent."""

    def metadata(self) -> GroupMetadata:
        """Who this consumer is in its group."""


class NoMembership:
    """That of a consumer without a group.id: it reads what it assigns itself, and commits nothing."""

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
    """`invoke` calls a method of the user's listener with partitions: in the loop, or in the thread that polls."""
    if not config.group_id:
        return NoMembership(subscription)
    if config.group_protocol == "zookeeper":
        # Loaded only here: nobody else needs a client of ZooKeeper.
        from ottla.client.membership.zookeeper.member import ZooKeeperMembership

        return ZooKeeperMembership(config, cluster, subscription, config.group_id, invoke)
    made = ConsumerMembership if config.group_protocol == "consumer" else ClassicMembership
    return made(config, cluster, subscription, config.group_id, invoke)
