"""Arguments of the wrong type are refused by the name of the parameter; and every error of ours is an `OttlaError`."""

from __future__ import annotations

import ast
import asyncio
import builtins
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ottla.client
from ottla import Admin, AsyncAdmin, AsyncConsumer, Consumer, OttlaError, Producer, TopicPartition
from ottla.client.administer import NewPartitions, NewTopic
from ottla.client.arguments import checked
from ottla.client.errors import ArgumentTypeError, CallTimeoutError, ConfigError, WrongLoopError
from ottla.client.offsets import Place
from ottla.client.produce.delivery import Delivery
from ottla.client.produce.table_delivery import TableDelivery

NOWHERE = "127.0.0.1:1"
SETTINGS: dict[str, Any] = {"bootstrap_servers": NOWHERE, "default_api_timeout_ms": 200}
PLACE = TopicPartition("t", 0)


@checked
def method(
    name: str = "",
    count: int | None = None,
    seconds: float = 0.0,
    names: Iterable[str] = (),
    places: Mapping[TopicPartition, int | Place] | None = None,
    topic: str | Iterable[str] | re.Pattern[str] = "",
    flag: bool = False,
    call: Callable[[int], object] | None = None,
    anything: Any = None,
) -> tuple[object, ...]:
    return name, count, seconds, names, places, topic, flag, call, anything


@pytest.mark.parametrize(
    "given",
    [
        {"name": "x", "count": 5, "seconds": 1, "flag": True, "call": print, "anything": object()},
        {"count": np.int32(5), "seconds": np.float32(0.5)},
        {"count": None, "places": None},
        {"names": ["a"]},
        {"names": ("a",)},
        {"names": {"a": 1}.keys()},
        {"names": iter([5])},
        {"places": {PLACE: 5, ("u", np.int64(1)): Place.at_time(5)}},
        {"topic": "a"},
        {"topic": ["a"]},
        {"topic": re.compile("a")},
    ],
)
def test_what_fits_is_taken(given: dict[str, Any]) -> None:
    assert method(**given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": b"x"}, "name must be a str, not bytes"),
        ({"name": None}, "name must be a str, not NoneType"),
        ({"count": "5"}, "count must be an int or None, not str"),
        ({"count": True}, "count must be an int or None, not bool"),
        ({"count": 5.0}, "count must be an int or None, not float"),
        ({"seconds": "1"}, "seconds must be a float, not str"),
        ({"names": "ab"}, "names must be an iterable of str, not str"),
        ({"names": 5}, "names must be an iterable of str, not int"),
        ({"names": ["a", 5]}, "names must be an iterable of str, but contains 5"),
        ({"places": [PLACE]}, "places must be a mapping of TopicPartition to int or a Place or None, not list"),
        ({"places": {"t": 0}}, "places must be a mapping of TopicPartition .* but contains 't'"),
        ({"places": {PLACE: "0"}}, "places must be .* but contains '0'"),
        ({"topic": 5}, "topic must be a str, an iterable of str or a Pattern, not int"),
        ({"topic": [5]}, "topic must be .* but contains 5"),
        ({"flag": 1}, "flag must be a bool, not int"),
        ({"call": 5}, "call must be a Callable or None, not int"),
    ],
)
def test_what_does_not_fit_is_refused_by_the_name_of_the_parameter(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentTypeError, match=f"^{words}$" if ".*" not in words else words) as caught:
        method(**given)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, OttlaError)


@pytest.fixture(scope="module")
def consumer() -> Iterator[Consumer]:
    with Consumer(SETTINGS, group_id="g") as consumer:
        consumer.assign([PLACE])
        yield consumer


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda one: one.subscribe(5), "topics must be .* not int"),
        (lambda one: one.subscribe([b"t"]), "topics must be .* but contains b't'"),
        (lambda one: one.assign("t"), "partitions must be .* not str"),
        (lambda one: one.assign(["t"]), "partitions must be .* but contains 't'"),
        (lambda one: one.seek("t", 0), "partition must be a TopicPartition, not str"),
        (lambda one: one.seek(PLACE, "0"), "offset must be an int or an OffsetAndMetadata, not str"),
        (lambda one: one.pause("t"), "partitions must be an iterable of TopicPartition, not str"),
        (lambda one: one.resume([5]), "partitions must be .* but contains 5"),
        (lambda one: one.commit([PLACE]), "offsets must be a mapping"),
        (lambda one: one.commit({PLACE: "5"}), "offsets must be a mapping .* but contains '5'"),
        (lambda one: one.committed(5), "partitions must be a collection of TopicPartition, not int"),
        (lambda one: one.end_offsets(["t"]), "partitions must be .* but contains 't'"),
        (lambda one: one.offsets_for_times([PLACE]), "times must be a mapping of TopicPartition to int, not list"),
        (lambda one: one.partitions_for(b"t"), "topic must be a str, not bytes"),
        (lambda one: one.lag("t"), "partition must be a TopicPartition, not str"),
        (lambda one: one.commit_async(callback=5), "callback must be callable, not int"),
        (lambda one: one.poll("5"), "timeout must be a number of seconds or None, not str"),
        (lambda one: one.poll(True), "timeout must be a number of seconds or None, not bool"),
        (lambda one: one.poll(0, "5"), "max_records must be an int, not str"),
        (lambda one: one.poll_arrow("5"), "timeout must be a number of seconds or None, not str"),
        (lambda one: one.poll_arrow(0, 5), "columns must be a sequence of str, not int"),
        (lambda one: one.poll_arrow(0, "offset"), "columns must be a sequence of str, not str"),
        (lambda one: one.position(PLACE, "5"), "timeout must be a float or None, not str"),
        (lambda one: one.close("5"), "timeout must be a number of seconds or None, not str"),
        (lambda one: one.close(None), "timeout must be a number of seconds, not NoneType"),
        (lambda one: one.seek(PLACE, 0, until="5"), "until must be an int or None, not str"),
    ],
)
def test_consumers_refuse_wrong_types(consumer: Consumer, call: Callable[[Consumer], object], words: str) -> None:
    with pytest.raises(ArgumentTypeError, match=words):
        call(consumer)


@pytest.fixture(scope="module")
def admin() -> Iterator[Admin]:
    with Admin(SETTINGS) as admin:
        yield admin


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda one: one.create_topics("t"), "topics must be an iterable of NewTopic, not str"),
        (lambda one: one.create_topics(["t"]), "topics must be an iterable of NewTopic, but contains 't'"),
        (lambda one: one.create_topics(NewTopic("t")), "topics must be an iterable of NewTopic, not NewTopic"),
        (lambda one: one.delete_topics("orders"), "names must be an iterable of str, not str"),
        (lambda one: one.delete_topics([5]), "names must be .* but contains 5"),
        (lambda one: one.describe_topics(None), "names must be an iterable of str, not NoneType"),
        (lambda one: one.create_partitions({"t": "3"}), "totals must be a mapping .* but contains '3'"),
        (lambda one: one.create_partitions([NewPartitions(3)]), "totals must be a mapping"),
        (lambda one: one.list_offsets([PLACE]), "places must be a mapping of TopicPartition to Place, not list"),
        (lambda one: one.delete_consumer_groups("g"), "group_ids must be an iterable of str, not str"),
        (lambda one: one.list_consumer_group_offsets(5), "group_id must be a str, not int"),
        (lambda one: one.list_topics(include_internal="no"), "include_internal must be a bool, not str"),
    ],
)
def test_admins_refuse_wrong_types(admin: Admin, call: Callable[[Admin], object], words: str) -> None:
    with pytest.raises(ArgumentTypeError, match=words):
        call(admin)


def test_asyncio_consumers_refuse_wrong_types() -> None:
    async def call() -> None:
        async with AsyncConsumer(SETTINGS) as consumer:
            wrong: Any = "5"
            consumer.assign([PLACE])
            for waiting in (consumer.poll, consumer.poll_arrow, consumer.close):
                with pytest.raises(ArgumentTypeError, match="timeout must be a number of seconds or None, not str"):
                    await waiting(wrong)

    asyncio.run(call())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: NewTopic(5), "name of NewTopic must be a str, not int"),  # type: ignore[arg-type]
        (lambda: NewTopic("t", "3"), "partitions of NewTopic must be an int or None, not str"),  # type: ignore[arg-type]
        (
            lambda: NewTopic("t", configs={"retention.ms": 5}),  # type: ignore[dict-item]
            "configs of NewTopic must be a mapping of str to str, but contains 5",
        ),
        (lambda: NewTopic("t", assignments={0: 1}), "assignments of NewTopic must be .* but contains 1"),  # type: ignore[dict-item]
        (lambda: NewPartitions("3"), "total of NewPartitions must be an int, not str"),  # type: ignore[arg-type]
    ],
)
def test_what_admins_take_refuses_wrong_types(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ArgumentTypeError, match=words):
        make()


def test_numpy_integers_are_ints_in_what_admins_take() -> None:
    three: Any = np.int64(3)
    assert NewTopic("t", three, assignments={three: [three]}).partitions == 3
    assert NewPartitions(three).total == 3


def test_producers_refuse_wrong_types() -> None:
    wrong: Any = "5"
    waiting: Callable[[Any], object]
    with Producer(bootstrap_servers=NOWHERE) as producer:
        for waiting in (producer.flush, producer.close):
            with pytest.raises(ArgumentTypeError, match="timeout must be a number of seconds or None, not str"):
                waiting(wrong)
        half: Any = np.float32(0.5)
        producer.flush(half)
        delivery = Delivery()
        for waiting in (delivery.result, delivery.exception, TableDelivery([]).result):
            with pytest.raises(ArgumentTypeError, match="timeout must be a number of seconds or None, not str"):
                waiting(wrong)


def test_no_public_method_has_annotations_that_cannot_be_read() -> None:
    for cls in (AsyncAdmin, AsyncConsumer):
        for name in dir(cls):
            found = getattr(cls, name)
            if not name.startswith("_") and hasattr(found, "__wrapped__"):
                with pytest.raises(TypeError, match=r"required|unexpected|must be"):
                    run_or_raise(found, object())


def run_or_raise(function: Callable[..., Any], *args: object) -> None:
    made = function(*args, nonsense=5)
    if asyncio.iscoroutine(made):
        asyncio.run(made)


@pytest.mark.parametrize(
    "server", ["http://localhost:9092", "https://localhost", "PLAINTEXT://broker:9092/", "ssl://b"]
)
def test_an_url_is_no_address_of_a_broker(server: str) -> None:
    scheme = server.split(":")[0]
    with pytest.raises(
        ConfigError, match=rf"is a URL, but brokers use Kafka's own protocol, not '{scheme}'; write host:port"
    ):
        Producer(bootstrap_servers=server)


def test_settings_are_a_mapping() -> None:
    wrong: Any = "localhost:9092"
    for client in (Producer, Consumer, Admin, AsyncAdmin):
        with pytest.raises(ArgumentTypeError, match="settings must be a mapping, not str; did you mean"):
            client(wrong)


def test_waiting_and_loops_fail_with_errors_of_ours() -> None:
    with Producer(bootstrap_servers=NOWHERE, max_block_ms=50) as producer:
        with pytest.raises(OttlaError) as caught:
            producer.send("t", b"x")
        assert not isinstance(caught.value, CallTimeoutError)
    with pytest.raises(WrongLoopError):
        AsyncConsumer(SETTINGS)


TRANSLATED = {
    "__init__.py": "module attributes",
    "config.py": "become ConfigError",
    "config_keys/rules.py": "become ConfigError",
    "consume/__init__.py": "module attributes",
    "serializers/__init__.py": "module attributes",
    "serializers/avro.py": "become SerializationError, or are about what a serializer is made with",
    "serializers/avro_schemas.py": "become SerializationError, or are about what a serializer is made with",
    "serializers/basic.py": "become SerializationError, or are about what a serializer is made with",
    "serializers/protobuf.py": "become SerializationError, or are about what a serializer is made with",
    "produce/interceptors.py": "logged",
    "produce/record.py": "become SerializationError",
    "produce/columns.py": "become SerializationError",
    "produce/channel.py": "a broker that answers with another message: cannot happen",
    "loop_thread.py": "within the library",
}
"""Modules that raise Python's own exceptions, and why nobody sees them."""


def test_everything_that_clients_raise_is_an_ottla_error() -> None:
    root = Path(ottla.client.__file__).parent
    found = set()
    for file in root.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Raise) and node.exc is not None:
                raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
                name = raised.id if isinstance(raised, ast.Name) else ""
                kind = getattr(builtins, name, None)
                if isinstance(kind, type) and issubclass(kind, Exception):
                    found.add(file.relative_to(root).as_posix())
    assert found <= TRANSLATED.keys(), "raise an error of ottla.client.errors instead, or say why not"
