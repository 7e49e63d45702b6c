"""A real cluster for tests: several brokers and a ZooKeeper, each in its own process, on free ports of 127.0.0.1.

    with Cluster(3) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        leader = cluster.wait_for_leader("orders", 0)
        cluster.brokers[leader].kill()
        cluster.wait_for_leader("orders", 0, other_than=leader)

Brokers have the ids 1 to n; `cluster.brokers` is indexed by id. With `network=True`, the brokers reach each other and
ZooKeeper through a proxy, so that connections can be cut (`cut`, `cut_zookeeper`, `isolate`, `delay`, `heal`); clients
connect directly. Leaving the block stops everything and removes the data.

With three brokers or more, internal topics have three replicas, and `min.insync.replicas` is 2. Sessions with ZooKeeper
last six seconds, so a broker that is killed is replaced after at most that long.

Every wait is bounded; what does not come raises `BrokerFailedError` with the last output of all servers.

A cluster belongs to one thread; `close` may be called from any.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

from ottla.broker.configs.cluster_settings import replica_defaults
from ottla.testing.broker import Broker, Setting, settings_text
from ottla.testing.connection_owner import member_mark
from ottla.testing.network import Network
from ottla.testing.proxy import ZOOKEEPER, Route
from ottla.testing.server_process import BrokerFailedError, ServerProcess, unused_port
from ottla.testing.tree_view import TreeView
from ottla.testing.zookeeper_server import ZooKeeperServer
from ottla.zookeeper.znodes import PartitionLeader

_T = TypeVar("_T")
WAIT_S: Final = 60.0
_LOOK_AGAIN_S: Final = 0.05
_SHOWN_CHARS: Final = 3000
_LISTENERS: Final = "INTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT"


class Member(Protocol):
    """A broker of a cluster, of whatever make."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def restart(self) -> None: ...
    @property
    def bootstrap(self) -> str: ...
    @property
    def directory(self) -> Path: ...
    @property
    def is_running(self) -> bool: ...
    @property
    def is_paused(self) -> bool: ...
    @property
    def output(self) -> str: ...


class Cluster:
    """See the module. `settings` are for all brokers, by Kafka's names. `zookeeper` is "embedded", or the connect
    string of a ZooKeeper that you run."""

    def __init__(
        self,
        size: int = 3,
        *,
        zookeeper: str = "embedded",
        settings: Mapping[str, Setting] | None = None,
        network: bool = False,
        directory: Path | None = None,
    ) -> None:
        if size < 1:
            raise ValueError(f"a cluster has at least 1 broker, not {size}")
        if network and not sys.platform.startswith("linux"):
            raise RuntimeError("network=True needs Linux: the proxy finds the source of a connection in /proc")
        self.size = size
        self.settings: dict[str, Setting] = dict(settings or {})
        settings_text(self.settings)  # raises early, where the mistake is
        self.brokers: dict[int, Member] = {}
        """By id, from 1."""
        self._name = uuid.uuid4().hex
        self._given_directory = directory
        self._directory: Path | None = None
        self._given_zookeeper = zookeeper
        self._zookeeper: ServerProcess | None = None
        self._connect = zookeeper
        self._has_network = network
        self._network: Network | None = None
        self._view: TreeView | None = None
        self._ports = {broker: unused_port() for broker in range(1, size + 1)}
        self._internal_ports: dict[int, int] = {}
        self._proxied_ports: dict[int, int] = {}
        self._zookeeper_ports: dict[int, int] = {}

    # --- life ---------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(stop=kind is None)

    def start(self) -> None:
        """Starts ZooKeeper and all brokers that do not run; returns when all serve and there is a controller."""
        try:
            if self._directory is None:
                self._set_up()
            if self._zookeeper is not None and not self._zookeeper.is_running:
                self._zookeeper.kill()  # forgets a process that has ended by itself
                self._zookeeper.start()
            self._at_once(self._start_if_down, self.brokers)
            self.wait_for_brokers()
            self.wait_for_controller()
        except BaseException:
            self.close(stop=False)
            raise

    def _set_up(self) -> None:
        self._directory = self._given_directory or Path(tempfile.mkdtemp(prefix="ottla-cluster-"))
        self._directory.mkdir(parents=True, exist_ok=True)
        if self._given_zookeeper in ("embedded", "apache"):
            server = self._new_zookeeper(self._given_zookeeper, self._directory / "zookeeper")
            self._zookeeper, self._connect = server, server.address
        if self._has_network:
            self._set_up_network(self._directory)
        self._view = TreeView(self._connect)
        self.brokers = {broker: self._new_member(broker) for broker in self._ports}

    def _set_up_network(self, directory: Path) -> None:
        address, slash, self._chroot = self._connect.partition("/")
        host, _, port = address.partition(":")
        if host not in ("127.0.0.1", "localhost") or not port.isdecimal():
            raise ValueError(f"network=True needs a ZooKeeper at 127.0.0.1:PORT, not {self._connect!r}")
        self._chroot = slash + self._chroot
        for broker in self._ports:
            self._internal_ports[broker] = unused_port()
            self._proxied_ports[broker] = unused_port()
            self._zookeeper_ports[broker] = unused_port()
        routes = [Route(self._proxied_ports[each], each, self._internal_ports[each]) for each in self._ports]
        routes += [Route(self._zookeeper_ports[each], ZOOKEEPER, int(port), each) for each in self._ports]
        self._network = Network(self._name, routes, directory / "proxy.log")

    def _new_zookeeper(self, kind: str, directory: Path) -> ZooKeeperServer:
        if kind != "embedded":
            raise ValueError(f"zookeeper={kind!r} is not known; use 'embedded' or a connect string")
        return ZooKeeperServer(directory)

    def _new_member(self, broker: int) -> Member:
        return Broker(
            self.broker_settings(broker),
            directory=self.directory / f"broker-{broker}",
            port=self._ports[broker],
            marks=member_mark(self._name, broker),
        )

    def broker_settings(self, broker: int) -> dict[str, Setting]:
        """What the broker is configured with, beside its directories."""
        listener = f"PLAINTEXT://127.0.0.1:{self._ports[broker]}"
        settings: dict[str, Setting] = {
            "broker.id": broker,
            "zookeeper.connect": self._connect,
            "zookeeper.session.timeout.ms": 6000,
            "listeners": listener,
            **replica_defaults(self.size),
            "group.initial.rebalance.delay.ms": 0,
            "controlled.shutdown.retry.backoff.ms": 200,
        }
        if self._network is not None:
            settings |= {
                "zookeeper.connect": f"127.0.0.1:{self._zookeeper_ports[broker]}{self._chroot}",
                "listeners": f"{listener},INTERNAL://127.0.0.1:{self._internal_ports[broker]}",
                "advertised.listeners": f"{listener},INTERNAL://127.0.0.1:{self._proxied_ports[broker]}",
                "listener.security.protocol.map": _LISTENERS,
                "inter.broker.listener.name": "INTERNAL",
            }
        return {**settings, **self.settings}

    def stop(self) -> None:
        """Stops the brokers cleanly, all at once, then ZooKeeper; keeps the data."""
        self._at_once(lambda broker: self.brokers[broker].stop(), self.brokers)
        if self._zookeeper is not None:
            self._zookeeper.stop()

    def close(self, *, stop: bool = True) -> None:
        """Ends all processes, with `stop` cleanly, and removes the data unless you chose the directory."""
        try:
            if stop:
                self.stop()
        finally:
            if self._view is not None:
                self._view.close()
                self._view = None
            for member in self.brokers.values():
                member.kill()
            if self._zookeeper is not None:
                self._zookeeper.kill()
            if self._network is not None:
                self._network.close()
                self._network = None
            if self._directory is not None and self._given_directory is None:
                shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _start_if_down(self, broker: int) -> None:
        member = self.brokers[broker]
        if not member.is_running:
            member.kill()  # forgets a process that has ended by itself
            member.start()

    def _at_once(self, work: Callable[[int], None], brokers: Iterable[int]) -> None:
        chosen = list(brokers)
        with ThreadPoolExecutor(len(chosen) or 1) as pool:
            done = [pool.submit(work, broker) for broker in chosen]
        for each in done:
            each.result()

    # --- what there is ------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`: all brokers."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    @property
    def directory(self) -> Path:
        if self._directory is None:
            raise RuntimeError("the cluster was not started yet, or is closed")
        return self._directory

    @property
    def zookeeper(self) -> ServerProcess:
        """The ZooKeeper process: `stop`, `start`, `kill`, `pause`, `resume`."""
        if self._zookeeper is None:
            raise RuntimeError("ZooKeeper is not part of this cluster, or the cluster was not started yet")
        return self._zookeeper

    @property
    def zookeeper_connect(self) -> str:
        """Connects to ZooKeeper directly, whatever is cut."""
        return self._connect

    @property
    def view(self) -> TreeView:
        """What ZooKeeper says, whatever is cut."""
        if self._view is None:
            raise RuntimeError("the cluster was not started yet, or is closed")
        return self._view

    @property
    def output(self) -> str:
        """The last output of every server."""
        servers: dict[str, Member | ServerProcess] = {f"broker {id_}": each for id_, each in self.brokers.items()}
        if self._zookeeper is not None:
            servers["ZooKeeper"] = self._zookeeper
        pieces = []
        for name, server in servers.items():
            state = "paused" if server.is_paused else "running" if server.is_running else "not running"
            pieces.append(f"--- {name} ({state})\n{server.output[-_SHOWN_CHARS:]}")
        return "\n".join(pieces)

    # --- faults of the network ----------------------------------------------------------------------------------------

    @property
    def network(self) -> Network:
        if self._network is None:
            raise RuntimeError("this cluster cannot cut connections; create it with network=True")
        return self._network

    def cut(self, one: int, other: int, *, one_way: bool = False, reset: bool = False) -> None:
        """Cuts two brokers off from each other; with `one_way`, nothing that `one` sends reaches `other`. Connections
        hang, or with `reset` they end."""
        self.network.cut(one, other, one_way=one_way, reset=reset)

    def cut_zookeeper(self, broker: int, *, one_way: bool = False, reset: bool = False) -> None:
        """Cuts a broker off from ZooKeeper; with `one_way`, it can hear ZooKeeper and not speak to it."""
        self.network.cut(broker, ZOOKEEPER, one_way=one_way, reset=reset)

    def isolate(self, broker: int, *, one_way: bool = False, reset: bool = False) -> None:
        """Cuts a broker off from all other brokers, not from ZooKeeper."""
        for other in self.brokers:
            if other != broker:
                self.cut(broker, other, one_way=one_way, reset=reset)

    def delay(self, one: int, other: int, delay_s: float) -> None:
        """Delays everything that two brokers send to each other."""
        self.network.delay(one, other, delay_s)
        self.network.delay(other, one, delay_s)

    def heal(self) -> None:
        """Ends all faults of the network."""
        self.network.heal()

    # --- waiting ------------------------------------------------------------------------------------------------------

    def wait_for_leader(
        self, topic: str, partition: int = 0, *, other_than: int | None = None, timeout_s: float = WAIT_S
    ) -> int:
        """The id of the partition's leader, as soon as it has one that runs (and is not `other_than`)."""

        def leader() -> int | None:
            state = self.view.partition(topic, partition)
            if state is None or state.leader == other_than or not self._runs(state.leader):
                return None
            return state.leader

        return self._wait(leader, f"no leader of {topic}-{partition}", timeout_s, lambda: self._shown(topic, partition))

    def wait_for_isr(
        self, topic: str, partition: int, brokers: Collection[int], *, timeout_s: float = WAIT_S
    ) -> PartitionLeader:
        """Waits until exactly these brokers are in sync, and one of them leads."""

        def state() -> PartitionLeader | None:
            found = self.view.partition(topic, partition)
            is_there = found is not None and set(found.isr) == set(brokers) and found.leader in brokers
            return found if is_there else None

        what = f"the ISR of {topic}-{partition} is not {sorted(brokers)}"
        return self._wait(state, what, timeout_s, lambda: self._shown(topic, partition))

    def wait_for_controller(self, *, other_than: int | None = None, timeout_s: float = WAIT_S) -> int:
        """The id of the controller, as soon as there is one that runs (and is not `other_than`)."""

        def controller() -> int | None:
            found = self.view.controller()
            return found if found is not None and found != other_than and self._runs(found) else None

        return self._wait(controller, "no controller", timeout_s, lambda: f"/controller says {self.view.controller()}")

    def wait_for_brokers(self, brokers: Collection[int] | None = None, *, timeout_s: float = WAIT_S) -> None:
        """Waits until exactly these brokers, or all, are registered."""
        wanted = set(self.brokers if brokers is None else brokers)
        self._wait(
            lambda: self.view.brokers() == wanted or None,
            f"the registered brokers are not {sorted(wanted)}",
            timeout_s,
            lambda: f"registered are {sorted(self.view.brokers())}",
        )

    def _runs(self, broker: int) -> bool:
        member = self.brokers.get(broker)
        return member is not None and member.is_running and not member.is_paused

    def _shown(self, topic: str, partition: int) -> str:
        return f"its state is {self.view.partition(topic, partition)}"

    def _wait(self, look: Callable[[], _T | None], what: str, timeout_s: float, found: Callable[[], str]) -> _T:
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                value = look()
            except TimeoutError:
                value = None  # ZooKeeper is not there
            if value is not None:
                return value
            if time.monotonic() > deadline_s:
                raise BrokerFailedError(f"{what} after {timeout_s:.0f} s: {self._explain(found)}\n{self.output}")
            time.sleep(_LOOK_AGAIN_S)

    def _explain(self, found: Callable[[], str]) -> str:
        try:
            return found()
        except TimeoutError:
            return "ZooKeeper does not answer"
