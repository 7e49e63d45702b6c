"""Listeners and advertised listeners: `NAME://host:port`, separated by commas."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from ottla.base.config import ConfigError

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LISTENER: Final = re.compile(r"(.*)://(?:\[([0-9a-zA-Z\-%._:]*)\]|([0-9a-zA-Z\-%._:]*)):(\d+)")
_EVERY_ADDRESS: Final = ("", "0.0.0.0", "::")
_LOOPBACK_NAMES: Final = ("localhost", "ip6-localhost", "localhost.localdomain")
LOOPBACK_LISTENER: Final = "PLAINTEXT://127.0.0.1:9092"
"""The listener of a broker that was started without any configuration."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A name, its security protocol, and an address: host "" means all addresses, port 0 any free port."""

    name: str
    protocol: str
    host: str
    port: int

    @property
    def is_everywhere(self) -> bool:
        """Whether the address cannot be advertised to clients."""
        return self.host in _EVERY_ADDRESS

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return self.host.lower() in _LOOPBACK_NAMES

    @property
    def is_exposed(self) -> bool:
        """Whether other machines can reach it without authentication."""
        return self.protocol == "PLAINTEXT" and not self.is_loopback

    def __str__(self) -> str:
        return f"{self.name}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def parse_protocols(key: str, text: str) -> dict[str, str]:
    """The protocol of each listener's name, from `NAME:PROTOCOL,…`."""
    found = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = (part.strip() for part in pair.rpartition(":"))
        if not colon or not name:
            raise ConfigError(key, f"{pair!r} is not NAME:PROTOCOL")
        if protocol.upper() not in PROTOCOLS:
            raise ConfigError(key, f"{protocol!r} is not one of {', '.join(PROTOCOLS)}")
        found[name.upper()] = protocol.upper()
    return found


def parse_listeners(key: str, text: str, protocols: Mapping[str, str], *, distinct_ports: bool) -> tuple[Listener, ...]:
    """The listeners, in order. Names are in upper case and unique; ports are unique if they must be."""
    found = tuple(_parse(key, part.strip(), protocols) for part in text.split(",") if part.strip())
    names = [listener.name for listener in found]
    if len(set(names)) < len(names):
        raise ConfigError(key, f"{text!r} has two listeners with one name")
    if distinct_ports:
        _check_ports(key, found)
    return found


def _parse(key: str, text: str, protocols: Mapping[str, str]) -> Listener:
    match = _LISTENER.fullmatch(text)
    if match is None:
        raise ConfigError(key, f"{text!r} is not NAME://host:port, such as PLAINTEXT://127.0.0.1:9092")
    name, port = match[1].upper(), int(match[4])
    if port > 65535:
        raise ConfigError(key, f"{port} is not a port: it is more than 65535")
    if name not in protocols:
        raise ConfigError(
            key, f"there is no protocol for the listener {name}: add {name}:PLAINTEXT to listener.security.protocol.map"
        )
    return Listener(name, protocols[name], match[2] or match[3] or "", port)


def moved_listener(text: str, ignored: Collection[str], *, host: str | None, port: int | None) -> str:
    """The listeners in `text` with the host or the port of the only one replaced, unless None. Listeners in `ignored`
    are not opened, and not changed. If there are several others, raises a `ConfigError` that names them."""
    option = "--host" if host is not None else "--port"
    parts = [part.strip() for part in text.split(",") if part.strip()]
    matches = [_LISTENER.fullmatch(part) for part in parts]
    meant = [index for index, match in enumerate(matches) if match is None or match[1].upper() not in ignored]
    if len(meant) != 1:
        raise ConfigError(option, f"the configuration has {len(meant)} listeners ({text}): change 'listeners' instead")
    match = matches[meant[0]]
    if match is None:
        return text  # refused later, with its own reason
    old_host = match[2] or match[3] or ""
    new_host = old_host if host is None else host.strip("[]")
    moved = Listener(match[1], "", new_host, int(match[4]) if port is None else port)
    parts[meant[0]] = str(moved)
    return ",".join(parts)


def _check_ports(key: str, listeners: Sequence[Listener]) -> None:
    """A port can be used twice only on an IPv4 address and an IPv6 address."""
    taken: dict[int, list[int]] = {}
    for listener in listeners:
        if listener.port:
            taken.setdefault(listener.port, []).append(_ip_version(listener.host))
    for port, versions in taken.items():
        if len(versions) > 1 and sorted(versions) != [4, 6]:
            raise ConfigError(key, f"two listeners have the port {port}, and are not one of IPv4 and one of IPv6")


def _ip_version(host: str) -> int:
    """4 or 6; 0 for a host name."""
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0


@cache
def own_host_name() -> str:
    """The name of this machine for clients: its full name if that has an IPv4 address, else the loopback address.
    Clients of a broker on IPv4 cannot use a name that has only an IPv6 address."""
    try:
        found = socket.getaddrinfo(
            socket.gethostname(), None, socket.AF_INET, socket.SOCK_STREAM, 0, socket.AI_CANONNAME
        )
    except OSError:
        return "127.0.0.1"
    return found[0][3] or socket.gethostname()
