"""Batches on bad days: refusals, lost answers, leaders that move, time that runs out. Each record once, in order."""

from __future__ import annotations

import asyncio
import random

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.client.errors import (
    BrokerConnectionError,
    ClientError,
    ClosedError,
    DeliveryTimeoutError,
    RecordTooLargeError,
    RefusedError,
)
from ottla.client.produce import AsyncProducer, Delivery
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.schema import Request
from support.clients.scripted_broker import KAFKA_2_1, Answer, HangUp, ScriptedBroker, Silence
from unit.client.produce.scripted_log import AppendSilently, AppendThenHangUp, Fault, Log, settings
from unit.client.test_cluster import run

SMALL = 200
"""A batch of a few records."""


@pytest.mark.parametrize("in_flight", [1, 5])
@pytest.mark.parametrize(
    "bad_day",
    [
        [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS],
        [HangUp(), HangUp()],
        [AppendThenHangUp(), AppendThenHangUp(), None, AppendThenHangUp()],
        [None, ErrorCode.LEADER_NOT_AVAILABLE, HangUp(), None, None, AppendThenHangUp()],
        [ErrorCode.NETWORK_EXCEPTION, None, ErrorCode.REQUEST_TIMED_OUT],
    ],
)
def test_records_are_there_once_and_in_order_though_batches_are_sent_again(
    bad_day: list[Fault | None], in_flight: int
) -> None:
    async def scenario() -> None:
        log = Log(*bad_day)
        async with ScriptedBroker(log) as broker:
            changes = {"batch_size": SMALL, "max_in_flight_requests_per_connection": in_flight}
            async with AsyncProducer(settings(broker, **changes)) as producer:
                deliveries = [await producer.send("events", b"%d" % index) for index in range(100)]
            assert log.values() == [b"%d" % index for index in range(100)]
            assert [(await delivery).offset for delivery in deliveries] == list(range(100))
            assert len(log.headers) > 5 + len(bad_day)
            assert producer.metrics()["retries"] > 0

    run(scenario)


@pytest.mark.parametrize("seed", range(6))
def test_records_are_there_once_and_in_order_whatever_happens(seed: int) -> None:
    async def scenario() -> None:
        chance = random.Random(seed)
        kinds: list[Fault | None] = [
            None,
            HangUp(),
            AppendThenHangUp(),
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ]
        log = Log(*chance.choices(kinds, [6, 1, 1, 1, 1], k=60))
        async with ScriptedBroker(log, {"events": 3}) as broker:
            deliveries = []
            async with AsyncProducer(settings(broker, batch_size=SMALL)) as producer:
                for index in range(400):
                    deliveries.append(await producer.send("events", b"%d" % index, partition=chance.randrange(3)))
                    if chance.random() < 0.05:
                        await asyncio.sleep(0)
            for index, delivery in enumerate(deliveries):
                _, partition, offset, timestamp = await delivery
                assert log.records(partition)[offset][1:] == (timestamp, None, b"%d" % index, ())
            assert sum(len(log.records(partition)) for partition in range(3)) == 400
            for partition in range(3):
                numbers = [int(value or b"") for value in log.values(partition)]
                assert numbers == sorted(numbers)

    run(scenario)


def test_several_batches_of_a_partition_are_in_flight_but_no_more_than_allowed() -> None:
    async def scenario() -> None:
        waiting: list[Request] = []
        go_on = asyncio.Event()
        log = Log()

        async def slow(request: Request) -> Answer | None:
            if isinstance(request, ProduceRequest) and log.records():
                waiting.append(request)
                await go_on.wait()
            return log(request)

        def script(request: Request) -> object:
            return slow(request) if isinstance(request, ProduceRequest | InitProducerIdRequest) else None

        async with ScriptedBroker(script) as broker:  # type: ignore[arg-type]
            changes = {"batch_size": SMALL, "max_in_flight_requests_per_connection": 3}
            async with AsyncProducer(settings(broker, **changes)) as producer:
                await (await producer.send("events", b"0"))  # the first batch goes alone
                for index in range(1, 100):
                    await producer.send("events", b"%d" % index)
                while len(waiting) < 3:
                    await asyncio.sleep(0.001)
                await asyncio.sleep(0.02)
                assert len(waiting) == 3
                go_on.set()
            assert log.values() == [b"%d" % index for index in range(100)]

    run(scenario)


def test_a_batch_that_is_given_up_does_not_hold_up_those_after_it() -> None:
    async def scenario() -> None:
        log = Log()
        log.refused_values = {b"3": ErrorCode.INVALID_RECORD}
        async with ScriptedBroker(log) as broker:
            async with AsyncProducer(settings(broker, batch_size=1)) as producer:
                deliveries = [await producer.send("events", b"%d" % index) for index in range(10)]
                with pytest.raises(RefusedError, match=r"partition events-0: .*INVALID_RECORD"):
                    await deliveries[3]
            assert log.values() == [b"%d" % index for index in range(10) if index != 3]
            assert [(await one).offset for one in deliveries if one is not deliveries[3]] == list(range(9))
            epochs = [header.producer_epoch for header in log.headers]
            assert epochs[0] == 0
            assert epochs[-1] == 1
            assert {header.producer_id for header in log.headers} == {1}

    run(scenario)


@pytest.mark.parametrize("appended", [1, 2, 3, 5])
def test_a_broker_that_remembers_only_the_last_batch_does_not_get_those_before_it_twice(appended: int) -> None:
    async def scenario() -> None:
        log = Log(*[AppendSilently()] * appended)
        log.remembered = 1
        async with ScriptedBroker(log) as broker:
            async with AsyncProducer(settings(broker, batch_size=1, request_timeout_ms=100)) as producer:
                deliveries = [await producer.send("events", b"%d" % index) for index in range(8)]
                offsets = [(await delivery).offset for delivery in deliveries]
            assert log.values() == [b"%d" % index for index in range(8)]
            # Of what is only known to be there, nobody says where.
            assert all(offset in (-1, index) for index, offset in enumerate(offsets))
            assert offsets[appended:] == list(range(appended, 8))
            assert {header.producer_epoch for header in log.headers} == {0}
            assert producer.metrics()["buffer_free_bytes"] == producer.config.buffer_memory

    run(scenario)


def test_a_broker_that_forgot_the_producer_gets_the_records_under_a_new_epoch() -> None:
    async def scenario() -> None:
        log = Log()
        async with ScriptedBroker(log) as broker, AsyncProducer(settings(broker)) as producer:
            await producer.send_and_wait("events", b"first")
            log.faults = [ErrorCode.UNKNOWN_PRODUCER_ID]
            assert (await producer.send_and_wait("events", b"second")).offset == 1
            log.faults = [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
            assert (await producer.send_and_wait("events", b"third")).offset == 2
            assert [header.producer_epoch for header in log.headers] == [0, 0, 1, 1, 2]
            assert [header.base_sequence for header in log.headers] == [0, 1, 0, 1, 0]

    run(scenario)


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING])
def test_a_producer_whose_epoch_is_refused_becomes_another(code: ErrorCode) -> None:
    async def scenario() -> None:
        log = Log()
        async with ScriptedBroker(log) as broker, AsyncProducer(settings(broker)) as producer:
            await producer.send_and_wait("events", b"first")
            log.faults = [code]
            await producer.send_and_wait("events", b"second")
            assert [(one.producer_id, one.base_sequence) for one in log.headers] == [(1, 0), (1, 1), (2, 0)]

    run(scenario)


def test_a_batch_above_the_brokers_limit_is_split_until_it_fits() -> None:
    async def scenario() -> None:
        log = Log()
        log.max_batch_records = 3
        async with ScriptedBroker(log) as broker:
            async with AsyncProducer(settings(broker, linger_ms=10_000)) as producer:
                deliveries = [
                    await producer.send("events", b"%d" % index, headers=[("h", b"%d" % index)]) for index in range(25)
                ]
                called: list[int] = []
                offsets = {delivery: offset for offset, delivery in enumerate(deliveries)}

                def call(delivery: Delivery) -> None:
                    """With the part of a part that it is in, and before the next."""
                    offset = delivery.result().offset
                    assert delivery == deliveries[offset]
                    assert delivery != deliveries[offset + 1]
                    assert offsets[delivery] == offset
                    if not deliveries[offset + 4].done():
                        called.append(offset)

                for delivery in deliveries[:21]:
                    delivery.add_done_callback(call)
                await producer.flush()
                assert called == list(range(21))
                await producer.send_and_wait("events", b"next")
            assert log.values() == [*(b"%d" % index for index in range(25)), b"next"]
            assert [(await one).offset for one in deliveries] == list(range(25))
            assert log.records()[7].headers == (("h", b"7"),)
            assert producer.metrics()["buffer_free_bytes"] == producer.config.buffer_memory

    run(scenario)


def test_a_record_above_the_brokers_limit_is_reported_as_such() -> None:
    async def scenario() -> None:
        log = Log(ErrorCode.MESSAGE_TOO_LARGE)
        async with ScriptedBroker(log) as broker, AsyncProducer(settings(broker)) as producer:
            with pytest.raises(RecordTooLargeError, match=r"events-0 .*max\.message\.bytes"):
                await producer.send_and_wait("events", b"large")
            await producer.send_and_wait("events", b"small")
            assert log.values() == [b"small"]

    run(scenario)


def test_attempts_end_when_the_time_for_delivery_is_over() -> None:
    async def scenario() -> None:
        log = Log(*[ErrorCode.NOT_ENOUGH_REPLICAS] * 10_000)
        async with ScriptedBroker(log) as broker:
            changes = {"delivery_timeout_ms": 1000, "request_timeout_ms": 900}
            async with AsyncProducer(settings(broker, **changes)) as producer:
                with pytest.raises(DeliveryTimeoutError, match=r"within 1 s .*NOT_ENOUGH_REPLICAS") as caught:
                    await producer.send_and_wait("events", b"never")
                assert isinstance(caught.value.__cause__, RefusedError)
                assert len(log.headers) > 1
                log.faults.clear()
                await producer.send_and_wait("events", b"then")
                assert log.values() == [b"then"]

    run(scenario)


def test_attempts_end_after_as_many_as_are_allowed() -> None:
    async def scenario() -> None:
        log = Log(*[ErrorCode.NOT_ENOUGH_REPLICAS] * 100)
        async with ScriptedBroker(log) as broker, AsyncProducer(settings(broker, retries=3)) as producer:
            with pytest.raises(RefusedError, match="NOT_ENOUGH_REPLICAS"):
                await producer.send_and_wait("events", b"never")
            assert len(log.headers) == 4

    run(scenario)


def test_a_broker_that_does_not_answer_is_asked_again_on_another_connection() -> None:
    async def scenario() -> None:
        log = Log(Silence())
        async with ScriptedBroker(log) as broker:
            async with AsyncProducer(settings(broker, request_timeout_ms=100)) as producer:
                assert (await producer.send_and_wait("events", b"at last")).offset == 0
            assert log.values() == [b"at last"]
            assert broker.connections == 2

    run(scenario)


def test_an_old_broker_is_spoken_to_in_its_versions() -> None:
    async def scenario() -> None:
        log = Log()
        async with ScriptedBroker(log, newest=KAFKA_2_1, api_versions_max=2) as broker:
            async with AsyncProducer(settings(broker, compression_type="zstd")) as producer:
                told = await producer.send_and_wait("events", b"value", b"key", {"h": b"1"}, 5)
            assert told[1:] == (0, 0, 5)
            assert log.records()[0][1:] == (5, b"key", b"value", (("h", b"1"),))
            (request,) = broker.of(ProduceRequest)
            assert isinstance(request, ProduceRequest)
            assert [topic.name for topic in request.topic_data] == ["events"]

    run(scenario)


def test_flush_raises_an_unchecked_failure_once() -> None:
    async def scenario() -> None:
        log = Log(ErrorCode.INVALID_RECORD)
        async with ScriptedBroker(log) as broker, AsyncProducer(settings(broker)) as producer:
            await producer.send("events", b"wrong")
            with pytest.raises(RefusedError, match="INVALID_RECORD"):
                await producer.flush()
            await producer.flush()
            log.faults = [ErrorCode.INVALID_RECORD]
            watched = await producer.send("events", b"wrong")
            watched.add_done_callback(lambda _: None)
            await producer.flush()
            assert isinstance(watched.exception(), RefusedError)

    run(scenario)


def test_closing_with_a_time_limit_fails_what_is_not_acknowledged_by_then() -> None:
    async def scenario() -> None:
        async with ScriptedBroker(Log(Silence())) as broker:
            producer = AsyncProducer(settings(broker))
            delivery = await producer.send("events", b"unanswered")
            with pytest.raises(ClosedError, match="before the record was acknowledged"):
                await producer.close(0.05)
            assert isinstance(delivery.exception(), ClosedError)
            await producer.close()
            with pytest.raises(ClosedError):
                await producer.send("events", b"too late")

    run(scenario)


def test_without_acknowledgements_records_are_done_when_they_are_sent() -> None:
    async def scenario() -> None:
        log = Log()
        async with ScriptedBroker(log) as broker:
            async with AsyncProducer(settings(broker, acks=0, batch_size=SMALL)) as producer:
                for index in range(99):
                    await producer.send("events", b"%d" % index)
                assert (await producer.send_and_wait("events", b"99")).offset == -1
            deadline = asyncio.get_running_loop().time() + 10
            while len(log.values()) < 100 and asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(0.001)
            assert log.values() == [b"%d" % index for index in range(100)]
            assert {header.producer_id for header in log.headers} == {-1}

    run(scenario)


def test_a_leader_that_moved_is_found_and_the_order_is_kept() -> None:
    async def scenario() -> None:
        log = Log()
        async with ScriptedBroker(log) as new, ScriptedBroker() as old:

            def metadata(request: Request) -> Answer | None:
                if isinstance(request, MetadataRequest):
                    return led_by(8, new.metadata(request)) if moved else old.metadata(request)
                if isinstance(request, ProduceRequest):
                    moved.append(True)
                    return Log(ErrorCode.NOT_LEADER_OR_FOLLOWER)(request)
                return log(request)

            moved: list[bool] = []
            old.script = metadata
            async with AsyncProducer(settings(old, batch_size=SMALL)) as producer:
                deliveries = [await producer.send("events", b"%d" % index) for index in range(100)]
            assert [(await delivery).offset for delivery in deliveries] == list(range(100))
            assert log.values() == [b"%d" % index for index in range(100)]

    run(scenario)


def led_by(broker_id: int, metadata: MetadataResponse) -> MetadataResponse:
    metadata.brokers[0].node_id = broker_id
    for topic in metadata.topics:
        for partition in topic.partitions:
            partition.leader_id, partition.leader_epoch = broker_id, 1
    return metadata


def test_a_fatal_producer_id_error_is_raised_by_the_delivery() -> None:
    async def scenario() -> None:
        def script(request: Request) -> Answer | None:
            if isinstance(request, InitProducerIdRequest):
                return InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            return None

        async with ScriptedBroker(script) as broker, AsyncProducer(settings(broker)) as producer:
            with pytest.raises(RefusedError, match=r"enable\.idempotence.*CLUSTER_AUTHORIZATION_FAILED"):
                await producer.send_and_wait("events", b"unwelcome")

    run(scenario)


def test_a_broker_that_went_away_is_named_when_the_time_is_over() -> None:
    async def scenario() -> None:
        log = Log()
        async with ScriptedBroker(log) as broker:
            producer = AsyncProducer(settings(broker, delivery_timeout_ms=200, request_timeout_ms=100))
            await producer.send_and_wait("events", b"there")
        with pytest.raises(DeliveryTimeoutError, match=r"127\.0\.0\.1") as caught:
            await producer.send_and_wait("events", b"gone")
        assert isinstance(caught.value.__cause__, BrokerConnectionError | ClientError)
        await producer.close()

    run(scenario)
