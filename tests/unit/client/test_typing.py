"""What type checkers see of clients: keyword arguments by name and type, keys and values by their serializers.

mypy checks the functions below, which nobody calls: `assert_type` fails where a type is another, and an ignored error
that is none fails as well. So a misspelt keyword that passed would fail `make check`.
"""

from __future__ import annotations

from typing import Any, assert_type, get_overloads, get_type_hints

import pytest

import client_keywords
from ottla import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, ConsumerRecord, Producer
from ottla.client.config import ADMIN_CONFIG, CONSUMER_CONFIG, PRODUCER_CONFIG
from ottla.client.config_keywords import AdminKeywords, ConsumerKeywords, ProducerKeywords
from ottla.client.serializers import JsonDeserializer, StringDeserializer, StringSerializer, UUIDSerializer
from ottla.client.serializers.contract import Buffer

SERVERS = "localhost:9092"


def test_the_keywords_are_those_of_the_tables() -> None:
    assert client_keywords.FILE.read_text() == client_keywords.formatted(), "run python tools/client_keywords.py"


def test_every_key_is_a_keyword() -> None:
    coders = {f"{part}_{kind}" for part in ("key", "value") for kind in ("serializer", "deserializer")}
    for schema, keywords in (
        (PRODUCER_CONFIG, ProducerKeywords),
        (CONSUMER_CONFIG, ConsumerKeywords),
        (ADMIN_CONFIG, AdminKeywords),
    ):
        known = get_type_hints(keywords).keys()
        assert {key.name.replace(".", "_") for key in schema} - known <= coders


@pytest.mark.parametrize("client", [Producer, AsyncProducer, Consumer, AsyncConsumer])
def test_constructors_leave_the_variables_of_their_class_alone(client: Any) -> None:
    """mypy solves them in the type of `self` all the same, pyright does not: records would be of unknown types."""
    overloads = get_overloads(client.__init__)
    assert overloads
    for one in overloads:
        assert not set(get_type_hints(one)["self"].__parameters__) & set(client.__parameters__)


def misspelt_keywords_fail() -> None:
    Producer(bootstrap_server=SERVERS)  # type: ignore[call-overload]
    AsyncProducer(bootstrap_server=SERVERS)  # type: ignore[call-overload]
    Consumer(bootstrap_servers=SERVERS, group="g")  # type: ignore[call-overload]
    AsyncConsumer(bootstrap_servers=SERVERS, group="g")  # type: ignore[call-overload]
    Admin(bootstrap_server=SERVERS)  # type: ignore[call-arg]
    AsyncAdmin(bootstrap_server=SERVERS)  # type: ignore[call-arg]


def wrong_values_fail() -> None:
    Producer(bootstrap_servers=SERVERS, linger_ms=1.5)  # type: ignore[call-overload]
    Consumer(bootstrap_servers=SERVERS, enable_auto_commit=[])  # type: ignore[call-overload]
    Admin(bootstrap_servers=5)  # type: ignore[arg-type]


def right_ones_pass(settings: dict[str, Any]) -> None:
    Producer(
        bootstrap_servers=[SERVERS], acks="all", linger_ms=5, enable_idempotence=True, security_protocol="PLAINTEXT"
    )
    Consumer({"group.id": "g"}, bootstrap_servers=SERVERS, client_id=None, max_poll_records="10")
    Admin(settings, bootstrap_servers=SERVERS)
    Producer(**settings)


def producers_take_what_their_serializers_take(settings: dict[str, object]) -> None:
    plain = Producer(bootstrap_servers=SERVERS)
    assert_type(plain, Producer[Buffer, Buffer])
    plain.send("t", b"value", bytearray(b"key"))
    plain.send("t", None)
    plain.send("t", "text")  # type: ignore[arg-type]
    typed = Producer(bootstrap_servers=SERVERS, key_serializer=UUIDSerializer(), value_serializer=StringSerializer())
    typed.send("t", "text")
    typed.send("t", b"bytes")  # type: ignore[arg-type]
    typed.send("t", "text", "key")  # type: ignore[arg-type]
    half = AsyncProducer(bootstrap_servers=SERVERS, value_serializer=StringSerializer())
    assert_type(half, AsyncProducer[Buffer, str])
    assert_type(Producer(bootstrap_servers=SERVERS, value_serializer="json"), Producer[Any, Any])
    assert_type(Producer(settings), Producer[Any, Any])


def size_of(_topic: str, data: bytes) -> int:
    return len(data)


def consumers_give_what_their_deserializers_make(settings: dict[str, object]) -> None:
    plain = Consumer(bootstrap_servers=SERVERS)
    assert_type(plain.poll(1), list[ConsumerRecord[bytes | None, bytes | None]])
    typed = Consumer(
        bootstrap_servers=SERVERS, key_deserializer=StringDeserializer(), value_deserializer=JsonDeserializer()
    )
    for record in typed:
        assert_type(record.key, str | None)
    half = Consumer(bootstrap_servers=SERVERS, key_deserializer=size_of)
    assert_type(half.poll()[0].key, int | None)
    assert_type(Consumer(settings).poll()[0].value, Any)


async def consumers_for_asyncio_do_so_too() -> None:
    async with AsyncConsumer(bootstrap_servers=SERVERS, value_deserializer=StringDeserializer()) as consumer:
        async for record in consumer:
            assert_type(record.value, str | None)
            assert_type(record.key, bytes | None)
