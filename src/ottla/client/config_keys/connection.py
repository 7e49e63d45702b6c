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
        "Addresses of some brokers, as host:port; one of them must be reachable. Required.",
        at_least_one,
    ),
    ConfigKey(
        "client.id", _STRING, "", "Name of this client in broker logs and metrics; ottla-producer or similar if empty."
    ),
    ConfigKey(
        "connections.max.idle.ms",
        _LONG,
        540_000,
        "Close a connection that has been idle for this long; -1 means never.",
        at_least(-1),
    ),
    ConfigKey("metadata.max.age.ms", _LONG, 300_000, "Refresh metadata at least this often.", at_least(0)),
    ConfigKey(
        "metadata.recovery.strategy",
        _STRING,
        "rebootstrap",
        "What to do if no known broker is available: rebootstrap from bootstrap.servers, or fail.",
        one_of_any_case("rebootstrap", "none"),
    ),
    ConfigKey(
        "receive.buffer.bytes",
        _INT,
        -1,
        "SO_RCVBUF of sockets; -1 uses the system default.",
        at_least(-1),
    ),
    ConfigKey(
        "send.buffer.bytes",
        _INT,
        -1,
        "SO_SNDBUF of sockets; -1 uses the system default.",
        at_least(-1),
    ),
    ConfigKey("reconnect.backoff.ms", _LONG, 50, "Wait before reconnecting to a broker.", at_least(0)),
    ConfigKey("reconnect.backoff.max.ms", _LONG, 1000, "Maximum of that wait, after repeated failures.", at_least(0)),
    ConfigKey("request.timeout.ms", _INT, 30_000, "How long to wait for a response.", at_least(0)),
    ConfigKey("retry.backoff.ms", _LONG, 100, "Wait before retrying a request.", at_least(0)),
    ConfigKey("retry.backoff.max.ms", _LONG, 1000, "Maximum of that wait, after repeated failures.", at_least(0)),
    ConfigKey(
        "socket.connection.setup.timeout.ms",
        _LONG,
        10_000,
        "Timeout for connecting to a broker.",
        at_least(1),
    ),
    ConfigKey(
        "socket.connection.setup.timeout.max.ms",
        _LONG,
        30_000,
        "Maximum of that timeout, after repeated failures.",
        at_least(1),
    ),
]
