"""A broker's registration: the ephemeral node `/brokers/ids/N`. The transaction that creates it is the broker's epoch.

A node of another session may be left by this broker itself, which was killed:

| its endpoints | the node's session | what happens |
| --- | --- | --- |
| one answers | | refused: another broker runs with this id |
| all refuse connections | in the session file | ended at once, then registered |
| all refuse connections | not known | waits until it expires |
| anything else | | waits until it expires: a timeout, or a proxy that accepts, does not show that a process is gone |

Kafka 3.9 refuses in all four cases. Belongs to one loop.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Final

from ottla.base.config import ConfigError
from ottla.base.coordination import (
    BadVersionError,
    ConnectionLossError,
    Coordination,
    Create,
    NodeExistsError,
    NoNodeError,
    SetData,
    Watch,
    Znode,
)
from ottla.broker.configs.broker_config import BrokerConfig
from ottla.broker.configs.cluster_settings import ClusterSettings
from ottla.broker.configs.listeners import Listener
from ottla.broker.metadata.features import SUPPORTED
from ottla.broker.startup.boot_mark import BootMark
from ottla.broker.startup.session_file import SessionFile
from ottla.zookeeper import paths
from ottla.zookeeper.client.connection import SessionToken
from ottla.zookeeper.client.session import end_session
from ottla.zookeeper.client.tree import ZooKeeperTree
from ottla.zookeeper.node_json import ZnodeError
from ottla.zookeeper.znodes import BrokerRegistration, Endpoint

_logger = logging.getLogger(__name__)

_PROBE_S: Final = 1.0
_API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 0, -1)
"""A request that every listener answers: ApiVersions v0 without a client id."""
_END_SESSION_S: Final = 5.0
_AGAIN_S: Final = 0.05
_LOOK_AGAIN_S: Final = 1.0
_CONFIRM_S: Final = 60.0
_EXPIRY_SLACK_S: Final = 5.0
"""Servers look for expired sessions once in a while, and each grants a new timeout when the leader changes."""


class Evidence(Enum):
    """What the endpoints of a registered broker tell of its process."""

    ALIVE = auto()
    GONE = auto()
    UNKNOWN = auto()


Address = tuple[str, int]


async def probe(addresses: Sequence[Address]) -> Evidence:
    """Asks each of them for the versions it serves."""
    found = await asyncio.gather(*map(_probe, addresses))
    if Evidence.ALIVE in found:
        return Evidence.ALIVE
    return Evidence.GONE if found and set(found) == {Evidence.GONE} else Evidence.UNKNOWN


async def _probe(address: Address) -> Evidence:
    """Only an answer shows a broker: proxies and load balancers accept connections for one that is gone, and so does
    the system for one that hangs."""
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_PROBE_S):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(_API_VERSIONS)
            return Evidence.ALIVE if await reader.read(1) else Evidence.UNKNOWN
    except ConnectionRefusedError:
        return Evidence.GONE
    except (OSError, TimeoutError):
        return Evidence.UNKNOWN
    finally:
        if writer is not None:
            writer.close()


class Registrar:
    """Call `look` before the broker listens, `register` when it holds its log directories and serves, and `reregister`
    when a session has expired and a new one has begun."""

    def __init__(
        self,
        tree: Coordination,
        broker_id: int,
        *,
        session_file: SessionFile | None = None,
        boot_mark: BootMark | None = None,
        expiry_s: float = 18.0,
        probe: Callable[[Sequence[Address]], Awaitable[Evidence]] = probe,
    ) -> None:
        """`expiry_s` is how long a session of this cluster lasts without a client."""
        self.broker_id = broker_id
        self.epoch = -1
        """-1 until it is registered."""
        self._tree = tree
        self._path = paths.broker(broker_id)
        self._file = session_file
        self._boot = boot_mark
        self._confirmation: asyncio.TimerHandle | None = None
        self._wait_s = expiry_s + _EXPIRY_SLACK_S
        self._probe = probe
        self._evidence: dict[int, Evidence] = {}
        """By the session that owns the registration."""
        self._former: SessionToken | None = None
        self._own_sessions: set[int] = set()
        self._listeners: tuple[Listener, ...] = ()
        self._rack: str | None = None

    @classmethod
    def of(cls, tree: Coordination, broker_id: int, config: BrokerConfig) -> Registrar:
        file = mark = None
        if isinstance(tree, ZooKeeperTree):
            file, mark = SessionFile(config.log_dirs), BootMark(config.log_dirs)
        expiry_s = ClusterSettings.of(config).session_timeout_ms / 1000
        return cls(tree, broker_id, session_file=file, boot_mark=mark, expiry_s=expiry_s)

    async def look(self) -> None:
        """Refuses to start beside a running broker with the same id. To be called before the broker listens: it may
        have the address of the former one, and would meet itself."""
        node = await self._tree.get(self._path)
        if node is not None and not self._is_own(node):
            await self._judge(node)

    async def register(self, listeners: Sequence[Listener], rack: str | None) -> int:
        """Tells the cluster that the broker is there; answers its epoch. `ConfigError` if another broker has its id."""
        self._listeners, self._rack = tuple(listeners), rack
        if self._file is not None and self._former is None:
            self._former = self._file.read()
        self.epoch = await self._register()
        _logger.info(
            "registered broker %d with epoch %d and endpoints %s",
            self.broker_id,
            self.epoch,
            ", ".join(map(str, listeners)),
        )
        self._confirm_boot()
        return self.epoch

    def _confirm_boot(self) -> None:
        """Where data may be lost, only after the controller has had time to prefer others: a restart before that must
        say it again."""
        if self._boot is None or self._confirmation is not None:
            return
        if self._boot.may_have_lost_data:
            _logger.warning("the machine went down without stopping the broker: replicas elsewhere are preferred")
            self._confirmation = asyncio.get_running_loop().call_later(_CONFIRM_S, self._boot.confirm)
        else:
            self._boot.confirm()

    async def reregister(self) -> int:
        """The same again, in a new session."""
        return await self.register(self._listeners, self._rack)

    def forget(self) -> None:
        """The session was closed: nothing is left for the next start to end."""
        if self._confirmation is not None:
            self._confirmation.cancel()
        if self._file is not None:
            self._file.remove()

    # --- the node -----------------------------------------------------------------------------------------------------

    async def _register(self) -> int:
        """Only what is read counts: the answer to a write may be lost."""
        while True:
            node = await self._tree.get(self._path)
            if node is None:
                await self._create()
            elif node.owner == self._tree.session_id:
                self._own_sessions.add(node.owner)
                return node.created_zxid
            elif self._is_own(node):
                await self._delete(node)
            else:
                await self._wait_for(node)

    async def _create(self) -> None:
        """Two operations, as Kafka does: a controller that watches sees a node with data in version 1. Features begin
        with version 1 in here: older Kafka brokers fail to read a registration with 0."""
        if self._file is not None and isinstance(self._tree, ZooKeeperTree):
            self._file.write(self._tree.session.token)
        data = BrokerRegistration(
            endpoints=tuple(Endpoint(each.name, each.protocol, each.host, each.port) for each in self._listeners),
            rack=self._rack,
            timestamp_ms=time.time_ns() // 1_000_000,
            features={name: (max(lowest, 1), highest) for name, (lowest, highest) in SUPPORTED.items()},
            may_have_lost_data=self._boot is not None and self._boot.may_have_lost_data,
        ).encode()
        try:
            await self._tree.transact([Create(self._path, ephemeral=True), SetData(self._path, data, 0)])
        except (NodeExistsError, ConnectionLossError):
            await asyncio.sleep(_AGAIN_S)  # the server that answers reads may be behind

    def _is_own(self, node: Znode) -> bool:
        """Of this process, in an earlier session (servers can forget to remove nodes: ZOOKEEPER-2985), or of an earlier
        version of Ottla, which registered without a session."""
        return node.owner == 0 or node.owner == self._tree.session_id or node.owner in self._own_sessions

    async def _delete(self, node: Znode) -> None:
        with suppress(NoNodeError, BadVersionError, ConnectionLossError):
            await self._tree.delete(self._path, node.version)

    # --- a node of another session ------------------------------------------------------------------------------------

    async def _wait_for(self, node: Znode) -> None:
        """Returns when the node is gone."""
        evidence = await self._judge(node)
        former, self._former = self._former, None
        if former is None or former.session_id != node.owner or evidence is not Evidence.GONE:
            former = None
        if former is not None and await self._end_former(former):
            return
        _logger.warning(
            "broker %d is still registered by session %#x, whose process does not answer; waiting up to %.0f s until "
            "the session expires",
            self.broker_id,
            node.owner,
            self._wait_s,
        )
        try:
            async with asyncio.timeout(self._wait_s):
                await self._until_gone(node.owner)
        except TimeoutError:
            raise self._taken(f"its session {node.owner:#x} did not expire within {self._wait_s:.0f} s") from None

    async def _end_former(self, token: SessionToken) -> bool:
        """Whether the registration is gone."""
        if not isinstance(self._tree, ZooKeeperTree):
            return False
        session = self._tree.session
        _logger.info("ending session %#x, which a killed process of this broker left", token.session_id)
        if not await end_session(session.servers, token, session.timeout_ms, _END_SESSION_S):
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(_PROBE_S):  # the server of this session may be behind
                await self._until_gone(token.session_id)
                return True
        return False

    async def _until_gone(self, owner: int) -> None:
        while True:
            is_news = asyncio.Event()
            node = await self._tree.get(self._path, _setting(is_news))
            if node is None or node.owner != owner:
                return
            with suppress(TimeoutError):  # a watch is not told if the own session expires
                await asyncio.wait_for(is_news.wait(), _LOOK_AGAIN_S)

    async def _judge(self, node: Znode) -> Evidence:
        evidence = self._evidence.get(node.owner)
        if evidence is None:
            evidence = self._evidence[node.owner] = await self._evidence_of(node)
        if evidence is Evidence.ALIVE:
            raise self._taken("its endpoints answer")
        return evidence

    async def _evidence_of(self, node: Znode) -> Evidence:
        try:
            registration = BrokerRegistration.decode(self._path, node.data)
        except ZnodeError as error:
            _logger.warning("the registration of another process with this id cannot be read: %s", error)
            return Evidence.UNKNOWN
        own = {(each.host, each.port) for each in self._listeners}
        registered = {(each.host, each.port) for each in registration.endpoints}
        if registered and registered <= own:
            return Evidence.GONE  # this broker has taken them
        return await self._probe(sorted(registered - own))

    def _taken(self, why: str) -> ConfigError:
        reason = f"another running broker is registered with the id {self.broker_id} ({why})"
        return ConfigError("broker.id", f"{reason}; stop it, or choose another id")


def _setting(event: asyncio.Event) -> Watch:
    return lambda _: event.set()
