"""Transactions of our producers on a running broker: what consumers see of them, and what wrong calls are told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from ottla import (
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    ConsumerRecord,
    OffsetAndMetadata,
    PreparedTransaction,
    Producer,
    TopicPartition,
    async_exactly_once,
    exactly_once,
)
from ottla.base.error_codes import ErrorCode
from ottla.client.administer import Admin, NewTopic, SomeRefusedError
from ottla.client.errors import (
    ArgumentError,
    ArgumentTypeError,
    FencedError,
    RefusedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionFatalError,
    TransactionStateError,
)
from ottla.client.membership import GroupMetadata
from support.clients.peers import OTTLA, Peer, chosen_peer, running_peer
from support.groups.settings import SETTINGS
from support.transactions.copier import copier
from support.waiting import wait_until

WAIT_S = 60.0
PARTITIONS = 3
LONG_MS = 600_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """One that looks often for transactions that took too long, and for members that are gone."""
    settings = {
        **SETTINGS,
        "auto.create.topics.enable": "true",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "offsets.topic.replication.factor": "1",
    }
    with running_peer(tmp_path_factory.mktemp("broker"), settings) as peer:
        yield peer


@pytest.fixture
def three(broker: Peer, topic: str) -> str:
    """A topic with three partitions."""
    return make(broker, topic)


@pytest.fixture
def producer(broker: Peer, topic: str) -> Iterator[Producer]:
    """Whose transactional id is the name of the topic."""
    with transactional(broker, topic) as producer:
        producer.init_transactions()
        yield producer


def make(broker: Peer, topic: str, partitions: int = PARTITIONS, **configs: str) -> str:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        dotted = {name.replace("_", "."): value for name, value in configs.items()}
        admin.create_topics([NewTopic(topic, partitions, 1, configs=dotted)])
    return topic


def transactional(broker: Peer, name: str, **changes: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name, "linger.ms": 0, **changes})


def places_of(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in range(PARTITIONS)]


def reader(broker: Peer, topic: str, isolation: str = "read_committed", **changes: Any) -> Consumer:
    settings = {"bootstrap.servers": broker.bootstrap, "isolation.level": isolation, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | changes)
    consumer.assign(places_of(topic))
    return consumer


def ends_of(broker: Peer, topic: str, isolation: str) -> dict[TopicPartition, int]:
    with reader(broker, topic, isolation) as consumer:
        return consumer.end_offsets(places_of(topic))


def values_of(broker: Peer, topic: str, isolation: str = "read_committed", **changes: Any) -> list[bytes | None]:
    """The values of all records, when no transaction is open any more: markers are written after the answer."""
    wait_until(
        lambda: ends_of(broker, topic, "read_committed") == ends_of(broker, topic, "read_uncommitted"),
        "all transactions are complete",
    )
    return values_by_now(broker, topic, isolation, **changes)


def values_by_now(broker: Peer, topic: str, isolation: str = "read_committed", **changes: Any) -> list[bytes | None]:
    """The values of all records that such a consumer can see; its positions are at the ends then."""
    with reader(broker, topic, isolation, **changes) as consumer:
        ends = consumer.end_offsets(places_of(topic))
        records: list[ConsumerRecord] = []
        while any(consumer.position(place) < end for place, end in ends.items()):
            records += consumer.poll(0.1)
        return sorted(record.value for record in records)


def numbers(*some: int) -> list[bytes]:
    return sorted(b"%d" % one for one in some)


def send_all(producer: Producer, topic: str, *some: int) -> None:
    for one in some:
        producer.send(topic, b"%d" % one, partition=one % PARTITIONS)


# Commit and abort.


def test_records_of_many_partitions_are_seen_when_their_transaction_is_committed(
    broker: Peer, producer: Producer, three: str
) -> None:
    producer.begin_transaction()
    send_all(producer, three, *range(30))
    producer.flush()
    assert values_by_now(broker, three) == []
    assert values_by_now(broker, three, "read_uncommitted") == numbers(*range(30))
    producer.commit_transaction()
    assert values_of(broker, three) == numbers(*range(30))


def test_records_of_an_aborted_transaction_are_never_seen(broker: Peer, producer: Producer, three: str) -> None:
    for begin, end in [(0, 10), (10, 20), (20, 30)]:
        producer.begin_transaction()
        send_all(producer, three, *range(begin, end))
        producer.flush()
        if begin == 10:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    assert values_of(broker, three) == numbers(*range(10), *range(20, 30))
    assert values_of(broker, three, "read_uncommitted") == numbers(*range(30))


def test_an_abort_drops_what_was_not_sent(broker: Peer, three: str) -> None:
    with transactional(broker, three, **{"linger.ms": LONG_MS, "delivery.timeout.ms": 2 * LONG_MS}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        delivery = producer.send(three, b"dropped")
        producer.abort_transaction()
        with pytest.raises(TransactionAbortedError, match="was not sent, because its transaction was aborted"):
            delivery.result(WAIT_S)
        with producer.transaction():
            producer.send(three, b"kept")
    assert values_of(broker, three, "read_uncommitted") == [b"kept"]


def test_a_transaction_without_records_is_no_work(broker: Peer, producer: Producer, three: str) -> None:
    for _ in range(3):
        producer.begin_transaction()
        producer.commit_transaction()
        producer.begin_transaction()
        producer.abort_transaction()
    with producer.transaction():
        producer.send(three, b"1")
    assert values_of(broker, three) == [b"1"]


def test_a_context_commits_and_an_exception_aborts(broker: Peer, topic: str, three: str) -> None:
    with transactional(broker, topic) as producer:
        with producer.transaction() as transaction:
            send_all(transaction, three, 1, 2, 3)
        with pytest.raises(ZeroDivisionError), producer.transaction() as transaction:  # noqa: PT012
            send_all(transaction, three, 4, 5, 6)
            producer.flush()
            raise ZeroDivisionError
        with producer.transaction() as transaction:
            send_all(transaction, three, 7)
    assert values_of(broker, three) == numbers(1, 2, 3, 7)


def test_transactions_in_an_event_loop(broker: Peer, three: str) -> None:
    async def scenario() -> None:
        settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": three}
        async with AsyncProducer(settings) as producer:
            async with producer.transaction() as transaction:
                await transaction.send(three, b"1")
            with pytest.raises(ZeroDivisionError):  # noqa: PT012
                async with producer.transaction():
                    await producer.send_and_wait(three, b"2")
                    raise ZeroDivisionError
            await producer.begin_transaction()
            await producer.send_batch(three, {"value": [b"3", b"4"]})
            await producer.commit_transaction()
            await producer.begin_transaction()
            await producer.send(three, b"5")
            await producer.abort_transaction()
            with pytest.raises(TransactionStateError, match=r"send\(\) cannot be called now"):
                await producer.send(three, b"6")

    asyncio.run(scenario())
    assert values_of(broker, three) == numbers(1, 3, 4)


def test_a_task_that_is_cancelled_aborts_its_transaction(broker: Peer, three: str) -> None:
    async def scenario() -> None:
        settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": three}
        async with AsyncProducer(settings) as producer:
            sent = asyncio.Event()

            async def work() -> None:
                async with producer.transaction():
                    await producer.send_and_wait(three, b"1")
                    sent.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await sent.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with producer.transaction():
                await producer.send(three, b"2")

    asyncio.run(scenario())
    assert values_of(broker, three) == numbers(2)


def test_arrow_batches_in_transactions(broker: Peer, producer: Producer, three: str) -> None:
    pa = pytest.importorskip("pyarrow")
    for number in range(6):
        producer.begin_transaction()
        values = [b"%d %d" % (number, row) for row in range(500)]
        table = pa.table({"value": values, "partition": [row % PARTITIONS for row in range(500)]})
        producer.send_batch(three, table).result(WAIT_S)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    expected = sorted(b"%d %d" % (number, row) for number in (0, 2, 4) for row in range(500))
    assert values_of(broker, three) == expected
    with reader(broker, three) as consumer:
        ends = consumer.end_offsets(places_of(three))
        found: list[bytes] = []
        while any(consumer.position(place) < end for place, end in ends.items()):
            found += consumer.poll_arrow(0.1, ["value"]).column("value").to_pylist()
    assert sorted(found) == expected


def test_aborted_records_are_left_out_however_fetches_are_cut(broker: Peer, three: str) -> None:
    expected = []
    with transactional(broker, three) as first, transactional(broker, f"{three}-other") as second:
        for number in range(40):
            # Two that are open at a time, so that committed and aborted batches alternate.
            for index, one in enumerate((first, second)):
                if not one.is_initialized:
                    one.init_transactions()
                one.begin_transaction()
                one.send_and_wait(three, b"%d %d 0" % (number, index), partition=0)
            for index, one in enumerate((first, second)):
                one.send_and_wait(three, b"%d %d 1" % (number, index), partition=0)
            for index, one in enumerate((second, first)):
                if (number + index) % 3:
                    one.abort_transaction()
                else:
                    one.commit_transaction()
                    expected += [b"%d %d %d" % (number, 1 - index, piece) for piece in range(2)]
    small: dict[str, Any] = {"fetch.max.bytes": 300, "max.partition.fetch.bytes": 300}
    assert values_of(broker, three, **small) == sorted(expected)
    assert values_of(broker, three) == sorted(expected)


def test_an_open_transaction_holds_back_those_behind_it(broker: Peer, producer: Producer, three: str) -> None:
    producer.begin_transaction()
    producer.send_and_wait(three, b"1", partition=0)
    with Producer(bootstrap_servers=broker.bootstrap) as plain:
        plain.send_and_wait(three, b"2", partition=0)
    with reader(broker, three) as consumer:
        place = TopicPartition(three, 0)
        assert consumer.end_offsets([place]) == {place: 0}
        producer.commit_transaction()
        wait_until(lambda: consumer.end_offsets([place])[place] == 3, "the end moves")
    assert values_of(broker, three) == numbers(1, 2)


def test_closing_aborts_an_open_transaction(broker: Peer, three: str) -> None:
    with transactional(broker, three, **{"transaction.timeout.ms": LONG_MS}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_and_wait(three, b"1", partition=0)
    with reader(broker, three) as consumer:
        place = TopicPartition(three, 0)
        wait_until(lambda: consumer.end_offsets([place])[place] == 2, "the marker is written")
    assert values_of(broker, three) == []


# Offsets.


def test_offsets_count_when_the_transaction_is_committed(broker: Peer, producer: Producer, three: str) -> None:
    place, group = TopicPartition(three, 0), GroupMetadata(f"{three}-group")
    with Consumer(bootstrap_servers=broker.bootstrap, group_id=group.group_id) as consumer:
        producer.begin_transaction()
        producer.send_offsets_to_transaction({place: OffsetAndMetadata(5, "five")}, group)
        producer.commit_transaction()
        assert consumer.committed([place]) == {place: OffsetAndMetadata(5, "five")}
        producer.begin_transaction()
        producer.send(three, b"1")
        producer.send_offsets_to_transaction({place: 7}, group)
        producer.abort_transaction()
        assert consumer.committed([place]) == {place: OffsetAndMetadata(5, "five")}
        with producer.transaction():
            producer.send_offsets_to_transaction({}, group)
            producer.send_offsets_to_transaction({place: 8}, group)
            producer.send_offsets_to_transaction({place: 9, TopicPartition(three, 1): 3}, group)
        assert consumer.committed([place]) == {place: OffsetAndMetadata(9)}


def test_a_member_that_is_out_of_its_group_cannot_send_offsets(broker: Peer, producer: Producer, three: str) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": f"{three}-group", "auto.offset.reset": "earliest"}
    place = TopicPartition(three, 0)
    with Consumer(settings) as consumer:
        consumer.subscribe(three)
        wait_until(lambda: not consumer.poll(0.1) and consumer.assignment(), "partitions are assigned")
        stranger = consumer.group_metadata()._replace(member_id="somebody-else")
        producer.begin_transaction()
        producer.send(three, b"1")
        with pytest.raises(TransactionAbortableError, match=r"Call abort_transaction\(\)") as caught:
            producer.send_offsets_to_transaction({place: 1}, stranger)
        producer.abort_transaction()
        assert isinstance(caught.value.__cause__, RefusedError)
        assert caught.value.__cause__.code is ErrorCode.UNKNOWN_MEMBER_ID
        with producer.transaction():
            producer.send_offsets_to_transaction({place: 2}, consumer.group_metadata())
        assert consumer.committed([place]) == {place: OffsetAndMetadata(2)}


# Errors.


def test_a_producer_that_was_replaced_is_fenced(broker: Peer, three: str) -> None:
    with transactional(broker, three) as old, transactional(broker, three) as new:
        old.init_transactions()
        old.begin_transaction()
        send_all(old, three, 1)
        old.flush()
        new.init_transactions()
        send_all(old, three, 2, 3)
        with pytest.raises((TransactionAbortableError, FencedError)):
            old.commit_transaction()
        with pytest.raises(FencedError, match="another producer with this id was initialised"):
            old.abort_transaction()
        for call in (old.begin_transaction, old.commit_transaction, old.abort_transaction, old.init_transactions):
            with pytest.raises(FencedError, match="is fenced"):
                call()
        with pytest.raises(FencedError, match="is fenced"):
            old.send(three, b"4")
        with new.transaction():
            send_all(new, three, 5)
    assert values_of(broker, three) == numbers(5)


def test_a_context_tells_that_the_producer_was_replaced(broker: Peer, three: str) -> None:
    with transactional(broker, three) as old, transactional(broker, three) as new:
        with pytest.raises(FencedError), old.transaction():  # noqa: PT012
            old.send_and_wait(three, b"1")
            new.init_transactions()
        with new.transaction():
            new.send(three, b"2")
    assert values_of(broker, three) == numbers(2)


def test_a_transaction_that_takes_too_long_is_aborted(broker: Peer, three: str) -> None:
    place = TopicPartition(three, 0)
    with transactional(broker, three, **{"transaction.timeout.ms": 500}) as producer, reader(broker, three) as consumer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_and_wait(three, b"1", partition=0)
        wait_until(lambda: consumer.end_offsets([place])[place] == 2, "the coordinator aborts")
        with pytest.raises(TransactionFatalError, match=r"took longer than transaction\.timeout\.ms"):
            producer.commit_transaction()
    assert values_of(broker, three) == []


def test_a_timeout_that_the_broker_does_not_allow(broker: Peer, topic: str) -> None:
    with transactional(broker, topic, **{"transaction.timeout.ms": 2_000_000_000}) as producer:
        message = "set transaction.timeout.ms to at most transaction.max.timeout.ms of the broker"
        with pytest.raises(TransactionFatalError, match=message):
            producer.init_transactions()


def test_a_record_that_is_refused_makes_the_transaction_fail(broker: Peer, topic: str, producer: Producer) -> None:
    make(broker, topic, max_message_bytes="1000")
    for _ in range(2):
        expected = pytest.raises(TransactionAbortableError, match=r"Call abort_transaction\(\), then try again")
        with expected, producer.transaction():
            send_all(producer, topic, 1, 2)
            producer.flush()
            producer.send(topic, b"x" * 2000, partition=0)
        with producer.transaction():
            send_all(producer, topic, 3)
    assert values_of(broker, topic) == numbers(3, 3)


def test_after_a_record_was_refused_nothing_but_an_abort_is_possible(
    broker: Peer, topic: str, producer: Producer
) -> None:
    make(broker, topic, max_message_bytes="1000")
    producer.begin_transaction()
    refused = producer.send(topic, b"x" * 2000, partition=0)
    assert refused.exception(WAIT_S) is not None
    with pytest.raises(TransactionAbortableError):
        producer.send(topic, b"1")
    with pytest.raises(TransactionAbortableError):
        producer.begin_transaction()
    with pytest.raises(TransactionAbortableError):
        producer.commit_transaction()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send(topic, b"2", partition=0)
    producer.commit_transaction()
    assert values_of(broker, topic) == numbers(2)


def test_calls_at_the_wrong_time_say_what_to_do(broker: Peer, topic: str) -> None:
    begin_first = r"no transaction is open: call begin_transaction\(\) first, or use `with producer.transaction\(\):`"
    group = GroupMetadata("group")
    call: Callable[[], object]
    with transactional(broker, topic) as producer:
        for call in (producer.begin_transaction, producer.commit_transaction, lambda: producer.send(topic, b"1")):
            with pytest.raises(TransactionStateError, match=r"call init_transactions\(\) first"):
                call()
        producer.init_transactions()
        with pytest.raises(TransactionStateError, match=r"init_transactions\(\) cannot be called now"):
            producer.init_transactions()
        for call in (
            producer.commit_transaction,
            producer.abort_transaction,
            producer.prepare_transaction,
            lambda: producer.send(topic, b"1"),
            lambda: producer.send_batch(topic, {"value": [b"1"]}),
            lambda: producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, group),
        ):
            with pytest.raises(TransactionStateError, match=begin_first):
                call()
        producer.begin_transaction()
        with pytest.raises(TransactionStateError, match="a transaction is open: end it with commit_transaction"):
            producer.begin_transaction()
        with pytest.raises(ArgumentTypeError, match="group_metadata must be a GroupMetadata, not str"):
            producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, "group")  # type: ignore[arg-type]
        with pytest.raises(ArgumentError, match="-1 is not an offset to commit"):
            producer.send_offsets_to_transaction({TopicPartition(topic, 0): -1}, group)
        producer.abort_transaction()
    with Producer(bootstrap_servers=broker.bootstrap) as plain:
        for call in (plain.init_transactions, plain.begin_transaction, plain.commit_transaction):
            with pytest.raises(TransactionStateError, match=r"needs a transactional producer: set transactional\.id"):
                call()


# Prepared transactions.


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_transaction_is_completed_by_another_producer(broker: Peer, three: str, commit: bool) -> None:
    with transactional(broker, three) as first:
        first.init_transactions()
        first.begin_transaction()
        send_all(first, three, *range(10))
        text = str(first.prepare_transaction())
        with pytest.raises(TransactionStateError, match="the transaction is prepared"):
            first.send(three, b"11")
    assert values_by_now(broker, three) == []
    prepared = PreparedTransaction.parse(text)
    with transactional(broker, three) as second:
        for _ in range(2):
            second.complete_transaction(prepared, commit=commit)
        with pytest.raises(TransactionStateError, match=r"it was (committed|aborted) before"):
            second.complete_transaction(prepared, commit=not commit)
        with second.transaction():
            send_all(second, three, 20)
        with pytest.raises(TransactionStateError, match=r"must come before init_transactions\(\)"):
            second.complete_transaction(prepared, commit=commit)
    assert values_of(broker, three) == numbers(*(range(10) if commit else ()), 20)


def test_a_prepared_transaction_is_completed_by_its_producer(broker: Peer, producer: Producer, three: str) -> None:
    for number, commit in enumerate([True, False, True]):
        with producer.transaction():
            send_all(producer, three, number)
            prepared = producer.prepare_transaction()
        producer.complete_transaction(prepared, commit=commit)
    producer.begin_transaction()
    producer.complete_transaction(producer.prepare_transaction(), commit=True)
    assert values_of(broker, three) == numbers(0, 2)


def test_a_producer_goes_on_with_another_id_and_leaves_what_is_prepared(broker: Peer, three: str) -> None:
    prepared = []
    with transactional(broker, f"{three}-0") as producer:
        for number in range(4):
            producer.change_transactional_id(f"{three}-{number % 3}")  # an id again: its transaction is aborted
            with pytest.raises(TransactionStateError, match=r"call init_transactions\(\) first"):
                producer.begin_transaction()
            producer.init_transactions()
            producer.begin_transaction()
            with pytest.raises(TransactionStateError, match="a transaction is open"):
                producer.change_transactional_id(f"{three}-9")
            send_all(producer, three, number)
            prepared.append(producer.prepare_transaction())
        producer.change_transactional_id(f"{three}-9")
        with producer.transaction():
            send_all(producer, three, 4)
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.complete_transactions(prepared[1:2], commit=False)
        for _ in range(2):
            admin.complete_transactions(prepared[2:], commit=True)
        with pytest.raises(SomeRefusedError) as refused:
            admin.complete_transactions(prepared[1:3], commit=True)
    assert refused.value.errors.keys() == {f"{three}-1"}
    assert values_of(broker, three) == numbers(2, 3, 4)


def test_a_prepared_transaction_that_is_gone(broker: Peer, three: str) -> None:
    with transactional(broker, three) as first:
        first.init_transactions()
        first.begin_transaction()
        send_all(first, three, 1)
        prepared = first.prepare_transaction()
    with transactional(broker, three) as second:
        second.init_transactions()
    with transactional(broker, three) as third, pytest.raises(FencedError, match="is not open any more"):
        third.complete_transaction(prepared, commit=True)
    with (
        transactional(broker, f"{three}-other") as other,
        pytest.raises(ArgumentError, match=f"was prepared with transactional.id {three!r}"),
    ):
        other.complete_transaction(prepared, commit=True)


@pytest.mark.skipif(chosen_peer() != OTTLA, reason="Kafka 4.3 does not keep prepared transactions")
@pytest.mark.parametrize("commit", [True, False])
def test_a_two_phase_transaction_is_completed_though_another_process_died_while_it_did(
    broker: Peer, three: str, commit: bool
) -> None:
    two_phase = {"transaction.two.phase.commit.enable": True}
    with transactional(broker, three, **two_phase) as first:
        first.init_transactions()
        first.begin_transaction()
        send_all(first, three, 1, 2)
        prepared = first.prepare_transaction()
    with transactional(broker, three, **two_phase) as second:
        transactions = second._core.transactional("complete_transaction")
        second._thread.run(transactions._dialogue.init_producer(keep_prepared=True))
    with transactional(broker, three, **two_phase) as third:
        third.complete_transaction(prepared, commit=commit)
        with third.transaction():
            send_all(third, three, 3)
    with transactional(broker, three, **two_phase) as fourth, pytest.raises(FencedError, match="is not open any more"):
        fourth.complete_transaction(prepared, commit=commit)
    assert values_of(broker, three) == numbers(*([1, 2] if commit else []), 3)


# Exactly once.


def pipeline(broker: Peer, source: str, **changes: Any) -> Consumer:
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"{source}-copies",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "max.poll.records": 10,
    }
    consumer = Consumer(settings | changes)
    consumer.subscribe(source)
    return consumer


def fill(broker: Peer, topic: str, count: int) -> list[bytes]:
    with Producer(bootstrap_servers=broker.bootstrap) as plain:
        for number in range(count):
            plain.send(topic, b"%d" % number, partition=number % PARTITIONS)
    return numbers(*range(count))


def test_records_are_copied_exactly_once_though_transactions_fail(broker: Peer, three: str) -> None:
    target = make(broker, f"{three}-copy")
    expected = fill(broker, three, 100)
    failures = iter([True, False, False, True, True])
    with pipeline(broker, three) as consumer, transactional(broker, three) as producer:

        def copy(records: list[ConsumerRecord]) -> None:
            for record in records:
                producer.send(target, record.value, partition=record.partition)
            if next(failures, False):
                raise TransactionAbortableError("as if a broker had said so")

        assert exactly_once(consumer, producer, copy, timeout=2.0) == 100
        assert exactly_once(consumer, producer, copy, timeout=0.2) == 0
    assert values_of(broker, target) == expected


def test_an_exception_of_the_function_is_raised_and_its_records_come_again(broker: Peer, three: str) -> None:
    target = make(broker, f"{three}-copy")
    expected = fill(broker, three, 50)
    calls = 0
    with pipeline(broker, three) as consumer, transactional(broker, three) as producer:

        def copy(records: list[ConsumerRecord]) -> None:
            nonlocal calls
            calls += 1
            for record in records:
                producer.send(target, record.value)
            if calls == 3:
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            exactly_once(consumer, producer, copy, timeout=2.0)
        exactly_once(consumer, producer, copy, timeout=2.0)
    assert values_of(broker, target) == expected


def test_tables_are_copied_exactly_once(broker: Peer, three: str) -> None:
    target = make(broker, f"{three}-copy")
    expected = fill(broker, three, 1000)
    with pipeline(broker, three) as consumer, transactional(broker, three) as producer:

        def copy(batch: Any) -> None:
            producer.send_batch(target, batch.select(["value"]))

        assert exactly_once(consumer, producer, copy, arrow=True, timeout=2.0) == 1000
    assert values_of(broker, target) == expected


def test_records_are_copied_exactly_once_in_an_event_loop(broker: Peer, three: str) -> None:
    target = make(broker, f"{three}-copy")
    expected = fill(broker, three, 100)

    async def scenario() -> None:
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": f"{three}-copies"}
        consuming = {"isolation.level": "read_committed", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        async with (
            AsyncConsumer({**settings, **consuming, "max.poll.records": 10}) as consumer,
            AsyncProducer({"bootstrap.servers": broker.bootstrap, "transactional.id": three}) as producer,
        ):
            consumer.subscribe(three)
            failures = iter([False, True, True])

            async def copy(records: list[ConsumerRecord]) -> None:
                for record in records:
                    await producer.send(target, record.value)
                if next(failures, False):
                    raise TransactionAbortableError("as if a broker had said so")

            assert await async_exactly_once(consumer, producer, copy, timeout=2.0) == 100

    asyncio.run(scenario())
    assert values_of(broker, target) == expected


def test_a_consumer_that_left_its_group_does_not_commit(broker: Peer, three: str) -> None:
    """Its partitions may be another's: the transaction is aborted, and it joins again."""
    target = make(broker, f"{three}-copy")
    expected = fill(broker, three, 30)
    slow = {"max.poll.interval.ms": 500, "session.timeout.ms": 6000, "heartbeat.interval.ms": 100}
    calls = 0
    with pipeline(broker, three, **slow) as consumer, transactional(broker, three) as producer:

        def copy(records: list[ConsumerRecord]) -> None:
            nonlocal calls
            calls += 1
            for record in records:
                producer.send(target, record.value, partition=record.partition)
            if calls == 2:
                wait_until(lambda: consumer.group_metadata().generation_id < 0, "the consumer leaves")

        assert exactly_once(consumer, producer, copy, timeout=2.0) == 30
    assert values_of(broker, target) == expected


def test_a_wakeup_ends_the_copying(broker: Peer, three: str) -> None:
    make(broker, f"{three}-copy")
    fill(broker, three, 30)
    with pipeline(broker, three) as consumer, transactional(broker, three) as producer:
        copied = threading.Event()

        def wake() -> None:
            copied.wait(WAIT_S)
            consumer.wakeup()

        waker = threading.Thread(target=wake)
        waker.start()

        def copy(records: list[ConsumerRecord]) -> None:
            for record in records:
                producer.send(f"{three}-copy", record.value)
            copied.set()

        assert exactly_once(consumer, producer, copy) > 0
        waker.join()


@pytest.mark.parametrize(
    ("consuming", "producing", "message"),
    [
        ({}, {"transactional.id": None}, "the producer needs a transactional.id"),
        ({"enable.auto.commit": True}, {}, "the consumer needs enable.auto.commit=false"),
        ({"isolation.level": "read_uncommitted"}, {}, "the consumer needs isolation.level=read_committed"),
    ],
)
def test_clients_that_cannot_copy_exactly_once(
    broker: Peer, three: str, consuming: dict[str, Any], producing: dict[str, Any], message: str
) -> None:
    with (
        pipeline(broker, three, **consuming) as consumer,
        transactional(broker, three, **producing) as producer,
        pytest.raises(ArgumentError, match=message),
    ):
        exactly_once(consumer, producer, print)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_records_are_copied_exactly_once_though_processes_are_killed_and_partitions_move(
    broker: Peer, three: str, protocol: str
) -> None:
    target = make(broker, f"{three}-copy")
    expected = fill(broker, three, 1500)
    setting = (broker.bootstrap, three, target, f"{three}-copies")

    def copied() -> int:
        with reader(broker, target) as consumer:
            return sum(consumer.end_offsets(places_of(target)).values())

    with ExitStack() as processes:
        first = processes.enter_context(copier(*setting, f"{three}-a", protocol))
        wait_until(lambda: copied() > 100, "the first has begun", WAIT_S)
        processes.enter_context(copier(*setting, f"{three}-b", protocol))
        wait_until(lambda: copied() > 400, "both have copied some", WAIT_S)
        first.kill()
        first.wait()
        processes.enter_context(copier(*setting, f"{three}-a", protocol))
        wait_until(lambda: len(values_by_now(broker, target)) >= len(expected), "all is copied", WAIT_S)
    assert values_of(broker, target) == expected
