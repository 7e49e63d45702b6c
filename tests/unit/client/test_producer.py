"""A producer on bad days: refusals, lost answers, full buffers, interruptions."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.client.cluster import Cluster, ClusterOptions
from ottla.client.errors import ClientError, ClosedError, RefusedError
from ottla.client.producer import Producer, ProducerOptions
from ottla.records import BatchHeader, Compression, Record, decode_batch, read_header
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.produce import (
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from ottla.wire.schema import Request
from unit.client.scripted_broker import TOPIC_ID, Answer, HangUp, ScriptedBroker, Silence
from unit.client.test_cluster import run

QUICK = ClusterOptions(retry_backoff_s=0.001)
AT_ONCE = ProducerOptions(linger_s=0)


class Log:
    """Appends what is produced, after the answers that a test wants first."""

    def __init__(self, *first: ErrorCode | HangUp | Silence) -> None:
        self.first = list(first)
        self.records: dict[int, list[Record]] = {}
        self.batches = 0
        self.producer_ids = 0

    def __call__(self, request: Request) -> Answer | None:
        if isinstance(request, InitProducerIdRequest):
            self.producer_ids += 1
            return InitProducerIdResponse(producer_id=self.producer_ids, producer_epoch=5)
        if not isinstance(request, ProduceRequest):
            return None
        special = self.first.pop(0) if self.first else ErrorCode.NONE
        if not isinstance(special, ErrorCode):
            return special
        partitions = []
        for topic in request.topic_data:
            for one in topic.partition_data:
                log = self.records.setdefault(one.index, [])
                offset = len(log)
                if special is ErrorCode.NONE:
                    assert one.records is not None
                    log += decode_batch(one.records)
                    self.batches += 1
                answer = ProducePartitionResponse(index=one.index, error_code=special, base_offset=offset)
                partitions.append(answer)
        if request.acks == 0:
            return Silence()
        responses = [ProduceTopicResponse(name="events", topic_id=TOPIC_ID, partition_responses=partitions)]
        return ProduceResponse(responses=responses)

    def values(self, partition: int = 0) -> list[bytes | None]:
        return [record.value for record in self.records[partition]]


def headers_sent(broker: ScriptedBroker) -> list[BatchHeader]:
    """Of the one batch of each request, in the order of their coming."""
    headers = []
    for request in broker.of(ProduceRequest):
        assert isinstance(request, ProduceRequest)
        data = request.topic_data[0].partition_data[0].records
        assert data is not None
        headers.append(read_header(data))
    return headers


@pytest.mark.parametrize(
    "bad_day",
    [
        [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS],
        [HangUp(), HangUp()],
        [ErrorCode.LEADER_NOT_AVAILABLE, HangUp()],
    ],
)
def test_records_stay_in_order_though_a_batch_has_to_be_sent_again(bad_day: list[ErrorCode | HangUp]) -> None:
    async def scenario() -> None:
        log = Log(*bad_day)
        async with ScriptedBroker(log) as broker, Cluster(broker.bootstrap, QUICK) as cluster:
            async with Producer(cluster, ProducerOptions(linger_s=0, batch_bytes=100)) as producer:
                deliveries = [await producer.send("events", b"%d" % index) for index in range(50)]
            acknowledged = [await delivery.acknowledged() for delivery in deliveries]
            assert log.values() == [b"%d" % index for index in range(50)]
            assert [one.offset for one in acknowledged] == list(range(50))
            assert log.batches > 5

    run(scenario)


def test_what_is_refused_for_good_is_told_by_the_delivery_and_by_flush() -> None:
    async def scenario() -> None:
        log = Log(ErrorCode.MESSAGE_TOO_LARGE)
        async with (
            ScriptedBroker(log) as broker,
            Cluster(broker.bootstrap, QUICK) as cluster,
            Producer(cluster, AT_ONCE) as producer,
        ):
            delivery = await producer.send("events", b"large")
            with pytest.raises(RefusedError, match=r"partition events-0: .*MESSAGE_TOO_LARGE"):
                await producer.flush()
            with pytest.raises(RefusedError):
                await delivery.acknowledged()
            # What was told is told, and the next record is none the worse.
            await (await producer.send("events", b"small")).acknowledged()
            await producer.flush()
            assert log.values() == [b"small"]

    run(scenario)


def test_attempts_end_when_the_time_for_delivery_is_over() -> None:
    async def scenario() -> None:
        log = Log(*[ErrorCode.NOT_ENOUGH_REPLICAS] * 10_000)
        options = ProducerOptions(linger_s=0, delivery_timeout_s=0.1)
        async with ScriptedBroker(log) as broker, Cluster(broker.bootstrap, QUICK) as cluster:
            with pytest.raises(RefusedError, match="NOT_ENOUGH_REPLICAS"):
                async with Producer(cluster, options) as producer:
                    await producer.send("events", b"never")
            assert len(broker.of(ProduceRequest)) > 1

    run(scenario)


def test_records_travel_together_with_key_headers_time_and_codec() -> None:
    async def scenario() -> None:
        log = Log()
        options = ProducerOptions(linger_s=60, compression=Compression.ZSTD)
        async with (
            ScriptedBroker(log, {"events": 4}) as broker,
            Cluster(broker.bootstrap) as cluster,
            Producer(cluster, options) as producer,
        ):
            for index in range(30):
                await producer.send("events", None, key=b"abc", headers=[("h", b"1"), ("h", None)], timestamp_ms=index)
            # It would linger for a minute: a flush does not wait for that.
            await producer.flush()
            (request,) = broker.of(ProduceRequest)
            assert isinstance(request, ProduceRequest)
            assert request.acks == -1
            ((partition, records),) = log.records.items()
            assert [record[1:] for record in records] == [
                (index, b"abc", None, (("h", b"1"), ("h", None))) for index in range(30)
            ]
            assert partition == 3  # of 4, by the hash of the key
            data = request.topic_data[0].partition_data[0].records
            assert data is not None
            assert data[22] & 7 == Compression.ZSTD

    run(scenario)


def test_a_batch_leaves_when_it_has_lingered() -> None:
    async def scenario() -> None:
        log = Log()
        async with (
            ScriptedBroker(log) as broker,
            Cluster(broker.bootstrap) as cluster,
            Producer(cluster, ProducerOptions(linger_s=0.01)) as producer,
        ):
            deliveries = [await producer.send("events", b"%d" % index) for index in range(3)]
            assert [(await one.acknowledged()).offset for one in deliveries] == [0, 1, 2]
            assert log.batches == 1

    run(scenario)


def test_a_record_that_comes_while_its_partition_is_busy_goes_into_the_next_batch() -> None:
    async def scenario() -> None:
        came, may_answer = asyncio.Event(), asyncio.Event()
        log = Log()

        async def slow(request: Request) -> Answer:
            if isinstance(request, ProduceRequest):
                came.set()
                await may_answer.wait()
            answer = log(request)
            assert answer is not None
            return answer

        async with ScriptedBroker() as broker, Cluster(broker.bootstrap) as cluster:
            await cluster.topic("events")
            broker.script = slow
            async with Producer(cluster, AT_ONCE) as producer:
                first = await producer.send("events", b"first")
                await came.wait()
                second = await producer.send("events", b"second")
                may_answer.set()
                assert [(await one.acknowledged()).offset for one in (first, second)] == [0, 1]
            assert log.values() == [b"first", b"second"]
            assert log.batches == 2

    run(scenario)


def test_a_full_buffer_holds_the_sender_back() -> None:
    async def scenario() -> None:
        may_answer = asyncio.Event()
        log = Log()

        async def slow(request: Request) -> Answer:
            await may_answer.wait()
            answer = log(request)
            assert answer is not None
            return answer

        async with ScriptedBroker() as broker, Cluster(broker.bootstrap) as cluster:
            await cluster.topic("events")
            broker.script = slow
            async with Producer(cluster, ProducerOptions(linger_s=0, buffer_bytes=1000)) as producer:
                sent = 0

                async def send_all() -> None:
                    nonlocal sent
                    for _ in range(100):
                        await producer.send("events", b"x" * 76)
                        sent += 1

                sending = asyncio.create_task(send_all())
                while sent < 10:
                    await asyncio.sleep(0)
                for _ in range(100):
                    await asyncio.sleep(0)
                assert sent == 10
                may_answer.set()
                await sending
            assert len(log.values()) == 100

    run(scenario)


def test_without_acks_nothing_is_waited_for() -> None:
    async def scenario() -> None:
        log = Log()
        async with ScriptedBroker(log) as broker, Cluster(broker.bootstrap) as cluster:
            async with Producer(cluster, ProducerOptions(acks=0, linger_s=0)) as producer:
                acknowledged = await (await producer.send("events", b"x")).acknowledged()
            assert acknowledged.offset == -1
            # The next request over the same connection comes behind it.
            await cluster.refresh()
            assert log.values() == [b"x"]

    run(scenario)


def test_leaving_by_an_exception_drops_what_is_not_sent_and_leaves_no_task_behind() -> None:
    async def scenario() -> None:
        log = Log()
        async with ScriptedBroker(log) as broker, Cluster(broker.bootstrap) as cluster:
            producer = Producer(cluster, ProducerOptions(linger_s=60))
            delivery = await producer.send("events", b"x")
            await producer.__aexit__(ZeroDivisionError, None, None)
            with pytest.raises(ClosedError):
                await delivery.acknowledged()
            with pytest.raises(ClosedError):
                await producer.send("events", b"y")
            assert not broker.of(ProduceRequest)
            assert not [task for task in asyncio.all_tasks() if task.get_name() == "ottla-producer"]

    run(scenario)


def test_a_batch_that_is_sent_again_keeps_its_sequence_numbers_and_the_next_goes_on_from_there() -> None:
    async def scenario() -> None:
        log = Log(ErrorCode.NONE, HangUp(), ErrorCode.NOT_LEADER_OR_FOLLOWER)
        async with (
            ScriptedBroker(log) as broker,
            Cluster(broker.bootstrap, QUICK) as cluster,
            Producer(cluster, AT_ONCE) as producer,
        ):
            for count in (3, 2, 1):
                for _ in range(count):
                    await producer.send("events", b"x")
                await producer.flush()
            headers = headers_sent(broker)
            assert [(one.base_sequence, one.record_count) for one in headers] == [
                (0, 3),
                (3, 2),
                (3, 2),
                (3, 2),
                (5, 1),
            ]
            assert {(one.producer_id, one.producer_epoch) for one in headers} == {(1, 5)}

    run(scenario)


def test_after_a_batch_that_was_given_up_the_producer_is_another_one() -> None:
    async def scenario() -> None:
        log = Log(ErrorCode.NONE, ErrorCode.INVALID_RECORD)
        async with (
            ScriptedBroker(log) as broker,
            Cluster(broker.bootstrap, QUICK) as cluster,
            Producer(cluster, AT_ONCE) as producer,
        ):
            for value in (b"good", b"bad", b"good again"):
                await producer.send("events", value)
                with suppress(RefusedError):
                    await producer.flush()
            headers = headers_sent(broker)
            assert [(one.producer_id, one.base_sequence) for one in headers] == [(1, 0), (1, 1), (2, 0)]
            assert log.values() == [b"good", b"good again"]

    run(scenario)


@pytest.mark.parametrize("options", [ProducerOptions(acks=1), ProducerOptions(idempotent=False)])
def test_without_idempotence_there_are_no_sequence_numbers(options: ProducerOptions) -> None:
    async def scenario() -> None:
        async with ScriptedBroker(Log()) as broker, Cluster(broker.bootstrap) as cluster:
            async with Producer(cluster, options) as producer:
                await producer.send("events", b"x")
            (header,) = headers_sent(broker)
            assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
            assert not broker.of(InitProducerIdRequest)

    run(scenario)


def test_what_cannot_be_sent_is_refused_at_once() -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker() as broker,
            Cluster(broker.bootstrap) as cluster,
            Producer(cluster) as producer,
        ):
            with pytest.raises(ClientError, match="topic events has partitions 0 to 0, not 3"):
                await producer.send("events", b"x", partition=3)
            with pytest.raises(ValueError, match="cannot have timestamp -5"):
                await producer.send("events", b"x", timestamp_ms=-5)

    run(scenario)
