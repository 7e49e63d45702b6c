"""Commits and fetches the offsets of a group.

Both are retried as long as errors are retriable. A retry leaves out partitions that were committed again in the
meantime (`ledger`), so that many commits can be in flight at once and the last one wins. Belongs to one loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final, TypeVar

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.client.cluster import Backoff, Cluster, may_pass
from ottla.client.errors import (
    BrokerConnectionError,
    ClientError,
    CommitFailedError,
    MemberFencedError,
    RebalanceInProgressError,
    RefusedError,
    RequestTimeoutError,
    raise_if_refused,
)
from ottla.client.membership.coordinator import CoordinatorLink, Lane
from ottla.client.membership.ledger import AskedCommit, CommitLedger, Identity
from ottla.client.membership.metadata import NO_MEMBER_ID, GroupMetadata
from ottla.client.offsets import OffsetAndMetadata
from ottla.wire.messages.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchGroupTopic,
    OffsetFetchPartitionResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
)

T = TypeVar("T")

_LAST_VERSION_BY_NAME: Final = 9
_COMMIT_WITH_INSTANCE_ID: Final = 7
_FETCH_STABLE: Final = 7
_FETCH_OF_GROUPS: Final = 8
_NO_OFFSET: Final = -1
_NO_EPOCH: Final = -1


class GroupCommits:
    """`member_refused` is called with the member that the coordinator rejected, and the reason."""

    def __init__(
        self,
        cluster: Cluster,
        coordinator: CoordinatorLink,
        ledger: CommitLedger,
        identity: Identity,
        member_refused: Callable[[GroupMetadata, ErrorCode], None],
        *,
        has_epochs: bool,
        timeout_s: float,
    ) -> None:
        self._cluster = cluster
        self._coordinator = coordinator
        self._ledger = ledger
        self._identity = identity
        self._member_refused = member_refused
        self._has_epochs = has_epochs
        """Whether members have their own epochs (KIP-848), which are also checked when offsets are fetched."""
        self._timeout_s = timeout_s
        self._doubted: set[str] = set()
        """Topics that the coordinator does not know by the name or id used here."""
        self._missing: set[str] = set()
        """Those of them that did not exist at the last check."""

    # Committing offsets.

    async def commit(self, commits: Mapping[TopicPartition, AskedCommit], *, timeout_s: float | None = None) -> None:
        """Commits the offset of each partition. Returns when the coordinator has all of them, or newer ones are in
        flight."""
        left = dict(commits)

        async def attempt() -> None:
            for partition in [one for one, asked in left.items() if not self._ledger.is_newest(asked, one)]:
                left.pop(partition).unsettled.discard(partition)
            self._doubted |= {one.topic for one, asked in left.items() if self._may_be_another(one, asked)}
            await self._look_again()
            gone = {one: why for one, asked in left.items() if (why := self._why_not(one, asked)) is not None}
            sent = {one: asked for one, asked in left.items() if one not in gone}
            if sent:
                await self._commit_once(sent, left)
            for partition, why in sorted(gone.items()):
                raise CommitFailedError(f"{self._subject(partition, left[partition].offsets[partition])}: {why}")

        in_doubt = True
        try:
            await self._retry(attempt, f"commit offsets of group {self._coordinator.group_id}", timeout_s)
        except RequestTimeoutError:
            raise
        except ClientError:
            in_doubt = False
            raise
        finally:
            for partition, asked in left.items():
                self._ledger.failed(asked, partition, in_doubt=in_doubt)

    def _why_not(self, partition: TopicPartition, asked: AskedCommit) -> str | None:
        """Returns what has changed since the commit was requested, if it must not be sent any more."""
        if not self._ledger.is_ours(asked, partition):
            return "the partition has been revoked since"
        mark = asked.marks.get(partition)
        if mark is None:
            return None
        topic = self._cluster.known_topic(partition.topic)
        if topic is None:
            return "the topic was deleted" if partition.topic in self._missing else None
        if mark.topic_id is None or topic.topic_id in (mark.topic_id, ZERO_UUID):
            return None
        return "the topic has been deleted and created again since"

    def _may_be_another(self, partition: TopicPartition, asked: AskedCommit) -> bool:
        """Whether a topic that is now unknown may have been created again: a commit by its name would then skip records
        of the new topic."""
        topic = partition.topic
        return (
            _id_of(asked, partition) is not None and topic not in self._missing and not self._cluster.known_topic(topic)
        )

    async def _look_again(self) -> None:
        """Refreshes topics that the coordinator does not know, or not by their ids."""
        if self._doubted:
            doubted = set(self._doubted)
            found = {topic.name for topic in await self._cluster.refresh(doubted)}
            self._doubted -= doubted
            self._missing = (self._missing | doubted) - found

    async def _commit_once(
        self, sent: Mapping[TopicPartition, AskedCommit], left: dict[TopicPartition, AskedCommit]
    ) -> None:
        """Removes committed partitions from `left`, and raises the error for the rest."""
        connection = await self._coordinator.connection(Lane.OFFSETS)
        offsets = {partition: asked.offsets[partition] for partition, asked in sent.items()}
        ids = self._topic_ids_of(sent)
        version = connection.version_for(OffsetCommitRequest, at_most=None if ids else _LAST_VERSION_BY_NAME)
        member = self._committer()
        request = OffsetCommitRequest(
            group_id=member.group_id,
            generation_id_or_member_epoch=member.generation_id,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id if version >= _COMMIT_WITH_INSTANCE_ID else None,
            topics=_commit_topics(offsets, ids),
        )
        answer = await connection.send(request, OffsetCommitResponse, version=version)
        names = {topic_id: name for name, topic_id in ids.items()}
        codes = {
            TopicPartition(topic.name or names.get(topic.topic_id, ""), one.partition_index): ErrorCode.of(
                one.error_code
            )
            for topic in answer.topics
            for one in topic.partitions
        }
        for partition, code in codes.items():
            self._coordinator.look_at(code)
            if not code and partition in sent:
                self._ledger.succeeded(sent[partition], partition)
                left.pop(partition, None)
        refused = {partition: code for partition, code in codes.items() if code}
        # Errors that are not retriable are raised first.
        for partition, code in sorted(refused.items(), key=lambda item: item[1].retriable):
            raise self._refusal(member, partition, code, offsets[partition])

    def _committer(self) -> GroupMetadata:
        member = self._identity()
        if member is None:
            raise CommitFailedError(
                f"group {self._coordinator.group_id}: this consumer is currently not a member, so its partitions may "
                "be assigned to another one; call poll() to join the group before you commit"
            )
        return member

    def _refusal(
        self, member: GroupMetadata, partition: TopicPartition, code: ErrorCode, offset: OffsetAndMetadata
    ) -> ClientError:
        subject = self._subject(partition, offset)
        match code:
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION:
                self._member_refused(member, code)
                return CommitFailedError(
                    f"{subject}: the group has rebalanced without this consumer, and the partition may be assigned to "
                    "another one. Usually the time between two polls was too long: reduce max.poll.records or increase "
                    "max.poll.interval.ms"
                )
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self._member_refused(member, code)
                return RebalanceInProgressError(
                    f"{subject}: the group is rebalancing; poll, then commit what is still assigned"
                )
            case ErrorCode.FENCED_INSTANCE_ID:
                self._member_refused(member, code)
                return fenced(member)
            case ErrorCode.UNKNOWN_TOPIC_ID | ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._doubt(partition.topic)
        return RefusedError(code, subject)

    def _subject(self, partition: TopicPartition, offset: OffsetAndMetadata) -> str:
        group_id = self._coordinator.group_id
        return f"group {group_id}: offset {offset.offset} of partition {partition} was not committed"

    def _doubt(self, topic: str) -> None:
        self._cluster.distrust(topic)
        self._doubted.add(topic)

    # Fetching committed offsets.

    async def committed(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the last committed offset of each partition; None if there is none."""

        async def attempt() -> dict[TopicPartition, OffsetAndMetadata | None]:
            await self._look_again()
            return await self._committed_once(partitions)

        return await self._retry(attempt, f"fetch offsets of group {self._coordinator.group_id}", timeout_s)

    async def _committed_once(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        connection = await self._coordinator.connection(Lane.OFFSETS)
        ids = self._topic_ids(partitions)
        version = connection.version_for(OffsetFetchRequest, at_most=None if ids else _LAST_VERSION_BY_NAME)
        request = self._fetch_request(partitions, ids, version)
        answer = await connection.send(request, OffsetFetchResponse, version=version)
        subject = f"committed offsets of group {self._coordinator.group_id}"
        found: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(partitions)
        if version < _FETCH_OF_GROUPS:
            code = answer.error_code
            topics = [(topic.name, topic.partitions) for topic in answer.topics]
        else:
            names = {topic_id: name for name, topic_id in ids.items()}
            code = answer.groups[0].error_code
            topics = [(one.name or names.get(one.topic_id, ""), one.partitions) for one in answer.groups[0].topics]
        self._coordinator.look_at(code)
        raise_if_refused(code, subject)
        for name, answers in topics:
            for one in answers:
                partition = TopicPartition(name, one.partition_index)
                self._coordinator.look_at(one.error_code)
                if one.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
                    self._doubt(name)
                raise_if_refused(one.error_code, f"the committed offset of partition {partition}")
                found[partition] = _committed(one)
        return found

    def _fetch_request(
        self, partitions: Collection[TopicPartition], ids: Mapping[str, Uuid], version: int
    ) -> OffsetFetchRequest:
        indexes: dict[str, list[int]] = {}
        for topic, index in partitions:
            indexes.setdefault(topic, []).append(index)
        if version < _FETCH_OF_GROUPS:
            return OffsetFetchRequest(
                group_id=self._coordinator.group_id,
                topics=[OffsetFetchTopic(name=topic, partition_indexes=some) for topic, some in indexes.items()],
                require_stable=version >= _FETCH_STABLE,
            )
        group = OffsetFetchGroup(
            group_id=self._coordinator.group_id,
            topics=[
                OffsetFetchGroupTopic(name=topic, topic_id=ids.get(topic, ZERO_UUID), partition_indexes=some)
                for topic, some in indexes.items()
            ],
        )
        member = self._identity() if self._has_epochs else None
        if member is not None and member.member_id != NO_MEMBER_ID:
            group.member_id, group.member_epoch = member.member_id, member.generation_id
        # Wait for offsets of transactions that are still open.
        return OffsetFetchRequest(groups=[group], require_stable=True)

    # Shared.

    def _topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, Uuid]:
        """Returns the ids of all topics, or none: a request uses either ids or names for all of them."""
        ids: dict[str, Uuid] = {}
        for topic in {partition.topic for partition in partitions}:
            known = self._cluster.known_topic(topic)
            if known is None or known.topic_id == ZERO_UUID:
                return {}
            ids[topic] = known.topic_id
        return ids

    def _topic_ids_of(self, commits: Mapping[TopicPartition, AskedCommit]) -> dict[str, Uuid]:
        """Like `_topic_ids`, but with the ids of the consumed topics: their names may belong to others now."""
        consumed = {one.topic: found for one, asked in commits.items() if (found := _id_of(asked, one)) is not None}
        others = [one for one in commits if one.topic not in consumed]
        ids = self._topic_ids(others)
        return {} if others and not ids else {**ids, **consumed}

    async def _retry(self, attempt: Callable[[], Awaitable[T]], what: str, timeout_s: float | None) -> T:
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        backoff = Backoff(self._cluster.options)
        failure: Exception | None = None
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        return await attempt()
                    except (BrokerConnectionError, RefusedError) as error:
                        if not _passes(error):
                            raise
                        failure = error
                    await asyncio.sleep(backoff.next_s())
        except TimeoutError:
            why = f"; the last attempt: {failure}" if failure else ""
            raise RequestTimeoutError(f"could not {what} within {timeout_s:g} s{why}") from failure


def _id_of(asked: AskedCommit, partition: TopicPartition) -> Uuid | None:
    """The id of the topic when the commit was requested, if it was known."""
    mark = asked.marks.get(partition)
    return None if mark is None or mark.topic_id == ZERO_UUID else mark.topic_id


def _passes(error: Exception) -> bool:
    # The epoch of a member changes with its heartbeats, which overtake other requests.
    return may_pass(error) or (isinstance(error, RefusedError) and error.code == ErrorCode.STALE_MEMBER_EPOCH)


def fenced(member: GroupMetadata) -> MemberFencedError:
    return MemberFencedError(
        f"group {member.group_id}: another consumer with the group.instance.id {member.group_instance_id!r} replaced "
        "this one; use a different id for each consumer"
    )


def _commit_topics(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], ids: Mapping[str, Uuid]
) -> list[OffsetCommitTopic]:
    topics: dict[str, OffsetCommitTopic] = {}
    for (name, index), offset in offsets.items():
        topic = topics.setdefault(name, OffsetCommitTopic(name=name, topic_id=ids.get(name, ZERO_UUID)))
        topic.partitions.append(
            OffsetCommitPartition(
                partition_index=index,
                committed_offset=offset.offset,
                committed_leader_epoch=_NO_EPOCH if offset.leader_epoch is None else offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    return list(topics.values())


def _committed(one: OffsetFetchPartitionResponse) -> OffsetAndMetadata | None:
    if one.committed_offset == _NO_OFFSET:
        return None
    epoch = None if one.committed_leader_epoch == _NO_EPOCH else one.committed_leader_epoch
    return OffsetAndMetadata(one.committed_offset, one.metadata or "", epoch)
