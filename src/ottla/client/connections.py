"""A client's connections to the brokers of a cluster: opened on demand, replaced when they fail, closed when idle.

A broker has one connection per lane. Most requests share one lane; requests that must not delay others, such as
long-poll fetches, have their own. A broker that cannot be reached is retried with exponential backoff, and the error
says how often and how long it was tried. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ottla.client.errors import ClosedError, ForkedError, NoBrokerError
from ottla.client.forks import tell_of_forks
from ottla.net.client_connection import Address, BrokerUnreachableError, ClientConnection, ConnectionOptions

_NEXT_ADDRESS_AFTER_S: Final = 1.0
"""How long to wait for one address before the next one is tried as well."""
_DOUBLINGS_MAX: Final = 16
_CHECK: Final = "Check bootstrap.servers, that a broker is running there, and that this machine can reach it"


@dataclass(frozen=True, slots=True)
class ReconnectOptions:
    """How a client connects, and its timeouts."""

    connection: ConnectionOptions = field(default_factory=ConnectionOptions)
    connect_timeout_max_s: float = 30.0
    """Maximum of the connection timeout, after repeated failures."""
    backoff_s: float = 0.05
    backoff_max_s: float = 1.0
    idle_s: float | None = 540.0
    """Idle time after which a connection is closed; None means never."""
    rebootstrap: bool = True
    """Whether to use the bootstrap addresses again if no known broker is available."""


class _Failing:
    """An address that could not be reached at the last attempt."""

    __slots__ = ("attempts", "began_at_s", "not_before_s")

    def __init__(self, began_at_s: float) -> None:
        self.attempts = 0
        self.began_at_s = began_at_s
        self.not_before_s = 0.0


class Connections:
    """The connections of one client."""

    def __init__(self, bootstrap: Iterable[Address], options: ReconnectOptions) -> None:
        self.bootstrap = list(bootstrap)
        self.brokers: Mapping[int, Address] = {}
        """Addresses of brokers by id, as far as known."""
        self._options = options
        self._by_broker: dict[tuple[int, str], ClientConnection] = {}
        self._first: ClientConnection | None = None
        """A connection to a bootstrap address whose broker id is not known yet; later it is used like any other."""
        self._opening: dict[tuple[int, str], asyncio.Lock] = {}
        self._bootstrapping = asyncio.Lock()
        self._attempts: set[asyncio.Task[ClientConnection]] = set()
        self._made: set[ClientConnection] = set()
        """All open connections, including those whose users were cancelled while they were being opened."""
        self._failing: dict[Address, _Failing] = {}
        self._is_closed = False
        self._is_forked = False
        self._parents: list[ClientConnection] = []
        """In a forked child: the connections that it must not touch."""
        tell_of_forks(self)

    async def close(self) -> None:
        """Closes all connections; pending requests fail."""
        self._is_closed = True
        await _give_up(self._attempts)
        await self.begin_again()

    async def begin_again(self) -> None:
        """Forgets the brokers, so that the bootstrap addresses are used next."""
        self.brokers = {}
        connections = self._all()
        self._forget()
        await asyncio.gather(*(connection.close() for connection in connections))

    async def close_idle(self) -> None:
        """Closes idle connections."""
        idle_s = self._options.idle_s
        if idle_s is None:
            return
        idle = [connection for connection in self._all() if connection.idle_s >= idle_s]
        await asyncio.gather(*(connection.close() for connection in idle))

    def check(self) -> None:
        """Raises an error if the client cannot be used."""
        if self._is_forked:
            raise ForkedError(
                "the client was created before os.fork and cannot be used in the child process: create a new one"
            )
        if self._is_closed:
            raise ClosedError("the client is closed")

    def after_fork(self) -> None:
        self._is_forked = True
        self._parents = self._all()
        self._forget()

    async def to(self, broker_id: int, lane: str = "") -> ClientConnection:
        """The connection to a broker, opened if necessary."""
        key = (broker_id, lane)
        connection = self._by_broker.get(key)
        if connection is not None and connection.is_open:
            return connection
        async with self._opening.setdefault(key, asyncio.Lock()):
            self.check()
            connection = self._by_broker.get(key)
            if connection is None or not connection.is_open:
                self._by_broker[key] = connection = await self._open_to(broker_id, lane)
            return connection

    async def to_any(self) -> ClientConnection:
        """An open connection, or one to the first of the known brokers and bootstrap addresses that can be reached."""
        self.check()
        connection = self._any_open()
        if connection is not None:
            return connection
        async with self._bootstrapping:
            connection = self._any_open()
            if connection is None:
                connection = await self._first_to_answer()
                self.check()  # closed by now, it would be closed again by nobody
                self._first = connection
            return connection

    def _any_open(self) -> ClientConnection | None:
        for (_, lane), connection in self._by_broker.items():
            if not lane and connection.is_open:
                return connection
        return self._first if self._first is not None and self._first.is_open else None

    def _all(self) -> list[ClientConnection]:
        return [connection for connection in self._made if connection.is_open]

    def _forget(self) -> None:
        self._by_broker = {}
        self._first = None
        self._made = set()

    # Opening.

    async def _open_to(self, broker_id: int, lane: str) -> ClientConnection:
        address = self.brokers.get(broker_id)
        if address is None:
            raise BrokerUnreachableError(f"broker {broker_id} is not part of the cluster")
        if not lane and self._first is not None and self._first.is_open and self._first.address == address:
            connection, self._first = self._first, None
            return connection
        try:
            return await self._open(address)
        except BrokerUnreachableError as error:
            if address in self.bootstrap:
                raise BrokerUnreachableError(f"broker {broker_id} at {error}") from error
            hint = "the broker advertises this address: check its advertised.listeners"
            raise BrokerUnreachableError(f"broker {broker_id} at {error}; {hint}") from error

    async def _first_to_answer(self) -> ClientConnection:
        """Tries addresses one after the other, without waiting long for any of them."""
        known = list(set(self.brokers.values()))
        bootstrap = self.bootstrap if self._options.rebootstrap or not known else []
        left = deque(dict.fromkeys((*_shuffled(known), *_shuffled(bootstrap))))
        tasks: set[asyncio.Task[ClientConnection]] = set()
        failures: list[BrokerUnreachableError] = []
        try:
            while left or tasks:
                if left:
                    tasks.add(asyncio.create_task(self._open(left.popleft())))
                done, _ = await asyncio.wait(
                    tasks, timeout=_NEXT_ADDRESS_AFTER_S if left else None, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    tasks.discard(task)
                    try:
                        return task.result()
                    except BrokerUnreachableError as error:
                        failures.append(error)
        finally:
            await _give_up(tasks)
        told = "; ".join(map(str, failures))
        stop = "" if told.endswith("?") else "."
        nobody = NoBrokerError(f"no broker can be reached: {told}{stop} {_CHECK}")
        nobody.is_wrong_address = all(failure.is_wrong_address for failure in failures)
        raise nobody

    async def _open(self, address: Address) -> ClientConnection:
        """One attempt, which `close` cancels."""
        self.check()
        attempt = asyncio.create_task(self._attempt(address))
        self._attempts.add(attempt)
        attempt.add_done_callback(self._attempts.discard)
        try:
            connection = await attempt
        except asyncio.CancelledError:
            if self._is_closed and attempt.cancelled() and not _is_cancelled():
                self.check()
            raise
        if self._is_closed:
            await connection.close()
            self.check()
        return connection

    async def _attempt(self, address: Address) -> ClientConnection:
        """Waits for the backoff after the last failure."""
        failing = self._failing.get(address)
        if failing is not None:
            await asyncio.sleep(max(0.0, failing.not_before_s - time.monotonic()))
        began_at_s = time.monotonic()
        try:
            connection = await ClientConnection.open(address, self._patience(failing))
        except BrokerUnreachableError as error:
            failing = self._failing.setdefault(address, _Failing(began_at_s))
            raise self._failed(failing, error) from error
        self._failing.pop(address, None)
        self._made = {one for one in self._made if one.is_open} | {connection}
        return connection

    def _failed(self, failing: _Failing, error: BrokerUnreachableError) -> BrokerUnreachableError:
        now_s = time.monotonic()
        wait_s = min(self._options.backoff_s * 2 ** min(failing.attempts, _DOUBLINGS_MAX), self._options.backoff_max_s)
        failing.attempts += 1
        failing.not_before_s = now_s + wait_s * random.uniform(0.8, 1.2)
        if failing.attempts == 1:
            return error
        told = BrokerUnreachableError(f"{error} ({failing.attempts} attempts in {now_s - failing.began_at_s:.1f} s)")
        told.is_wrong_address = error.is_wrong_address
        return told

    def _patience(self, failing: _Failing | None) -> ConnectionOptions:
        options = self._options.connection
        if failing is None:
            return options
        grown_s = options.connect_timeout_s * 2 ** min(failing.attempts, _DOUBLINGS_MAX)
        limit_s = max(self._options.connect_timeout_max_s, options.connect_timeout_s)
        return replace(options, connect_timeout_s=min(grown_s, limit_s))


def _is_cancelled() -> bool:
    """Whether the waiting task itself is cancelled, and not only what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _give_up(tasks: set[asyncio.Task[ClientConnection]]) -> None:
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, ClientConnection):
            await outcome.close()


def _shuffled(addresses: list[Address]) -> list[Address]:
    """Shuffled, so that not all clients use the same broker."""
    return random.sample(addresses, len(addresses))
