"""Requests of transactions that a broker has to refuse, and those around them, over a socket: a script that gives lines
to compare.

Each scene has a transactional id of its own. Producer ids are not told; epochs are, relative to the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from ottla.base.error_codes import ErrorCode
from ottla.net.client_connection import Address, ClientConnection, ConnectionOptions
from ottla.records import BatchOptions, Record, encode_batch
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.wire.messages.produce import ProducePartition, ProduceRequest, ProduceResponse, ProduceTopic
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitTopic,
)
from ottla.wire.schema import Request, Response

R = TypeVar("R", bound=Response)
TOPIC: Final = "orders"
_PARTITIONS: Final = 2
_PATIENCE_S: Final = 30.0
_LOOK_AGAIN_S: Final = 0.02
_SOON: Final = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""Of requests that have to succeed: asked again."""
TIMEOUT_MS: Final = 60_000
_ADD: Final = range(4)
"""Versions of AddPartitionsToTxn for clients."""
_END: Final = range(6)
_COMMIT: Final = range(6)


@dataclass(frozen=True, slots=True)
class Who:
    """A producer, as it names itself."""

    name: str
    producer_id: int
    epoch: int


class TransactionDialogue:
    """Transaction version 2 brings versions of requests that older brokers do not have."""

    def __init__(self, address: str, *, has_version_2: bool) -> None:
        host, port = address.rsplit(":", 1)
        self._address = Address(host, int(port))
        self._has_version_2 = has_version_2
        self._connection: ClientConnection
        self.lines: dict[str, list[str]] = {}
        self._scene: list[str] = []

    async def run(self) -> dict[str, list[str]]:
        """By scene, what each request was answered."""
        self._connection = await ClientConnection.open(self._address, ConnectionOptions(client_id="c"))
        try:
            topic = CreatableTopic(name=TOPIC, num_partitions=_PARTITIONS, replication_factor=1)
            await self._ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, 7)
            groups = FindCoordinatorRequest(key="g")
            await self._done(self._asked(lambda: self._ask(groups, FindCoordinatorResponse, 3)))
            for scene in (
                self._beginnings,
                self._stale_epochs,
                self._strangers,
                self._ends,
                self._partitions,
                self._batches,
                self._offsets,
                *((self._members,) if self._has_version_2 else ()),
                self._questions,
                self._coordinators,
            ):
                self._scene = self.lines[scene.__name__.strip("_").replace("_", " ")] = []
                await asyncio.wait_for(scene(), 2 * _PATIENCE_S)
        finally:
            await self._connection.close()
        return self.lines

    # --- scenes -------------------------------------------------------------------------------------------------------

    async def _beginnings(self) -> None:
        name = "beginnings"
        first = await self._begin(name)
        for version in range(5):
            for what, transactional_id, timeout_ms, identity in (
                ("a timeout above the maximum", name, 2**31 - 1, (-1, -1)),
                ("no timeout", name, 0, (-1, -1)),
                ("a negative timeout", name, -5, (-1, -1)),
                ("an empty id", "", TIMEOUT_MS, (-1, -1)),
                ("no epoch", name, TIMEOUT_MS, (first.producer_id, -1)),
                ("no producer id", name, TIMEOUT_MS, (-1, 0)),
                ("the id of another", name, TIMEOUT_MS, (first.producer_id + 1000, 0)),
                ("an epoch to come", name, TIMEOUT_MS, (first.producer_id, first.epoch + 5)),
            ):
                if version < 3 and identity != (-1, -1):
                    continue
                await self._init(what, version, transactional_id, timeout_ms, identity)

    async def _stale_epochs(self) -> None:
        """Two producers with one id: what the first is told."""
        await self._what_is_told(await self._begin("stale"), replaced=True)

    async def _strangers(self) -> None:
        """An id that nobody has used, and an id with the producer id of another."""
        await self._what_is_told(Who("never used", 4711, 0))
        mine = await self._begin("mine")
        await self._what_is_told(replace(mine, producer_id=mine.producer_id + 1000))
        await self._what_is_told(replace(mine, epoch=mine.epoch + 7))
        await self._what_is_told(replace(mine, name=""))

    async def _what_is_told(self, who: Who, *, replaced: bool = False) -> None:
        if replaced:
            await self._begin(who.name)
        for version in _ADD:
            await self._add(version, who, 0)
        for version in range(5):
            await self._add_offsets(version, who)
        for version in self._versions(_END):
            await self._end(version, who, committed=True)
            await self._end(version, who, committed=False)
        for version in self._versions(_COMMIT):
            await self._commit_offsets(version, who)
        for version in self._produce_versions():
            await self._produce(version, who)

    async def _ends(self) -> None:
        """Of transactions that were not begun, and twice."""
        for version in self._versions(_END):
            for committed in (True, False):
                who = await self._begin(f"ends-{version}-{committed}")
                await self._end(version, who, committed=committed, what="what was not begun")
                await self._end(version, who, committed=not committed, what="the other way")
                who = await self._begin(who.name)
                await self._done(lambda who=who: self._add(3, who, 0, is_silent=True))  # type: ignore[misc]
                await self._end(version, who, committed=committed)
                await self._end(version, who, committed=committed, what="again")
                await self._end(version, who, committed=not committed, what="the other way")

    async def _partitions(self) -> None:
        who = await self._begin("partitions")
        for version in _ADD:
            await self._add(version, who, 0, 9)
            await self._add(version, who, 0, topic="nowhere")
            await self._add(version, who, 0, topic="no such/name")
            await self._add(version, who)
            await self._add(version, who, 0, 0)
        for verify in (True, False):
            await self._add_many(verify, who, Who("never used", 1, 0))
            await self._add_many(verify, replace(who, epoch=who.epoch + 1))

    async def _batches(self) -> None:
        for version in self._produce_versions():
            who = await self._begin(f"batches-{version}")
            if version < 12:
                await self._produce(version, who, what="a partition that was not added")
                await self._done(lambda who=who: self._add(3, who, 0, is_silent=True))  # type: ignore[misc]
            await self._produce(version, who, sequence=3, what="a first sequence number above 0")
            await self._produce(version, who, what="as it should be")
            await self._produce(version, who, what="again")
            await self._produce(version, who, sequence=5, what="a gap")
            await self._produce(version, replace(who, name=""), sequence=1, what="no transactional id")
            await self._produce(version, who, sequence=1, is_transactional=False, what="outside of the transaction")
            await self._produce(version, who, index=9, what="a partition that is not there")
            await self._produce(version, who, acks=1, sequence=1, what="with acks of 1")
            await self._end(5 if version > 11 else 4, who, committed=False)

    async def _offsets(self) -> None:
        for version in self._versions(_COMMIT):
            who = await self._begin(f"offsets-{version}")
            await self._commit_offsets(version, who, what="a group that was not added")
            if version < 5:
                await self._add_offsets(4, who)
            await self._commit_offsets(version, who, indexes=(0, 9), what="a partition that is not there")
            await self._commit_offsets(version, who, offset=-5, what="a negative offset")
            await self._commit_offsets(version, who, metadata="m" * 5000, what="long metadata")
            if version >= 3:
                await self._commit_offsets(version, who, generation=3, what="a generation of nobody")
                await self._commit_offsets(version, who, member_id="gone", what="a member that is not there")
                await self._commit_offsets(version, who, generation=3, member_id="gone", what="an old member")
                await self._commit_offsets(version, who, instance_id="static", what="an instance of nobody")
            await self._commit_offsets(version, who, group_id="", what="a group without a name")
            await self._end(min(version, 5), who, committed=False)

    async def _members(self) -> None:
        """Of a group of the consumer protocol, which Kafka 3.9 does not have with ZooKeeper."""
        epochs = {"a": 0}

        async def beat(member_id: str, epoch: int = 0) -> ErrorCode:
            request = ConsumerGroupHeartbeatRequest(
                group_id="h",
                member_id=member_id,
                member_epoch=epoch,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=[TOPIC],
                topic_partitions=[],
            )
            answer = await self._ask(request, ConsumerGroupHeartbeatResponse, 1)
            epochs[member_id] = answer.member_epoch
            return ErrorCode.of(answer.error_code)

        await self._done(lambda: beat("a"))
        first = epochs["a"]
        await self._done(lambda: beat("b"))
        while epochs["a"] == first:
            await self._done(lambda: beat("a", first))
            await asyncio.sleep(_LOOK_AGAIN_S)
        newest = epochs["a"]
        for version in range(3, 6):
            who = await self._begin(f"members-{version}")
            if version < 5:
                await self._add_offsets(4, who, "h")
            for what, member_id, epoch in (
                ("a member", "a", newest),
                ("an old epoch", "a", first),
                ("the epoch before all", "a", 0),
                ("an epoch to come", "a", newest + 1),
                ("no epoch", "a", -1),
                ("an epoch of nobody", "", newest),
                ("a stranger", "c", newest),
                ("nobody", "", -1),
            ):
                await self._commit_offsets(version, who, group_id="h", member_id=member_id, generation=epoch, what=what)
            await self._end(version, who, committed=True)

    async def _questions(self) -> None:
        who = await self._begin("questions")
        describe = DescribeTransactionsRequest(transactional_ids=[who.name, "never used", ""])
        described = await self._ask(describe, DescribeTransactionsResponse, 0)
        for each in described.transaction_states:
            state = f"{each.transaction_state} {each.transaction_timeout_ms} {each.topics}"
            self._say(f"describe {each.transactional_id!r}: {_name(each.error_code)} {state}")
        for version in range(3 if self._has_version_2 else 2):
            for fields in (
                {"state_filters": ["Empty"]},
                {"state_filters": ["Ongoing"]},
                {"state_filters": ["Asleep", "empty"]},
                {"producer_id_filters": [who.producer_id]},
                {"producer_id_filters": [-1]},
                {"duration_filter": -7},
                {"duration_filter": 0},
                {"duration_filter": 2**62},
                {"transactional_id_pattern": "quest.*"},
                {"transactional_id_pattern": "quest"},
                {"transactional_id_pattern": ""},
                {"transactional_id_pattern": "("},
            ):
                if ("duration_filter" in fields and version < 1) or (
                    "transactional_id_pattern" in fields and version < 2
                ):
                    continue
                listed = await self._ask(ListTransactionsRequest(**fields), ListTransactionsResponse, version)
                found = [one.transaction_state for one in listed.transaction_states if one.transactional_id == who.name]
                asked = {key: value for key, value in fields.items() if key != "producer_id_filters"}
                unknown = sorted(listed.unknown_state_filters)
                self._say(f"list v{version} {asked}: {_name(listed.error_code)} {found} {unknown}")

    async def _coordinators(self) -> None:
        for version in range(5):
            for kind, key in ((1, ""), (7, "t"), (-1, "t"), (0, "")):
                if not version and kind:
                    continue
                named = {"coordinator_keys": [key]} if version >= 4 else {"key": key}
                request = FindCoordinatorRequest(key_type=kind, **named)
                answer = await self._ask(request, FindCoordinatorResponse, version)
                codes = [each.error_code for each in answer.coordinators] if version >= 4 else [answer.error_code]
                self._say(f"find v{version} {kind} {key!r}: {', '.join(map(_name, codes))}")

    @staticmethod
    def _asked(question: Callable[[], Awaitable[FindCoordinatorResponse]]) -> Callable[[], Awaitable[ErrorCode]]:
        async def attempt() -> ErrorCode:
            return ErrorCode.of((await question()).error_code)

        return attempt

    # --- requests -----------------------------------------------------------------------------------------------------

    def _versions(self, all_versions: Sequence[int]) -> Sequence[int]:
        """Without those of transaction version 2, where there is none."""
        return [version for version in all_versions if self._has_version_2 or version < 5]

    def _produce_versions(self) -> Sequence[int]:
        return (3, 8, 11, 12) if self._has_version_2 else (3, 8, 11)

    async def _ask(self, request: Request, response: type[R], version: int) -> R:
        return await self._connection.send(request, response, version=version, timeout_s=_PATIENCE_S)

    def _say(self, line: str) -> None:
        self._scene.append(line)

    async def _done(self, attempt: Callable[[], Awaitable[ErrorCode]]) -> None:
        while (error := await attempt()) in _SOON:
            await asyncio.sleep(_LOOK_AGAIN_S)
        assert error is ErrorCode.NONE, error

    async def _begin(self, name: str) -> Who:
        """A new producer with that id."""
        found: list[Who] = []

        async def attempt() -> ErrorCode:
            where = FindCoordinatorRequest(key=name, key_type=1)
            await self._ask(where, FindCoordinatorResponse, 3)
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS)
            answer = await self._ask(request, InitProducerIdResponse, 4)
            found.append(Who(name, answer.producer_id, answer.producer_epoch))
            return ErrorCode.of(answer.error_code)

        await self._done(attempt)
        return found[-1]

    async def _init(self, what: str, version: int, name: str, timeout_ms: int, identity: tuple[int, int]) -> None:
        producer_id, epoch = identity
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=timeout_ms, producer_id=producer_id, producer_epoch=epoch
        )
        answer = await self._ask(request, InitProducerIdResponse, version)
        self._say(f"init v{version} {what}: {_name(answer.error_code)}")

    async def _add(
        self, version: int, who: Who, *indexes: int, topic: str = TOPIC, is_silent: bool = False
    ) -> ErrorCode:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=who.name,
            v3_and_below_producer_id=who.producer_id,
            v3_and_below_producer_epoch=who.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))],
        )
        answer = await self._ask(request, AddPartitionsToTxnResponse, version)
        codes = {
            each.partition_index: each.partition_error_code
            for found in answer.results_by_topic_v3_and_below
            for each in found.results_by_partition
        }
        if not is_silent:
            told = [_name(codes[index]) for index in sorted(codes)]
            self._say(f"add v{version} {topic} {list(indexes)}: {', '.join(told) or 'nothing'}")
        return ErrorCode.of(next(iter(codes.values()), 0))

    async def _add_many(self, verify_only: bool, *some: Who) -> None:
        """As a leader asks. In version 4, Kafka answers TRANSACTION_ABORTABLE as well, which leaders know since 5."""
        topics = [AddPartitionsToTxnTopic(name=TOPIC, partitions=[1])]
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=who.name,
                    producer_id=who.producer_id,
                    producer_epoch=who.epoch,
                    verify_only=verify_only,
                    topics=topics,
                )
                for who in some
            ]
        )
        answer = await self._ask(request, AddPartitionsToTxnResponse, 5)
        for one in sorted(answer.results_by_transaction, key=lambda one: one.transactional_id):
            codes = [each.partition_error_code for found in one.topic_results for each in found.results_by_partition]
            self._say(
                f"add v5{' to verify' if verify_only else ''} {one.transactional_id}: {', '.join(map(_name, codes))}"
            )

    async def _add_offsets(self, version: int, who: Who, group_id: str = "g") -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=who.name, producer_id=who.producer_id, producer_epoch=who.epoch, group_id=group_id
        )
        answer = await self._ask(request, AddOffsetsToTxnResponse, version)
        self._say(f"add offsets v{version}: {_name(answer.error_code)}")
        return ErrorCode.of(answer.error_code)

    async def _end(self, version: int, who: Who, *, committed: bool, what: str = "") -> None:
        request = EndTxnRequest(
            transactional_id=who.name, producer_id=who.producer_id, producer_epoch=who.epoch, committed=committed
        )
        while True:
            answer = await self._ask(request, EndTxnResponse, version)
            if answer.error_code not in _SOON:
                break
            await asyncio.sleep(_LOOK_AGAIN_S)
        told = _name(answer.error_code)
        if version >= 5 and not answer.error_code:
            told += f", epoch {answer.producer_epoch - who.epoch:+}"
        self._say(f"{'commit' if committed else 'abort'} v{version}{f' {what}' if what else ''}: {told}")

    async def _commit_offsets(
        self,
        version: int,
        who: Who,
        *,
        what: str = "",
        group_id: str = "g",
        indexes: Sequence[int] = (0,),
        offset: int = 5,
        metadata: str = "",
        generation: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
    ) -> None:
        partitions = [
            TxnOffsetCommitPartition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
            for index in indexes
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=who.name,
            group_id=group_id,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=[TxnOffsetCommitTopic(name=TOPIC, partitions=partitions)],
        )
        while True:
            answer = await self._ask(request, TxnOffsetCommitResponse, version)
            codes = {each.partition_index: each.error_code for found in answer.topics for each in found.partitions}
            if who.name not in ("", "never used") and codes[indexes[0]] in _SOON - {
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            }:
                await asyncio.sleep(_LOOK_AGAIN_S)
                continue
            break
        self._say(
            f"offsets v{version}{f' {what}' if what else ''}: {', '.join(_name(codes[index]) for index in indexes)}"
        )

    async def _produce(
        self,
        version: int,
        who: Who,
        *,
        what: str = "",
        sequence: int = 0,
        index: int = 0,
        acks: int = -1,
        is_transactional: bool = True,
    ) -> None:
        options = BatchOptions(
            transactional=is_transactional,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            base_sequence=sequence,
        )
        records = bytes(encode_batch([Record(0, 1_700_000_000_000, None, b"x")], options))
        request = ProduceRequest(
            transactional_id=who.name or None,
            acks=acks,
            timeout_ms=20_000,
            topic_data=[ProduceTopic(name=TOPIC, partition_data=[ProducePartition(index=index, records=records)])],
        )
        while True:
            answer = await self._ask(request, ProduceResponse, version)
            code = answer.responses[0].partition_responses[0].error_code
            if code not in _SOON - {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:
                break
            await asyncio.sleep(_LOOK_AGAIN_S)
        self._say(f"produce v{version}{f' {what}' if what else ''}: {_name(code)}")


def _name(code: int) -> str:
    return ErrorCode.of(code).name
