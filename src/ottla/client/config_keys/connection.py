"""Keys that every client has: where the cluster is, and how patient to be with it."""

from __future__ import annotations

from typing import Final

from ottla.base.config import ConfigKey, ValueType, at_least
from ottla.client.config_keys.rules import at_least_one, one_of_any_case

_INT, _LONG, _STRING, _LIST = ValueType.INT, ValueType.LONG, ValueType.STRING, ValueType.LIST

CONNECTION: Final = [
    ConfigKey(
        "bootstrap.servers",
        _LIST,
        (),
        "Where to find the cluster: host:port of some of its brokers, of which one has to answer. Has to be set.",
        at_least_one,
    ),
    ConfigKey("client.id", _STRING, "", "What brokers call this client; ottla-producer and the like if empty."),
    ConfigKey(
        "connections.max.idle.ms",
        _LONG,
        540_000,
        "A connection that was not used for so long is closed; -1 never closes any.",
        at_least(-1),
    ),
    ConfigKey(
        "metadata.max.age.ms", _LONG, 300_000, "How old what is known of topics and brokers may become.", at_least(0)
    ),
    ConfigKey(
        "metadata.recovery.strategy",
        _STRING,
        "rebootstrap",
        "What to do when no broker that is known answers: begin again with bootstrap.servers, or fail.",
        one_of_any_case("rebootstrap", "none"),
    ),
    ConfigKey(
        "receive.buffer.bytes",
        _INT,
        -1,
        "The system's buffer for what comes; -1 leaves it alone.",
        at_least(-1),
    ),
    ConfigKey(
        "send.buffer.bytes",
        _INT,
        -1,
        "The system's buffer for what goes out; -1 leaves it alone.",
        at_least(-1),
    ),
    ConfigKey(
        "reconnect.backoff.ms", _LONG, 50, "How long to wait before a broker is connected to again.", at_least(0)
    ),
    ConfigKey("reconnect.backoff.max.ms", _LONG, 1000, "What that wait grows to while the broker fails.", at_least(0)),
    ConfigKey("request.timeout.ms", _INT, 30_000, "How long an answer is waited for.", at_least(0)),
    ConfigKey("retry.backoff.ms", _LONG, 100, "How long to wait before a request is made again.", at_least(0)),
    ConfigKey("retry.backoff.max.ms", _LONG, 1000, "What that wait grows to while requests fail.", at_least(0)),
    ConfigKey(
        "socket.connection.setup.timeout.ms",
        _LONG,
        10_000,
        "How long a broker may take to accept a connection.",
        at_least(1),
    ),
    ConfigKey(
        "socket.connection.setup.timeout.max.ms",
        _LONG,
        30_000,
        "What that time grows to while the broker fails.",
        at_least(1),
    ),
]
