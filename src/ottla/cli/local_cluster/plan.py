"""Plans a local cluster: which process gets which id, port, directory and configs. No I/O except `write`.

    <directory>/zookeeper/                  the tree of the embedded ZooKeeper
    <directory>/zookeeper.log               its output
    <directory>/broker-1/                   the data of broker 1
    <directory>/broker-1.properties         its config; `ottla start broker-1.properties` starts it alone
    <directory>/broker-1.log                its output

Everything is written again at each start, except the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.base.config import ConfigError
from ottla.broker.configs.broker_config import BrokerConfig, config_of
from ottla.broker.configs.cluster_settings import replica_defaults
from ottla.broker.configs.config_warnings import warnings_of
from ottla.broker.configs.listeners import Listener
from ottla.broker.configs.properties import properties_text
from ottla.broker.configs.sources import Setting
from ottla.cli.session import CommandError

MAX_BROKERS: Final = 100
DEFAULT_DIRECTORY: Final = Path("ottla-cluster")
_DEFAULT_PORT: Final = 9092
_ZOOKEEPER_HOST: Final = "127.0.0.1"

_IDS: Final = "brokers get the ids 1 to N"
_LISTENERS: Final = "each broker gets its own listener; use --host and --port"
_ZOOKEEPER: Final = "the cluster runs its own ZooKeeper"
_DIRECTORIES: Final = "each broker gets its own directory; use --data-dir"
_CONTRADICTIONS: Final[Mapping[str, str]] = {
    "broker.id": _IDS,
    "node.id": _IDS,
    "listeners": _LISTENERS,
    "advertised.listeners": _LISTENERS,
    "zookeeper.connect": _ZOOKEEPER,
    "ottla.zookeeper.host": _ZOOKEEPER,
    "ottla.zookeeper.port": _ZOOKEEPER,
    "ottla.tree.file": _ZOOKEEPER,
    "process.roles": _ZOOKEEPER,
    "controller.quorum.voters": _ZOOKEEPER,
    "log.dirs": _DIRECTORIES,
    "log.dir": _DIRECTORIES,
    "ottla.data.dir": _DIRECTORIES,
}
_CLUSTER_DEFAULTS: Final[Mapping[str, str]] = {
    # A broker that is killed or paused is replaced soon, and stopping the whole cluster takes no half minute: the last
    # broker finds no other to take its leaders.
    "zookeeper.session.timeout.ms": "6000",
    "controlled.shutdown.retry.backoff.ms": "500",
}
_HEADER: Final = """\
# Written by `ottla start --brokers` at each start; changes are lost. To change a config of all brokers, use --override
# or a config file with `ottla start --brokers`.
"""


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """One process of the cluster."""

    name: str
    """For people: `ZooKeeper`, `broker 1`."""
    broker_id: int | None
    """None for ZooKeeper."""
    bind: tuple[str, int]
    """Where it listens; port 0 picks a free one."""
    address: str
    """What clients connect to, `host:port`."""
    arguments: tuple[str, ...]
    """Of `ottla`."""
    log_file: Path


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """All processes, and the files that they need."""

    directory: Path
    zookeeper: ProcessPlan
    brokers: tuple[ProcessPlan, ...]
    files: Mapping[Path, str]
    warnings: tuple[str, ...]
    """About configs of all brokers."""

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def write(self) -> None:
        """Creates the directory and the config files."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for path, text in self.files.items():
            path.write_text(text, "utf-8")

    def left_out(self) -> list[int]:
        """Brokers that have data here and are not part of the plan: earlier there were more."""
        here = {int(path.name.removeprefix("broker-")) for path in _broker_directories(self.directory)}
        return sorted(here - {broker.broker_id for broker in self.brokers if broker.broker_id is not None})


def plan_cluster(
    size: int,
    directory: Path,
    given: Mapping[str, Setting],
    *,
    host: str | None = None,
    port: int | None = None,
    zookeeper_port: int = 2181,
) -> ClusterPlan:
    """`given` are the configs for all brokers. Raises `ConfigError` for one that contradicts the plan or is wrong, and
    `CommandError` for ports that do not exist."""
    directory = directory.absolute()
    refuse_contradictions(given)
    first_port = _DEFAULT_PORT if port is None else port
    if first_port and first_port + size - 1 > 65535:
        raise CommandError(f"{size} brokers from port {first_port} on need ports above 65535; choose a lower --port")
    brokers = []
    files = {}
    warnings: tuple[str, ...] = ()
    for broker_id in range(1, size + 1):
        listener = Listener("PLAINTEXT", "PLAINTEXT", (host or "127.0.0.1").strip("[]"), 0)
        if first_port:
            listener = Listener("PLAINTEXT", "PLAINTEXT", listener.host, first_port + broker_id - 1)
        settings = _settings(size, broker_id, listener, directory / f"broker-{broker_id}", zookeeper_port, given)
        config = _checked(settings, given)
        file = directory / f"broker-{broker_id}.properties"
        warnings = warnings or tuple(warnings_of(config))  # those of the others differ by the port only
        files[file] = _HEADER + properties_text(settings)
        brokers.append(
            ProcessPlan(
                name=f"broker {broker_id}",
                broker_id=broker_id,
                bind=(listener.host, listener.port),
                address=_address(config.advertised_listeners[0]),
                arguments=("start", str(file)),
                log_file=directory / f"broker-{broker_id}.log",
            )
        )
    zookeeper = plan_zookeeper(directory, zookeeper_port)
    return ClusterPlan(directory, zookeeper, tuple(brokers), files, warnings)


def plan_zookeeper(directory: Path, port: int) -> ProcessPlan:
    address = f"{_ZOOKEEPER_HOST}:{port}"
    return ProcessPlan(
        name="ZooKeeper",
        broker_id=None,
        bind=(_ZOOKEEPER_HOST, port),
        address=address,
        arguments=("zookeeper", "--listen", address, "--data", str(directory / "zookeeper")),
        log_file=directory / "zookeeper.log",
    )


def refuse_contradictions(given: Mapping[str, Setting]) -> None:
    for key, reason in _CONTRADICTIONS.items():
        if key in given:
            raise ConfigError(key, f"it cannot be set together with --brokers: {reason} (from {given[key].origin})")


def refuse_other_data(directory: Path) -> None:
    """Raises if the directory is that of a broker that is alone."""
    if (directory / "zookeeper.db").exists() or (directory / "logs" / "meta.properties").exists():
        raise CommandError(
            f"{directory} has the data of a single broker. Start it without --brokers, or choose another directory "
            "with --data-dir."
        )


def is_cluster(directory: Path) -> bool:
    """Whether a local cluster was started in the directory."""
    return (directory / "zookeeper").is_dir() and bool(_broker_directories(directory))


def _broker_directories(directory: Path) -> list[Path]:
    return [path for path in directory.glob("broker-*") if path.is_dir() and path.name[7:].isdecimal()]


def _settings(
    size: int,
    broker_id: int,
    listener: Listener,
    directory: Path,
    zookeeper_port: int,
    given: Mapping[str, Setting],
) -> dict[str, str]:
    settings = {
        "broker.id": str(broker_id),
        "listeners": str(listener),
        "zookeeper.connect": f"{_ZOOKEEPER_HOST}:{zookeeper_port}",
        "ottla.data.dir": str(directory),
        "log.dirs": str(directory / "logs"),
        **{key: str(value) for key, value in replica_defaults(size).items()},
        **_CLUSTER_DEFAULTS,
        **{key: setting.text for key, setting in given.items()},
    }
    metrics_port = settings.get("ottla.metrics.port", "")
    if metrics_port.isdecimal() and int(metrics_port):
        settings["ottla.metrics.port"] = str(int(metrics_port) + broker_id - 1)
    return settings


def _checked(settings: Mapping[str, str], given: Mapping[str, Setting]) -> BrokerConfig:
    return config_of({key: given.get(key, Setting(key, text, "--brokers")) for key, text in settings.items()})


def _address(listener: Listener) -> str:
    return f"{f'[{listener.host}]' if ':' in listener.host else listener.host}:{listener.port}"
