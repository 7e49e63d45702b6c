"""Listeners: how they are written, and what cannot be."""

from __future__ import annotations

import socket

import pytest

from ottla.base.config import ConfigError
from ottla.broker.configs.listeners import Listener, own_host_name, parse_listeners, parse_protocols

PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "INSIDE": "PLAINTEXT", "OUTSIDE": "SSL"}


def parse(text: str, *, distinct_ports: bool = True) -> tuple[Listener, ...]:
    return parse_listeners("listeners", text, PROTOCOLS, distinct_ports=distinct_ports)


@pytest.mark.parametrize(
    ("text", "listener"),
    [
        ("PLAINTEXT://127.0.0.1:9092", Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092)),
        ("PLAINTEXT://:9092", Listener("PLAINTEXT", "PLAINTEXT", "", 9092)),
        ("inside://broker.example:0", Listener("INSIDE", "PLAINTEXT", "broker.example", 0)),
        ("OUTSIDE://[::1]:9093", Listener("OUTSIDE", "SSL", "::1", 9093)),
        ("OUTSIDE://::1:9093", Listener("OUTSIDE", "SSL", "::1", 9093)),
    ],
)
def test_a_listener_has_a_name_a_protocol_and_an_address(text: str, listener: Listener) -> None:
    assert parse(text) == (listener,)


def test_there_may_be_several_and_they_are_written_as_they_are_read() -> None:
    text = "PLAINTEXT://127.0.0.1:9092, OUTSIDE://[::1]:9093,"
    assert ",".join(map(str, parse(text))) == "PLAINTEXT://127.0.0.1:9092,OUTSIDE://[::1]:9093"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("9092", "'9092' is not NAME://host:port"),
        ("PLAINTEXT://127.0.0.1", "is not NAME://host:port"),
        ("PLAINTEXT://a b:1", "is not NAME://host:port"),
        ("PLAINTEXT://:-1", "is not NAME://host:port"),
        ("PLAINTEXT://:65536", "65536 is not a port"),
        ("OTHER://:1", "there is no protocol for the listener OTHER: add OTHER:PLAINTEXT to listener.security"),
        ("INSIDE://:1,inside://:2", "has two listeners with one name"),
        ("INSIDE://:1,PLAINTEXT://:1", "two listeners have the port 1"),
        ("INSIDE://127.0.0.1:1,PLAINTEXT://127.0.0.2:1", "two listeners have the port 1"),
    ],
)
def test_errors_have_a_message(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=r"^listeners: ") as raised:
        parse(text)
    assert reason in str(raised.value)


def test_a_port_can_be_had_twice_where_addresses_differ_in_kind_or_nobody_listens() -> None:
    assert len(parse("INSIDE://127.0.0.1:1,PLAINTEXT://[::1]:1")) == 2
    assert len(parse("INSIDE://:0,PLAINTEXT://:0")) == 2
    assert len(parse("INSIDE://a:1,PLAINTEXT://b:1", distinct_ports=False)) == 2


@pytest.mark.parametrize(("host", "everywhere"), [("", True), ("0.0.0.0", True), ("::", True), ("127.0.0.1", False)])
def test_some_addresses_cannot_be_told(host: str, everywhere: bool) -> None:
    assert Listener("A", "PLAINTEXT", host, 1).is_everywhere is everywhere


def test_names_have_protocols() -> None:
    assert parse_protocols("map", "a:PLAINTEXT, B : ssl,") == {"A": "PLAINTEXT", "B": "SSL"}


@pytest.mark.parametrize("text", ["A", ":SSL", "A:TLS"])
def test_a_wrong_protocol_is_reported(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^map: "):
        parse_protocols("map", text)


def test_this_machine_s_name_leads_to_an_ipv4_address() -> None:
    assert socket.getaddrinfo(own_host_name(), None, socket.AF_INET)


def test_a_host_name_that_does_not_resolve_is_advertised_as_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "no-such-host.invalid")
    assert own_host_name.__wrapped__() == "127.0.0.1"
