"""Brokers of Apache Kafka 3.9.1 and Apache ZooKeeper as members of a test cluster, beside Ottla's."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ottla.testing.broker import Setting, settings_text
from ottla.testing.cluster import Cluster, Member
from ottla.testing.connection_owner import member_mark
from ottla.testing.server_process import BrokerFailedError, ServerProcess
from ottla.testing.zookeeper_server import ZooKeeperServer
from support.kafka_process import ZOOKEEPER, java_command

OTTLA = "ottla"
KAFKA = "kafka"
_VERSION = "3.9.1"
_START_TIMEOUT_S = 120.0
_STOPPED_BY_SIGTERM = 143
_HEAP_MB = 384

_SMALL = {
    "num.network.threads": "2",
    "num.io.threads": "4",
    "num.recovery.threads.per.data.dir": "2",
    "log.cleaner.dedupe.buffer.size": str(16 * 2**20),
}
_LOGGING = {
    "log4j.rootLogger": "WARN, out",
    "log4j.logger.kafka.controller": "INFO",
    "log4j.logger.kafka.cluster": "INFO",
    "log4j.logger.kafka.server.ReplicaManager": "INFO",
    "log4j.logger.state.change.logger": "WARN",
    "log4j.appender.out": "org.apache.log4j.ConsoleAppender",
    "log4j.appender.out.layout": "org.apache.log4j.PatternLayout",
    "log4j.appender.out.layout.ConversionPattern": "%d{HH:mm:ss,SSS} %p %c{1}: %m%n",
}


def _properties(file: Path, settings: Mapping[str, str]) -> Path:
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    return file


class KafkaBroker(ServerProcess):
    """A broker of Apache Kafka 3.9.1, with the directories of Ottla's `Broker`, so that one can replace the other."""

    _name = "Kafka's broker"

    def __init__(
        self, settings: Mapping[str, Setting], *, directory: Path, port: int, marks: Mapping[str, str]
    ) -> None:
        super().__init__()
        self.directory = directory
        self.port = port
        self._settings = settings_text(settings)
        self._marks = marks

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        logs = str(self.directory / "data" / "logs")
        own = {name: value for name, value in self._settings.items() if not name.startswith("ottla.")}
        config = _properties(self.directory / "server.properties", {**_SMALL, "log.dirs": logs, **own})
        logging = _properties(self.directory / "log4j.properties", _LOGGING)
        command = java_command(_VERSION, "kafka.Kafka", str(config), logging=logging, heap_mb=_HEAP_MB)
        self._spawn(command, self.directory / "output.log", self._marks)
        try:
            _wait_for_port(self, self.port)
        except BaseException:
            self.kill()
            raise

    def _is_clean(self, code: int) -> bool:
        return code in (0, _STOPPED_BY_SIGTERM)

    @property
    def output(self) -> str:
        path = self.directory / "output.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


class ApacheZooKeeper(ZooKeeperServer):
    """A standalone Apache ZooKeeper 3.8, as it comes with Kafka."""

    def _command(self) -> list[str]:
        config = _properties(
            self.directory / "zookeeper.properties",
            {
                "dataDir": str(self.directory / "data"),
                "clientPort": str(self.port),
                "clientPortAddress": "127.0.0.1",
                "admin.enableServer": "false",
                "maxClientCnxns": "0",
                "tickTime": str(self._tick_ms),
                "4lw.commands.whitelist": "srvr",
                **self._more(),
            },
        )
        return java_command(_VERSION, ZOOKEEPER, str(config), heap_mb=_HEAP_MB)

    def _more(self) -> dict[str, str]:
        """Settings beside those of a server that is alone."""
        return {}

    def _is_clean(self, code: int) -> bool:
        return code in (0, _STOPPED_BY_SIGTERM)


def _wait_for_port(server: KafkaBroker, port: int) -> None:
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while True:
        if not server.is_running:
            raise BrokerFailedError(f"Kafka's broker ended while starting:\n{server.output[-4000:]}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if time.monotonic() > deadline_s:
            raise BrokerFailedError(
                f"Kafka's broker did not start in {_START_TIMEOUT_S:.0f} s:\n{server.output[-4000:]}"
            )
        time.sleep(0.1)


class MixedCluster(Cluster):
    """`kinds` are the makes of the brokers, in the order of their ids; `zookeeper` can be "apache" as well."""

    def __init__(
        self,
        kinds: Sequence[str] = (OTTLA, OTTLA, OTTLA),
        *,
        zookeeper: str = "embedded",
        settings: Mapping[str, Setting] | None = None,
        network: bool = False,
        directory: Path | None = None,
    ) -> None:
        super().__init__(len(kinds), zookeeper=zookeeper, settings=settings, network=network, directory=directory)
        for kind in kinds:
            _check_kind(kind)
        self._kinds = dict(enumerate(kinds, start=1))

    def kind(self, broker: int) -> str:
        return self._kinds[broker]

    def replace(self, broker: int, kind: str) -> None:
        """Puts a broker of that make in the place of a stopped one: same id, ports, settings and data. Not started."""
        if self.brokers[broker].is_running:
            raise RuntimeError(f"broker {broker} runs; stop it before you replace it")
        _check_kind(kind)
        self._kinds[broker] = kind
        self.brokers[broker] = self._new_member(broker)

    def _new_zookeeper(self, kind: str, directory: Path) -> ZooKeeperServer:
        return ApacheZooKeeper(directory) if kind == "apache" else super()._new_zookeeper(kind, directory)

    def _new_member(self, broker: int) -> Member:
        if self._kinds[broker] == OTTLA:
            return super()._new_member(broker)
        return KafkaBroker(
            self.broker_settings(broker),
            directory=self.directory / f"broker-{broker}",
            port=self._ports[broker],
            marks=member_mark(self._name, broker),
        )


def _check_kind(kind: str) -> None:
    if kind not in (OTTLA, KAFKA):
        raise ValueError(f"a member is {OTTLA!r} or {KAFKA!r}, not {kind!r}")
