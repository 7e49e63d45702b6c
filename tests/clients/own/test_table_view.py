"""Our table views: compacted topics as live mappings, in threads and in asyncio."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla import Admin, AsyncProducer, AsyncTableView, Producer, TableView, TopicPartition
from ottla.client.administer import NewPartitions, NewTopic
from ottla.client.errors import (
    ArgumentError,
    CallTimeoutError,
    ClosedError,
    ConfigError,
    SerializationError,
    TableLoadingError,
    TableTooLargeError,
    UnknownPartitionError,
    UnknownTopicError,
)
from ottla.client.tables.reads import MAX_BYTES
from support.clients.peers import Peer
from support.examples import examples
from support.kafka_process import free_port
from support.waiting import wait_until

WAIT_S = 60
COMPACTED = {"cleanup.policy": "compact"}


def create(peer: Peer, topic: str, partitions: int = 1, configs: Mapping[str, str] = COMPACTED) -> None:
    with Admin(bootstrap_servers=peer.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, partitions=partitions, configs=configs)])


def put(peer: Peer, topic: str, entries: Mapping[str, str | None], partition: int | None = None) -> None:
    with Producer(bootstrap_servers=peer.bootstrap, key_serializer="string", value_serializer="string") as producer:
        for key, value in entries.items():
            producer.send(topic, value, key=key, partition=partition)


def text_view(peer: Peer, topic: str, max_bytes: int = MAX_BYTES, **configs: object) -> TableView[str, str]:
    coders = {"key_deserializer": "string", "value_deserializer": "string"}
    return TableView(topic, {"bootstrap.servers": peer.bootstrap, **coders, **configs}, max_bytes=max_bytes)


def test_a_topic_is_a_mapping(strict_broker: Peer, topic: str) -> None:
    create(strict_broker, topic, partitions=3)
    put(strict_broker, topic, {"a": "1", "b": "2", "c": "3", "d": "4"})
    put(strict_broker, topic, {"b": "20", "c": None, "missing": None})
    with text_view(strict_broker, topic) as view:
        assert view == {"a": "1", "b": "20", "d": "4"}
        assert (view["b"], view.get("c"), view.get("c", "none"), "c" in view, len(view)) == (
            "20",
            None,
            "none",
            False,
            3,
        )
        with pytest.raises(KeyError, match="c"):
            view["c"]
        assert sorted(view) == sorted(view.keys()) == ["a", "b", "d"]
        assert sorted(view.values()) == ["1", "20", "4"]
        assert sorted(view.items()) == [("a", "1"), ("b", "20"), ("d", "4")]
        assert list(view.range("b")) == [("b", "20"), ("d", "4")]
        assert list(view.range(stop="d", reverse=True)) == [("b", "20"), ("a", "1")]
        assert view.snapshot() == {"a": "1", "b": "20", "d": "4"}
        put(strict_broker, topic, {"e": "5", "a": None})
        view.wait_until_caught_up(WAIT_S)
        assert [key for key, _ in view.range()] == ["b", "d", "e"]
        counts = view.metrics()
        assert counts["keys"] == 3
        assert counts["records"] == 9
        assert counts["lag"] == 0
        assert counts["bytes"] == view.size_in_bytes > 0
        assert repr(view) == f"<TableView of topic {topic!r}: 3 keys>"
    with pytest.raises(ClosedError):
        len(view)
    view.close()


def test_an_empty_topic(strict_broker: Peer, topic: str) -> None:
    create(strict_broker, topic, partitions=2)
    with text_view(strict_broker, topic) as view:
        assert dict(view) == {}
        put(strict_broker, topic, {"a": "1"})
        view.wait_until_caught_up(WAIT_S)
        assert dict(view) == {"a": "1"}


def test_bytes_without_deserializers(strict_broker: Peer, topic: str) -> None:
    create(strict_broker, topic)
    put(strict_broker, topic, {"a": "1"})
    with TableView(topic, bootstrap_servers=strict_broker.bootstrap) as view:
        assert view[b"a"] == b"1"


def test_waiting_for_an_offset(strict_broker: Peer, topic: str) -> None:
    create(strict_broker, topic)
    with (
        Producer(bootstrap_servers=strict_broker.bootstrap) as producer,
        TableView(topic, bootstrap_servers=strict_broker.bootstrap) as view,
    ):
        for number in range(20):
            sent = producer.send(topic, b"%d" % number, key=b"k").result(WAIT_S)
            view.wait_until(sent.partition, sent.offset, WAIT_S)
            assert view[b"k"] == b"%d" % number
        with pytest.raises(CallTimeoutError, match="did not reach offset 20 of partition"):
            view.wait_until(0, 20, 0.01)
        with pytest.raises(UnknownPartitionError, match="has no partition 1"):
            view.wait_until(1, 0, WAIT_S)


def test_transactions(group_broker: Peer, topic: str) -> None:
    """By default only committed records; a view is caught up although markers follow the last record."""
    create(group_broker, topic)
    everything = text_view(group_broker, topic, isolation_level="read_uncommitted")
    with (
        Producer(bootstrap_servers=group_broker.bootstrap, transactional_id=topic) as producer,
        text_view(group_broker, topic) as view,
        everything,
    ):
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"1", key=b"a")
        producer.commit_transaction()
        view.wait_until_caught_up(WAIT_S)
        assert dict(view) == {"a": "1"}
        producer.begin_transaction()
        sent = producer.send(topic, b"2", key=b"a").result(WAIT_S)
        everything.wait_until(sent.partition, sent.offset, WAIT_S)
        assert (view["a"], everything["a"]) == ("1", "2")
        producer.abort_transaction()
        view.wait_until(sent.partition, sent.offset, WAIT_S)
        view.wait_until_caught_up(WAIT_S)
        assert view["a"] == "1"


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_recreated_topic(strict_broker: Peer, topic: str, partitions: int) -> None:
    create(strict_broker, topic, partitions=2)
    put(strict_broker, topic, {"a": "1", "b": "2", "c": "3"})
    with text_view(strict_broker, topic) as view:
        assert len(view) == 3
        with Admin(bootstrap_servers=strict_broker.bootstrap) as admin:
            admin.delete_topics([topic])
        create(strict_broker, topic, partitions=partitions)
        put(strict_broker, topic, {"b": "new"}, partition=partitions - 1)
        wait_until(lambda: view == {"b": "new"}, "the view has the new topic")
        assert view.metrics()["reloads"] >= 1
        view.wait_until(partitions - 1, 0, WAIT_S)


def test_a_broker_that_is_away(group_broker: Peer, topic: str) -> None:
    create(group_broker, topic)
    put(group_broker, topic, {"a": "1"})
    with text_view(group_broker, topic) as view:
        group_broker.kill()
        try:
            assert view["a"] == "1"
        finally:
            group_broker.start()
        put(group_broker, topic, {"a": "2"})
        view.wait_until_caught_up(WAIT_S)
        assert dict(view) == {"a": "2"}
        assert view.metrics()["reloads"] == 0


def test_new_partitions(strict_broker: Peer, topic: str) -> None:
    create(strict_broker, topic)
    put(strict_broker, topic, {"a": "1"})
    with text_view(strict_broker, topic, metadata_max_age_ms=50) as view:
        with Admin(bootstrap_servers=strict_broker.bootstrap) as admin:
            admin.create_partitions({topic: NewPartitions(3)})
        put(strict_broker, topic, {"b": "2"}, partition=2)
        wait_until(lambda: "b" in view, "the view reads the new partition")
        assert dict(view) == {"a": "1", "b": "2"}


def test_a_table_that_is_too_large(strict_broker: Peer, topic: str) -> None:
    create(strict_broker, topic)
    put(strict_broker, topic, {"a": "x" * 300})
    with text_view(strict_broker, topic, max_bytes=1000) as view:
        put(strict_broker, topic, {str(number): "x" * 300 for number in range(10)})
        with pytest.raises(TableTooLargeError, match=f"topic '{topic}' needs more than max_bytes=1000"):
            view.wait_until_caught_up(WAIT_S)
        with pytest.raises(TableTooLargeError, match="Increase max_bytes"):
            view.get("a")
    with pytest.raises(TableTooLargeError), text_view(strict_broker, topic, max_bytes=1000):
        pass


def test_values_and_keys_that_cannot_be_read(strict_broker: Peer, topic: str) -> None:
    """A value affects its own key, and a key the whole table."""
    create(strict_broker, topic)
    put(strict_broker, topic, {"good": "[1]", "bad": "{"})
    with TableView(topic, bootstrap_servers=strict_broker.bootstrap, value_deserializer="json") as view:
        assert view[b"good"] == [1]
        with pytest.raises(SerializationError, match="json"):
            view[b"bad"]
        view[b"good"].append(2)
        assert view[b"good"] == [1]  # a value is decoded for each read
    with (
        pytest.raises(SerializationError, match=rf"the key .*partition {topic}-0, offset 0\)"),
        TableView(topic, bootstrap_servers=strict_broker.bootstrap, key_deserializer="int64"),
    ):
        pass

    def listed(_: str, key: bytes) -> list[int]:
        return list(key)

    with (
        pytest.raises(SerializationError, match="use a deserializer that returns hashable keys"),
        TableView(topic, bootstrap_servers=strict_broker.bootstrap, key_deserializer=listed),
    ):
        pass


def test_what_cannot_be_viewed(strict_broker: Peer, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    with (
        pytest.raises(UnknownTopicError, match=f"ottla topics create {topic} --config cleanup.policy=compact"),
        text_view(strict_broker, topic),
    ):
        pass
    for config in ("group_id", "group.id", "auto.offset.reset", "enable_auto_commit"):
        with pytest.raises(ConfigError, match="cannot be set for a TableView"):
            TableView(topic, {"bootstrap.servers": strict_broker.bootstrap, config: "x"})
    with pytest.raises(ArgumentError, match="max_bytes must be at least 1"):
        text_view(strict_broker, topic, max_bytes=0)
    create(strict_broker, topic, configs={"cleanup.policy": "delete"})
    with Producer(bootstrap_servers=strict_broker.bootstrap) as producer:
        producer.send(topic, b"no key")
    with caplog.at_level(logging.WARNING, "ottla"), text_view(strict_broker, topic) as view:
        assert len(view) == 0
        assert view.metrics()["records_without_key"] == 1
        wait_until(lambda: "cleanup.policy=delete: loading the table" in caplog.text, "the warning")
        assert "records without a key" in caplog.text


def test_nothing_is_read_before_the_table_is_complete(topic: str) -> None:
    view = TableView(topic, bootstrap_servers=f"127.0.0.1:{free_port()}")
    with pytest.raises(TableLoadingError, match=r"still being read.*wait_until_caught_up\(\)"):
        view.get(b"a")
    with pytest.raises(CallTimeoutError, match="did not catch up"):
        view.wait_until_caught_up(0.01)
    view.close()


def test_reads_beside_changes(strict_broker: Peer, topic: str) -> None:
    """Other threads iterate while keys come and go; closing ends a thread that waits."""
    create(strict_broker, topic)
    stays = {f"stays {number}": "1" for number in range(500)}
    put(strict_broker, topic, stays)
    failures: list[Exception] = []
    is_over = threading.Event()
    with text_view(strict_broker, topic) as view:

        def read() -> None:
            try:
                while not is_over.is_set():
                    for entries in (list(view.items()), list(view.range())):
                        assert stays.items() <= dict(entries).items()
                    assert stays.keys() <= view.snapshot().keys()
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for turn in range(5):
            put(strict_broker, topic, {f"goes {number}": None if turn % 2 else "2" for number in range(2000)})
            view.wait_until_caught_up(WAIT_S)
        is_over.set()
        for thread in threads:
            thread.join()
        assert failures == []

        def wait() -> None:
            try:
                view.wait_until(0, 1 << 40)
            except ClosedError as error:
                failures.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        wait_until(lambda: view._follower._waiting, "the thread waits")
    waiting.join(WAIT_S)
    assert [type(failure) for failure in failures] == [ClosedError]


def test_asyncio(strict_broker: Peer, topic: str) -> None:
    create(strict_broker, topic)

    async def main() -> None:
        async with (
            AsyncProducer(bootstrap_servers=strict_broker.bootstrap) as producer,
            AsyncTableView(topic, bootstrap_servers=strict_broker.bootstrap, value_deserializer=load) as view,
        ):
            sent = await producer.send_and_wait(topic, b"[1]", key=b"a")
            await view.wait_until(sent.partition, sent.offset, WAIT_S)
            assert view[b"a"] == [1]
        with pytest.raises(ClosedError):
            view.get(b"a")

    asyncio.run(main())


def load(_: str, value: bytes) -> list[int]:
    loaded: list[int] = json.loads(value)
    return loaded


OPERATIONS = st.tuples(st.integers(0, 8).map(str), st.none() | st.sampled_from(["x", "y", "z"]))
TRANSACTIONS = st.lists(st.tuples(st.lists(OPERATIONS, max_size=6), st.booleans()), max_size=6)


@settings(max_examples=examples(4), deadline=None)
@given(parts=st.lists(TRANSACTIONS, min_size=2, max_size=3))
def test_a_view_is_its_model(group_broker: Peer, parts: list[list[tuple[list[tuple[str, str | None]], bool]]]) -> None:
    """Committed and aborted transactions, with views that were opened before, in between and afterwards."""
    name = f"model-{free_port()}-{id(parts)}"
    create(group_broker, name, partitions=2)
    model: dict[str, str] = {}
    views: list[TableView[str, str]] = []
    settings_ = {"bootstrap.servers": group_broker.bootstrap, "transactional.id": name}
    try:
        with Producer(settings_, key_serializer="string", value_serializer="string") as producer:
            producer.init_transactions()
            for part in parts:
                views.append(text_view(group_broker, name))
                for operations, is_committed in part:
                    producer.begin_transaction()
                    for key, value in operations:
                        producer.send(name, value, key=key)
                    if not is_committed:
                        producer.abort_transaction()
                        continue
                    producer.commit_transaction()
                    for key, value in operations:
                        if value is None:
                            model.pop(key, None)
                        else:
                            model[key] = value
                for view in views:
                    view.wait_until_caught_up(WAIT_S)
                    assert dict(view.range()) == model == dict(view)
                    assert [key for key, _ in view.range()] == sorted(model)
    finally:
        for view in views:
            view.close()


def test_the_partitions_of_a_view(strict_broker: Peer, topic: str) -> None:
    """Keys of all partitions are in one table, and each partition is waited for."""
    create(strict_broker, topic, partitions=5, configs={"cleanup.policy": "compact,delete"})
    with Admin(bootstrap_servers=strict_broker.bootstrap) as admin, text_view(strict_broker, topic) as view:
        for partition in range(5):
            put(strict_broker, topic, {f"key {partition}": str(partition)}, partition=partition)
        admin.delete_records({TopicPartition(topic, 0): 1})
        view.wait_until_caught_up(WAIT_S)
        assert sorted(view.values()) == ["0", "1", "2", "3", "4"]  # a view that has read a record keeps it
    with text_view(strict_broker, topic) as view:
        assert sorted(view.values()) == ["1", "2", "3", "4"]
