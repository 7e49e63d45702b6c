"""Fetching: what a consumer makes of the batches that brokers send, and of brokers that have a bad day."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from functools import partial

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition, Uuid, random_uuid
from ottla.client.consume import AsyncConsumer, ConsumerRecord
from ottla.client.consume.positions import Positions
from ottla.client.errors import (
    ClientError,
    CorruptRecordError,
    LogTruncatedError,
    NoBrokerError,
    NoOffsetError,
    OffsetOutOfRangeError,
    RefusedError,
    TopicRecreatedError,
    UnknownPartitionError,
    UnknownTopicError,
)
from ottla.client.subscriptions.subscription import ConsumedPartition
from ottla.records import BatchOptions, encode_batch, encode_transaction_marker
from ottla.records.layout import CRC_AT
from ottla.wire.messages.fetch import AbortedTransaction, FetchRequest, FetchResponse
from ottla.wire.messages.list_offsets import ListOffsetsRequest
from ottla.wire.messages.metadata import MetadataBroker, MetadataRequest
from ottla.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.wire.schema import Request
from support.clients.scripted_broker import KAFKA_2_1, Answer, HangUp, ScriptedBroker
from support.waiting import until
from unit.client.consume.scripted_log import TOPIC, Partition, ScriptedLog, batch, by_partition, config_for
from unit.client.membership.scripted_group import ScriptedGroup
from unit.client.test_cluster import run

EVENTS = TopicPartition(TOPIC, 0)
NEAR_ID = 8


async def read(consumer: AsyncConsumer, count: int) -> list[ConsumerRecord]:
    """So many records, or those that came in time."""
    records: list[ConsumerRecord] = []
    while len(records) < count:
        polled = await consumer.poll(5)
        if not polled:
            break
        records += polled
    return records


async def read_all(log: ScriptedLog, count: int, start: int | None = None, **settings: object) -> list[ConsumerRecord]:
    """That many records of partition 0."""
    async with log.broker() as broker, AsyncConsumer(config_for(broker, **settings)) as consumer:
        consumer.assign([EVENTS])
        if start is not None:
            consumer.seek(EVENTS, start)
        records = await read(consumer, count)
        assert await consumer.poll(0) == []
        return records


@pytest.mark.parametrize("start", [0, 3, 9])
def test_a_batch_that_holds_more_than_was_asked_for_is_cut(start: int) -> None:
    async def scenario() -> None:
        log = ScriptedLog(Partition([batch(0, 5), batch(5, 5)], end=10))
        records = await read_all(log, 10 - start, start)
        assert [record.offset for record in records] == list(range(start, 10))
        assert [record.value for record in records] == [b"%d" % offset for offset in range(start, 10)]
        assert records[0] == ConsumerRecord(TOPIC, 0, start, 1000 + start, 0, None, b"%d" % start, (), -1)

    run(scenario)


def test_a_batch_that_is_cut_off_is_fetched_again() -> None:
    async def scenario() -> None:
        log = ScriptedLog(Partition([batch(0, 5), batch(5, 5)], end=10, chunk=len(batch(0, 5)) + 20))
        assert [record.offset for record in await read_all(log, 10)] == list(range(10))

    run(scenario)


@pytest.mark.parametrize(
    "limits",
    [
        {"max_partition_fetch_bytes": 5},
        {"max_partition_fetch_bytes": 20},
        {"fetch_max_bytes": 30},
        {"queued_max_bytes": 30},
    ],
    ids=str,
)
def test_batches_above_all_limits_are_read(limits: dict[str, object]) -> None:
    async def scenario() -> None:
        partitions = [Partition([batch(0, 50), batch(50, 3), batch(53, 20)], end=73, is_limited=True) for _ in range(3)]
        log = ScriptedLog(*partitions)
        async with log.broker() as broker, AsyncConsumer(config_for(broker, **limits)) as consumer:
            consumer.assign([TopicPartition(TOPIC, index) for index in range(3)])
            assert by_partition(await read(consumer, 219)) == {index: list(range(73)) for index in range(3)}

    run(scenario)


def test_a_batch_that_never_comes_whole_is_reported() -> None:
    async def scenario() -> None:
        log = ScriptedLog(Partition([batch(0, 5), batch(5, 5)[:-1]], end=10))
        async with log.broker() as broker, AsyncConsumer(config_for(broker)) as consumer:
            consumer.assign([EVENTS])
            assert [record.offset for record in await read(consumer, 5)] == [0, 1, 2, 3, 4]
            for _ in range(2):
                with pytest.raises(CorruptRecordError, match=r"the batch at offset 5 is incomplete.*seek past it"):
                    await consumer.poll(5)

    run(scenario)


def test_markers_and_gaps_are_skipped() -> None:
    async def scenario() -> None:
        marker = encode_transaction_marker(
            producer_id=1, producer_epoch=0, committed=True, coordinator_epoch=0, timestamp_ms=1, base_offset=5
        )
        emptied = encode_batch([], BatchOptions(base_offset=6, last_offset_delta=3))
        log = ScriptedLog(Partition([batch(0, 5), marker, emptied], end=10))
        async with log.broker() as broker, AsyncConsumer(config_for(broker)) as consumer:
            consumer.assign([EVENTS])
            assert [record.offset for record in await read(consumer, 5)] == [0, 1, 2, 3, 4]
            assert await consumer.poll(0) == []
            assert await consumer.position(EVENTS) == 10

    run(scenario)


@pytest.mark.parametrize(
    ("isolation", "offsets"), [("read_uncommitted", list(range(9))), ("read_committed", [0, 1, 2, 6, 7, 8])]
)
def test_aborted_transactions_are_left_out_on_demand(isolation: str, offsets: list[int]) -> None:
    async def scenario() -> None:
        transaction = {"producer_id": 4, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
        marker = encode_transaction_marker(
            producer_id=4, producer_epoch=0, committed=False, coordinator_epoch=0, timestamp_ms=1, base_offset=9
        )
        partition = Partition(
            [batch(0, 3), batch(3, 3, **transaction), batch(6, 3), marker],
            end=10,
            aborted=[AbortedTransaction(producer_id=4, first_offset=3)],
        )
        records = await read_all(ScriptedLog(partition), len(offsets), isolation_level=isolation)
        assert [record.offset for record in records] == offsets

    run(scenario)


def test_retriable_errors_neither_lose_nor_repeat_records() -> None:
    async def scenario() -> None:
        partition = Partition([batch(0, 5), batch(5, 5)], end=10, chunk=len(batch(0, 5)))
        partition.errors = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE, ErrorCode.UNKNOWN_LEADER_EPOCH]
        log = ScriptedLog(partition)
        log.before = [HangUp(), ErrorCode.NONE, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, HangUp()]
        assert [record.offset for record in await read_all(log, 10)] == list(range(10))
        assert not partition.errors
        assert not log.before

    run(scenario)


def test_sessions_tell_only_what_changed() -> None:
    async def scenario() -> None:
        partitions = [Partition([batch(0, 5)], end=5) for _ in range(3)]
        log = ScriptedLog(*partitions)
        async with log.broker() as broker, AsyncConsumer(config_for(broker)) as consumer:
            consumer.assign([TopicPartition(TOPIC, index) for index in range(3)])
            assert by_partition(await read(consumer, 15)) == {index: [0, 1, 2, 3, 4] for index in range(3)}
            await until(lambda: log.fetches[-1].session_epoch >= 2 and not log.fetches[-1].topics)
            assert log.fetches[0].session_epoch == 0
            assert len(log.fetches[0].topics[0].partitions) == 3
            partitions[1].batches.append(batch(5, 2))
            partitions[1].end = 7
            log.changed()
            assert by_partition(await read(consumer, 2)) == {1: [5, 6]}
            await until(lambda: log.fetches[-1].topics)
            (changed,) = log.fetches[-1].topics[0].partitions
            assert (changed.partition, changed.fetch_offset) == (1, 7)
            assert log.fetched_at_once[-1] == {0, 1, 2}
            consumer.assign([EVENTS])
            await until(lambda: log.fetched_at_once[-1] == {0})
            assert log.fetches[-1].forgotten_topics_data[0].partitions == [1, 2]

    run(scenario)


def test_a_broker_without_sessions_is_asked_for_everything_each_time() -> None:
    async def scenario() -> None:
        log = ScriptedLog(Partition([batch(0, 5), batch(5, 5)], end=10, chunk=len(batch(0, 5))), session_id=0)
        assert len(await read_all(log, 10)) == 10
        assert {fetch.session_epoch for fetch in log.fetches} == {0}
        assert all(fetch.topics for fetch in log.fetches)

    run(scenario)


def test_topics_are_fetched_by_id_or_by_name_from_old_brokers() -> None:
    async def scenario() -> None:
        for newest, name in ((None, ""), (KAFKA_2_1, TOPIC)):
            log = ScriptedLog(Partition([batch(0, 5)], end=5))
            async with log.broker(newest=newest) as broker, AsyncConsumer(config_for(broker)) as consumer:
                consumer.assign([EVENTS])
                assert len(await read(consumer, 5)) == 5
                assert log.fetches[0].topics[0].topic == name

    run(scenario)


def test_fetching_ahead_is_bounded() -> None:
    async def scenario() -> None:
        batches = [batch(5 * index, 5) for index in range(100)]
        size = len(batches[-1])
        log = ScriptedLog(Partition(batches, end=500, chunk=size))
        settings = {"queued_max_bytes": 10 * size}
        async with log.broker() as broker, AsyncConsumer(config_for(broker, **settings)) as consumer:
            consumer.assign([EVENTS])
            state = consumer.subscriptions.state(EVENTS)
            await until(lambda: state.waiting_bytes >= 10 * size)
            fetches = len(log.fetches)
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(log.fetches) == fetches
            assert state.waiting_bytes <= 11 * size
            assert [record.offset for record in await read(consumer, 500)] == list(range(500))

    run(scenario)


def test_what_one_partition_holds_is_not_fetched_of_another() -> None:
    async def scenario() -> None:
        large, late = Partition([batch(0, 50)], end=50), Partition()
        log = ScriptedLog(large, late)
        settings = {"queued_max_bytes": len(large.batches[0]) - 1}
        async with log.broker() as broker, AsyncConsumer(config_for(broker, **settings)) as consumer:
            consumer.assign([(TOPIC, 0), (TOPIC, 1)])
            await until(lambda: consumer.subscriptions.state(EVENTS).waiting)
            late.batches, late.end = [batch(0, 5)], 5
            for _ in range(3):
                await consumer.partitions_for(TOPIC)  # time enough for a fetch to arrive
            assert len(log.fetches) == 1
            assert by_partition(await read(consumer, 55)) == {0: list(range(50)), 1: list(range(5))}

    run(scenario)


def test_an_answer_that_comes_after_a_seek_is_worth_nothing() -> None:
    async def scenario() -> None:
        partition = Partition([batch(0, 5)], end=5)
        log = ScriptedLog(partition)
        async with log.broker() as broker, AsyncConsumer(config_for(broker)) as consumer:
            consumer.assign([EVENTS])
            assert len(await consumer.poll(5)) == 5
            await until(lambda: len(log.fetches) == 2)  # waits for what comes after offset 4
            consumer.seek(EVENTS, 2)
            partition.batches.append(batch(5, 5))
            partition.end = 10
            log.changed()
            assert [record.offset for record in await read(consumer, 8)] == list(range(2, 10))

    run(scenario)


def test_a_seek_does_not_wait_for_a_fetch_that_nobody_wants() -> None:
    async def scenario() -> None:
        partition = Partition([batch(0, 10)], end=10)
        log = ScriptedLog(partition)
        async with log.broker() as broker, AsyncConsumer(config_for(broker, fetch_max_wait_ms=60_000)) as consumer:
            consumer.assign([EVENTS])
            for _ in range(2):
                consumer.seek(EVENTS, 0)
                assert [record.offset for record in await read(consumer, 10)] == list(range(10))
                await until(lambda: asked_offsets(log)[-1] == 10)
            # Now two fetches wait for what comes, and after this nobody waits for either: there is no third.
            consumer.seek(EVENTS, 5)
            assert await consumer.poll(0.1) == []
            assert asked_offsets(log)[-1] == 10
            partition.batches.append(batch(10, 5))
            partition.end = 15
            log.changed()
            assert [record.offset for record in await read(consumer, 10)] == list(range(5, 15))

    run(scenario)


def asked_offsets(log: ScriptedLog) -> list[int]:
    return [one.fetch_offset for fetch in log.fetches for topic in fetch.topics for one in topic.partitions]


def test_partitions_take_turns() -> None:
    async def scenario() -> None:
        log = ScriptedLog(*(Partition([batch(0, 5), batch(5, 5)], end=10, chunk=len(batch(0, 5))) for _ in range(2)))
        async with log.broker() as broker, AsyncConsumer(config_for(broker, max_poll_records=5)) as consumer:
            consumer.assign([(TOPIC, 0), (TOPIC, 1)])
            await until(lambda: all(len(state.waiting) == 2 for state in consumer.subscriptions.partitions.values()))
            order = [(await consumer.poll(0))[0].partition for _ in range(4)]
            assert order in ([0, 1, 0, 1], [1, 0, 1, 0])

    run(scenario)


def test_paused_partitions_keep_what_was_fetched_and_sought_ones_drop_it() -> None:
    async def scenario() -> None:
        log = ScriptedLog(Partition([batch(0, 5)], end=5), Partition([batch(0, 5)], end=5))
        async with log.broker() as broker, AsyncConsumer(config_for(broker)) as consumer:
            first, second = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
            consumer.assign([first, second])
            await until(lambda: all(state.waiting for state in consumer.subscriptions.partitions.values()))
            consumer.pause([first])
            assert consumer.paused() == {first}
            # It does not hold the whole answer any more, nor does what comes later.
            assert [type(chunk.data) for chunk in consumer.subscriptions.state(first).waiting] == [bytes]
            assert by_partition(await consumer.poll(0)) == {1: [0, 1, 2, 3, 4]}
            assert await consumer.poll(0) == []
            consumer.resume([first])
            assert by_partition(await consumer.poll(0, max_records=2)) == {0: [0, 1]}
            consumer.pause([first])
            assert await consumer.poll(0) == []
            consumer.resume([first])
            assert by_partition(await consumer.poll(0)) == {0: [2, 3, 4]}
            consumer.seek(first, 1)
            consumer.pause([second])
            assert by_partition(await consumer.poll(5, max_records=1)) == {0: [1]}
            consumer.seek(first, 3)
            assert by_partition(await consumer.poll(5)) == {0: [3, 4]}

    run(scenario)


def _is_reset(state: ConsumedPartition) -> bool:
    return state.generation >= 3 and state.position is not None


@pytest.mark.parametrize(("reset", "offsets"), [("earliest", [3, 4, 5]), ("latest", [])])
def test_an_offset_that_is_not_there_leads_to_where_the_config_says(reset: str, offsets: list[int]) -> None:
    async def scenario() -> None:
        for start in (0, 20):
            log = ScriptedLog(Partition([batch(3, 3)], first=3, end=6))
            settings = {"auto_offset_reset": reset}
            async with log.broker() as broker, AsyncConsumer(config_for(broker, **settings)) as consumer:
                consumer.assign([EVENTS])
                consumer.seek(EVENTS, start)
                state = consumer.subscriptions.state(EVENTS)
                await until(partial(_is_reset, state))
                assert [record.offset for record in await consumer.poll(0.3)] == offsets
                assert await consumer.position(EVENTS) == 6

    run(scenario)


def test_without_a_reset_the_error_names_the_available_offsets() -> None:
    async def scenario() -> None:
        log = ScriptedLog(Partition([batch(3, 7)], first=3, end=10))
        async with log.broker() as broker, AsyncConsumer(config_for(broker, auto_offset_reset="none")) as consumer:
            consumer.assign([EVENTS])
            with pytest.raises(NoOffsetError, match="events-0 has no committed offset"):
                await consumer.poll(5)
            consumer.seek(EVENTS, 20)
            for _ in range(2):
                with pytest.raises(OffsetOutOfRangeError, match=r"offset 20 is out of range: .* has offsets 3 to 9"):
                    await consumer.poll(5)
            consumer.seek(EVENTS, 8)
            assert [record.offset for record in await consumer.poll(5)] == [8, 9]

    run(scenario)


def test_everything_before_a_failure_is_handed_out_first() -> None:
    async def scenario() -> None:
        corrupt = batch(5, 5)
        corrupt[CRC_AT] ^= 1
        log = ScriptedLog(Partition([batch(0, 5), corrupt, batch(10, 2)], end=12))
        async with log.broker() as broker, AsyncConsumer(config_for(broker)) as consumer:
            consumer.assign([EVENTS])
            assert [record.offset for record in await consumer.poll(5)] == [0, 1, 2, 3, 4]
            for _ in range(2):
                with pytest.raises(CorruptRecordError, match=r"partition events-0, .* base offset 5: its CRC"):
                    await consumer.poll(5)
            consumer.seek(EVENTS, 10)
            assert [record.offset for record in await consumer.poll(5)] == [10, 11]
        trusting = ScriptedLog(Partition([batch(0, 5), corrupt], end=10))
        assert len(await read_all(trusting, 10, check_crcs=False)) == 10

    run(scenario)


def test_garbage_is_reported_and_not_fetched_over_and_over() -> None:
    async def scenario() -> None:
        garbage = batch(5, 5)
        garbage[16] = 9
        log = ScriptedLog(Partition([batch(0, 5), garbage], end=10))
        async with log.broker() as broker, AsyncConsumer(config_for(broker)) as consumer:
            consumer.assign([EVENTS])
            assert len(await consumer.poll(5)) == 5
            with pytest.raises(CorruptRecordError, match="starting at offset 5: magic 9"):
                await consumer.poll(5)
            fetches = len(log.fetches)
            for _ in range(50):
                await asyncio.sleep(0)
            assert len(log.fetches) == fetches

    run(scenario)


def test_a_refusal_that_does_not_pass_is_raised() -> None:
    async def scenario() -> None:
        partition = Partition([batch(0, 5)], end=5, errors=[ErrorCode.TOPIC_AUTHORIZATION_FAILED])
        async with ScriptedLog(partition).broker() as broker, AsyncConsumer(config_for(broker)) as consumer:
            consumer.assign([EVENTS])
            with pytest.raises(RefusedError, match="TOPIC_AUTHORIZATION_FAILED"):
                await consumer.poll(5)

    run(scenario)


def test_topics_and_partitions_that_are_not_there_are_reported() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            for partition, error, words in (
                (TopicPartition("nope", 0), UnknownTopicError, "nope"),
                (TopicPartition("events", 7), UnknownPartitionError, "events has no partition 7: it has 1"),
            ):
                async with AsyncConsumer(config_for(broker, default_api_timeout_ms=10)) as consumer:
                    consumer.assign([partition])
                    with pytest.raises(error, match=words):
                        await consumer.poll(5)
        async with AsyncConsumer(config_for(broker, default_api_timeout_ms=100)) as consumer:
            consumer.assign([EVENTS])
            with pytest.raises(NoBrokerError):
                await consumer.poll(5)

    run(scenario)


def test_a_consumer_waits_for_a_broker_that_is_about_to_start() -> None:
    async def scenario() -> None:
        log = ScriptedLog(Partition([batch(0, 5)], end=5))
        async with ScriptedBroker() as gone:
            address = gone.address
        async with AsyncConsumer(config_for(gone)) as consumer:
            consumer.assign([EVENTS])
            polling = asyncio.create_task(consumer.poll())
            await until(lambda: consumer._fetcher._alone_since_s is not None)
            async with log.broker(port=address.port):
                assert len(await polling) == 5

    run(scenario)


def test_a_poll_without_anything_to_read_is_a_mistake() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, AsyncConsumer(config_for(broker)) as consumer:
            with pytest.raises(ClientError, match="nothing to poll"):
                await consumer.poll(5)

    run(scenario)


# Leaders and replicas.


def test_a_new_leader_that_has_everything_is_read_on_from() -> None:
    async def scenario() -> None:
        partition = Partition([batch(0, 5, leader_epoch=0)], end=5, epoch_ends={0: (0, 5)})
        log = ScriptedLog(partition)
        async with log.broker() as broker, AsyncConsumer(config_for(broker)) as consumer:
            consumer.assign([EVENTS])
            assert len(await consumer.poll(5)) == 5
            broker.leader_epoch = 1
            partition.batches.append(batch(5, 5, leader_epoch=1))
            partition.end = 10
            log.changed()
            assert [record.offset for record in await consumer.poll(5)] == [5, 6, 7, 8, 9]
            (asked,) = broker.of(OffsetForLeaderEpochRequest)
            assert isinstance(asked, OffsetForLeaderEpochRequest)
            one = asked.topics[0].partitions[0]
            assert (one.leader_epoch, one.current_leader_epoch) == (0, 1)

    run(scenario)


@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_a_leader_that_lost_what_was_read_is_noticed(reset: str) -> None:
    async def scenario() -> None:
        partition = Partition([batch(0, 5, leader_epoch=0)], end=5, epoch_ends={0: (0, 3)})
        log = ScriptedLog(partition)
        async with log.broker() as broker, AsyncConsumer(config_for(broker, auto_offset_reset=reset)) as consumer:
            consumer.assign([EVENTS])
            consumer.seek(EVENTS, 0)
            assert len(await consumer.poll(5)) == 5
            broker.leader_epoch = 1
            partition.batches = [batch(3, 4, leader_epoch=1)]
            partition.end = 7
            log.changed()
            if reset == "none":
                with pytest.raises(LogTruncatedError, match="truncated before offset 5"):
                    await consumer.poll(5)
            else:
                assert [record.offset for record in await consumer.poll(5)] == [3, 4, 5, 6]

    run(scenario)


def test_an_offset_that_is_sought_before_a_new_leader_is_asked_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its epoch is not known, so there is nothing to compare. With auto.offset.reset=latest, records would be lost."""

    async def scenario() -> None:
        partition = Partition([batch(0, 5, leader_epoch=0)], end=5, epoch_ends={0: (0, 5)})
        log = ScriptedLog(partition)
        async with log.broker() as broker, AsyncConsumer(config_for(broker)) as consumer:
            validate = Positions.validate

            async def sought_meanwhile(positions: Positions, leader_id: int, states: list[ConsumedPartition]) -> None:
                consumer.seek(EVENTS, 3)
                await validate(positions, leader_id, states)

            monkeypatch.setattr(Positions, "validate", sought_meanwhile)
            consumer.assign([EVENTS])
            assert len(await consumer.poll(5)) == 5
            broker.leader_epoch = 1
            log.changed()
            assert [record.offset for record in await read(consumer, 2)] == [3, 4]

    run(scenario)


def test_metadata_is_fetched_again_if_a_new_leader_is_gone_before_it_was_asked_what_it_has() -> None:
    async def scenario() -> None:
        partition = Partition([batch(0, 5, leader_epoch=0)], end=5, epoch_ends={0: (0, 5)})
        log = ScriptedLog(partition)

        def dying(request: Request) -> Answer | None:
            return HangUp() if isinstance(request, OffsetForLeaderEpochRequest) else metadata(request)

        def metadata(request: Request) -> Answer | None:
            if not isinstance(request, MetadataRequest):
                return None
            if other.of(OffsetForLeaderEpochRequest):
                broker.leader_epoch = 2
            answer = broker.metadata(request)
            answer.brokers.append(MetadataBroker(node_id=NEAR_ID, host=other.address.host, port=other.address.port))
            if broker.leader_epoch == 1:
                answer.topics[0].partitions[0].leader_id = NEAR_ID
            return answer

        async with log.broker() as broker, ScriptedBroker(dying) as other:
            broker.script = lambda request: metadata(request) or log(request)
            async with AsyncConsumer(config_for(broker)) as consumer:
                consumer.assign([EVENTS])
                assert len(await consumer.poll(5)) == 5
                broker.leader_epoch = 1
                partition.batches.append(batch(5, 5, leader_epoch=2))
                partition.end = 10
                log.changed()
                assert [record.offset for record in await consumer.poll(5)] == [5, 6, 7, 8, 9]

    run(scenario)


def test_truncated_records_that_were_not_returned_are_dropped_silently() -> None:
    async def scenario() -> None:
        partition = Partition([batch(0, 5, leader_epoch=0)], end=5, epoch_ends={0: (0, 3)})
        log = ScriptedLog(partition)
        async with log.broker() as broker, AsyncConsumer(config_for(broker, auto_offset_reset="none")) as consumer:
            consumer.assign([EVENTS])
            consumer.seek(EVENTS, 0)
            assert [record.offset for record in await consumer.poll(5, max_records=2)] == [0, 1]
            broker.leader_epoch = 1
            partition.batches = [batch(0, 3, leader_epoch=0), batch(3, 4, leader_epoch=1)]
            partition.end = 7
            log.changed()
            await until(lambda: broker.of(OffsetForLeaderEpochRequest))
            await until(lambda: consumer.subscriptions.state(EVENTS).fetched == (7, 1))
            records = await read(consumer, 5)
            assert [(record.offset, record.leader_epoch) for record in records] == [
                (2, 0),
                *((offset, 1) for offset in range(3, 7)),
            ]

    run(scenario)


def test_a_consumer_goes_to_the_replica_that_the_leader_names_and_back() -> None:
    async def scenario() -> None:
        near, far = Partition([batch(0, 5)], end=5), Partition(preferred_read_replica=NEAR_ID, end=10)
        leader, follower = ScriptedLog(far), ScriptedLog(near)
        async with leader.broker() as broker, follower.broker() as other:

            def introduce(request: Request) -> Answer | Awaitable[Answer] | None:
                if not isinstance(request, MetadataRequest):
                    return leader(request)
                answer = broker.metadata(request)
                answer.brokers.append(MetadataBroker(node_id=NEAR_ID, host=other.address.host, port=other.address.port))
                return answer

            broker.script = introduce
            async with AsyncConsumer(config_for(broker, client_rack="a")) as consumer:
                consumer.assign([EVENTS])
                assert [record.offset for record in await consumer.poll(5)] == [0, 1, 2, 3, 4]
                assert leader.fetches[0].rack_id == "a"
                far.preferred_read_replica = -1
                far.batches = [batch(0, 5), batch(5, 5)]
                # The follower does not have what comes next, and says that it has not; the leader is asked again.
                near.errors = [ErrorCode.OFFSET_OUT_OF_RANGE]
                follower.changed()
                assert [record.offset for record in await consumer.poll(5)] == [5, 6, 7, 8, 9]
                assert consumer.subscriptions.state(EVENTS).read_replica is None

    run(scenario)


def test_the_ends_and_times_of_partitions() -> None:
    async def scenario() -> None:
        log = ScriptedLog(Partition(first=3, end=10))
        settings = {"isolation_level": "read_committed"}
        async with log.broker() as broker, AsyncConsumer(config_for(broker, **settings)) as consumer:
            assert await consumer.beginning_offsets([EVENTS]) == {EVENTS: 3}
            assert await consumer.end_offsets([EVENTS]) == {EVENTS: 10}
            assert await consumer.offsets_for_times({EVENTS: 1007}) == {EVENTS: (7, 1007, 0)}
            assert await consumer.offsets_for_times({EVENTS: 5000}) == {EVENTS: None}
            asked = broker.of(ListOffsetsRequest)
            assert [one.isolation_level for one in asked if isinstance(one, ListOffsetsRequest)] == [1] * 4
            consumer.assign([EVENTS])
            consumer.seek_to_end()
            assert await consumer.position(EVENTS) == 10
            assert all(one.isolation_level == 1 for one in broker.requests if isinstance(one, ListOffsetsRequest))
            with pytest.raises(ValueError, match="is not a timestamp"):
                await consumer.offsets_for_times({EVENTS: -5})

    run(scenario)


def test_closing_ends_what_goes_on() -> None:
    async def scenario() -> None:
        log = ScriptedLog(Partition([batch(0, 5)], end=5))
        async with log.broker() as broker:
            async with AsyncConsumer(config_for(broker)) as consumer:
                consumer.assign([EVENTS])
                await consumer.poll(5)
            assert not [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("ottla-")]
            await consumer.close()

    run(scenario)


# Topics that are deleted and created again.


class Recreated:
    """A log of ten records, in whose place another comes, with its own id."""

    def __init__(self, records: int) -> None:
        self.log = ScriptedLog(Partition([batch(0, 10)], end=10))
        self._records = records
        self._topic_id: Uuid | None = None

    def broker(self) -> ScriptedBroker:
        broker = self.log.broker()
        broker.script = self._act
        return broker

    def recreate(self) -> None:
        self._topic_id = random_uuid()
        log = ScriptedLog(Partition([batch(0, self._records)], end=self._records))
        log._broker = self.log._broker
        self.log = log

    def _act(self, request: Request) -> Answer | Awaitable[Answer] | None:
        if self._topic_id is None:
            return self.log(request)
        if isinstance(request, MetadataRequest):
            answer = self.log._broker.metadata(request)
            for topic in answer.topics:
                topic.topic_id = self._topic_id
            return answer
        if isinstance(request, FetchRequest):
            return self._fetch(request, self._topic_id)
        return self.log(request)

    async def _fetch(self, request: FetchRequest, topic_id: Uuid) -> Answer:
        if any(topic.topic_id != topic_id for topic in request.topics) or not request.topics:
            return FetchResponse(error_code=ErrorCode.UNKNOWN_TOPIC_ID)
        answer = await self.log._fetch(request)
        assert isinstance(answer, FetchResponse)
        for topic in answer.responses:
            topic.topic_id = topic_id
        return answer


@pytest.mark.parametrize("records", [4, 10, 15])
@pytest.mark.parametrize("way", ["poll", "iterate"])
def test_a_topic_that_was_created_again_is_read_from_where_the_reset_says(
    records: int, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        topic = Recreated(records)
        async with topic.broker() as broker, AsyncConsumer(config_for(broker, fetch_max_wait_ms=10)) as consumer:
            consumer.assign([EVENTS])
            if way == "poll":
                assert len(await read(consumer, 10)) == 10
            else:
                async for record in consumer:
                    if record.offset == 5:
                        break  # what is left of the iteration is the old topic's
            topic.recreate()
            await until(lambda: "created again" in caplog.text)
            found = await read(consumer, records)
            assert [record.offset for record in found] == list(range(records))
            assert await consumer.position(EVENTS) == records

    run(scenario)


def test_a_topic_without_news_that_was_created_again_is_reset_as_well(caplog: pytest.LogCaptureFixture) -> None:
    """Brokers leave partitions without news out of their answers in a session."""

    async def scenario() -> None:
        topic = Recreated(15)
        async with topic.broker() as broker, AsyncConsumer(config_for(broker, fetch_max_wait_ms=10)) as consumer:
            consumer.assign([EVENTS])
            assert len(await read(consumer, 10)) == 10
            consumer.seek(EVENTS, 10)
            asked = len(topic.log.fetches)
            await until(lambda: len(topic.log.fetches) > asked + 2)
            assert all(fetch.session_epoch for fetch in topic.log.fetches[asked:])
            topic.recreate()
            assert [record.offset for record in await read(consumer, 15)] == list(range(15))
            assert "created again" in caplog.text

    run(scenario)


def test_a_topic_that_was_created_again_is_told_without_a_reset() -> None:
    async def scenario() -> None:
        topic = Recreated(15)
        settings = {"auto_offset_reset": "none", "fetch_max_wait_ms": 10}
        async with topic.broker() as broker, AsyncConsumer(config_for(broker, **settings)) as consumer:
            consumer.assign([EVENTS])
            consumer.seek(EVENTS, 0)
            assert len(await read(consumer, 10)) == 10
            topic.recreate()
            for _ in range(2):
                with pytest.raises(TopicRecreatedError, match="offset 10 of partition events-0"):
                    await consumer.poll(5)
            consumer.seek(EVENTS, 12)
            assert [record.offset for record in await read(consumer, 3)] == [12, 13, 14]

    run(scenario)


def test_a_seek_in_a_topic_that_was_created_again_works() -> None:
    """Also if the consumer has not heard of it yet."""

    async def scenario() -> None:
        topic = Recreated(15)
        settings = {"auto_offset_reset": "none", "fetch_max_wait_ms": 10}
        async with topic.broker() as broker, AsyncConsumer(config_for(broker, **settings)) as consumer:
            consumer.assign([EVENTS])
            consumer.seek(EVENTS, 0, until=10)
            assert len(await read(consumer, 10)) == 10
            topic.recreate()
            consumer.seek(EVENTS, 12)
            assert [record.offset for record in await read(consumer, 3)] == [12, 13, 14]

    run(scenario)


def test_a_paused_partition_is_reset_as_well(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        topic = Recreated(3)
        async with topic.broker() as broker, AsyncConsumer(config_for(broker, fetch_max_wait_ms=10)) as consumer:
            consumer.assign([EVENTS])
            assert len(await read(consumer, 10)) == 10
            consumer.pause([EVENTS])
            topic.recreate()
            await consumer.partitions_for(TOPIC)
            consumer.resume([EVENTS])
            assert [record.offset for record in await read(consumer, 3)] == [0, 1, 2]
            assert "created again" in caplog.text

    run(scenario)


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize("by", ["name", "pattern"])
def test_only_topics_that_are_named_are_created_and_only_if_allowed(allowed: bool, by: str) -> None:
    async def scenario() -> None:
        broker = ScriptedGroup(topics={})
        settings = {"allow_auto_create_topics": True} if allowed else {}
        async with broker, AsyncConsumer(config_for(broker, group_id="group", **settings)) as consumer:
            if by == "pattern":
                consumer.subscribe(re.compile("gone"))
            else:
                consumer.subscribe(["gone"])
            consumer.subscriptions.assigned_by_group([TopicPartition("gone", 0)])
            consumer.seek(TopicPartition("gone", 0), 5)
            await until(lambda: any(one.topics for one in broker.requests if isinstance(one, MetadataRequest)))
            asked = [one for one in broker.requests if isinstance(one, MetadataRequest) and one.topics]
            assert any(one.allow_auto_topic_creation for one in asked) == (allowed and by == "name")
            consumer.subscriptions.unsubscribe()

    run(scenario)
