"""Captures request and response frames between real clients and brokers, and between brokers.

Three conversations are listened to: clients with a 4.3.1 broker, clients with a 3.9.1 broker in ZooKeeper mode, and two
3.9.1 brokers with each other, once for each protocol version that an upgrade passes through. In the first two, what
clients asked is asked again in all other versions by Kafka's own message classes.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import socket
import subprocess
import tempfile
import time
import zipfile
from pathlib import Path

from golden.conversations import aiokafka_client, attempt, create_topic, kafka_python, librdkafka, replicate, say
from golden.proxy import Exchange, Recording, running_loop, start_proxy
from kafka_artifacts import jar
from support.kafka_process import (
    JAVA_SOURCES,
    Broker,
    Ports,
    free_port,
    java_command,
    kraft_broker,
    stop,
    zookeeper,
    zookeeper_mode_broker,
)

TARGET = Path(__file__).resolve().parent / "frames"
SMALL_BYTES = 1024
MAX_BYTES = 4096
AGAIN = "in another version by Kafka's message classes"
TEMPORARY_PREFIX = "ottla-golden-"
SASL_USER = "golden"
SETTLING_S = 5
SEEDS = 4
"""How many different requests of an API and version are asked again."""

INTER_BROKER_VERSIONS = (
    *(
        "0.8.2",
        "0.9.0",
        "0.10.0",
        "0.10.2",
        "0.11.0",
        "1.0",
        "1.1",
        "2.0",
        "2.1",
        "2.2",
        "2.3",
        "2.4-IV0",
        "2.4",
        "2.6",
    ),
    *("2.7", "2.8", "3.0", "3.2", "3.4", "3.6", "3.9"),
)
KAFKA_PYTHON_VERSIONS = ((0, 8, 0), (0, 8, 2), (0, 9), (0, 10, 0), (0, 10, 2), (0, 11), (1, 0), (1, 1), (2, 0), (2, 3))

# Asked again, these would change the cluster behind the broker's back.
NOT_ASKED_AGAIN = frozenset({"LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown"})
# KRaft's own conversation, which Ottla does not speak.
LEFT_OUT = frozenset(
    {
        *("BrokerRegistration", "BrokerHeartbeat", "ControllerRegistration", "AssignReplicasToDirs", "DescribeQuorum"),
        *("Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "FetchSnapshot", "UnregisterBroker", "UpdateRaftVoter"),
    }
)


def main() -> None:
    recording = Recording()
    names = _api_names()
    with tempfile.TemporaryDirectory(prefix=TEMPORARY_PREFIX) as directory, running_loop() as loop:
        place = Path(directory)
        _clients_and_kraft(place / "kraft", loop, recording, names)
        _clients_and_zookeeper_mode(place / "zookeeper-mode", loop, recording, names)
        for version in INTER_BROKER_VERSIONS:
            attempt(f"brokers that speak {version}", _two_brokers, place / version, loop, recording, names, version)
    _keep(recording.exchanges, names)


def _clients_and_kraft(
    place: Path, loop: asyncio.AbstractEventLoop, recording: Recording, names: dict[int, str]
) -> None:
    ports = _proxied(loop, recording)
    controller_ports = _proxied(loop, recording)
    settings = {
        "unstable.api.versions.enable": "true",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    recording.source = "Kafka 4.3.1 with itself"
    broker = kraft_broker(place, settings, ports, controller_ports)
    first = len(recording.exchanges)
    try:
        for version in ("4.3.1", "3.9.1"):
            recording.source = f"Java {version} with Kafka 4.3.1"
            _converse(version, broker.address, f"java-{version}", "classic,consumer")
        recording.source = "librdkafka with Kafka 4.3.1"
        for protocol in ("classic", "consumer"):
            attempt(recording.source, librdkafka, broker.address, f"librdkafka.{protocol}", protocol)
        _python_clients(broker.address, recording, "Kafka 4.3.1", (None,))
        recording.source = f"Kafka 4.3.1, asked {AGAIN}"
        _ask_again("4.3.1", ports.advertised, recording.exchanges[first:], names)
    finally:
        stop(broker.process)


def _clients_and_zookeeper_mode(
    place: Path, loop: asyncio.AbstractEventLoop, recording: Recording, names: dict[int, str]
) -> None:
    ports = _proxied(loop, recording)
    sasl_ports = _proxied(loop, recording)
    plain = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{SASL_USER}="{SASL_USER}";'
    settings = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{SASL_USER}",
        "listeners": f"PLAINTEXT://127.0.0.1:{ports.listening},SASL_PLAINTEXT://127.0.0.1:{sasl_ports.listening}",
        "advertised.listeners": (
            f"PLAINTEXT://127.0.0.1:{ports.advertised},SASL_PLAINTEXT://127.0.0.1:{sasl_ports.advertised}"
        ),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain,
        "delegation.token.secret.key": SASL_USER,
    }
    with zookeeper(place / "zookeeper") as address:
        recording.source = "Kafka 3.9.1 with itself"
        broker = zookeeper_mode_broker(place / "broker", address, 1, settings, ports)
        first = len(recording.exchanges)
        try:
            recording.source = "Java 3.9.1 with Kafka 3.9.1"
            _converse("3.9.1", broker.address, "java", "classic")
            _converse("3.9.1", f"127.0.0.1:{sasl_ports.advertised}", "java", "", SASL_USER)
            recording.source = "librdkafka with Kafka 3.9.1"
            attempt(recording.source, librdkafka, broker.address, "librdkafka")
            _python_clients(broker.address, recording, "Kafka 3.9.1", (None, *KAFKA_PYTHON_VERSIONS))
            recording.source = f"Kafka 3.9.1, asked {AGAIN}"
            _ask_again("3.9.1", ports.advertised, recording.exchanges[first:], names)
        finally:
            stop(broker.process)


def _python_clients(
    address: str, recording: Recording, broker: str, versions: tuple[tuple[int, ...] | None, ...]
) -> None:
    recording.source = f"aiokafka with {broker}"
    create_topic(address, "aiokafka")
    attempt(recording.source, aiokafka_client, address, "aiokafka")
    for version in versions:
        spoken = "" if version is None else ".".join(map(str, version))
        recording.source = f"kafka-python {spoken} with {broker}"
        topic = f"kafka-python{spoken}"
        create_topic(address, topic)
        attempt(recording.source, kafka_python, address, topic, version)


def _two_brokers(
    place: Path, loop: asyncio.AbstractEventLoop, recording: Recording, names: dict[int, str], version: str
) -> None:
    first = len(recording.exchanges)
    recording.source = f"two brokers of Kafka 3.9.1 that speak {version}"
    say(recording.source)
    settings = {"inter.broker.protocol.version": version, "controlled.shutdown.max.retries": "1"}
    if version.startswith("0."):
        settings["log.message.format.version"] = version
    ports = [_proxied(loop, recording) for _ in range(2)]
    with zookeeper(place / "zookeeper") as address:
        brokers: list[Broker] = []
        try:
            brokers += [zookeeper_mode_broker(place / "broker-1", address, 1, settings, ports[0])]
            brokers += [zookeeper_mode_broker(place / "broker-2", address, 2, settings, ports[1])]
            replicate(brokers[0].address, "replicated")
            # The second leaves and comes back: a controlled shutdown, new leaders, and a way back into sync.
            stop(brokers[1].process)
            brokers[1] = zookeeper_mode_broker(place / "broker-2", address, 2, settings, ports[1])
            time.sleep(SETTLING_S)
            if version == INTER_BROKER_VERSIONS[-1]:
                heard = recording.exchanges[first:]
                recording.source = f"Kafka 3.9.1, asked {AGAIN}"
                _ask_again("3.9.1", ports[0].advertised, heard, names)
        finally:
            for broker in reversed(brokers):
                stop(broker.process)


def _proxied(loop: asyncio.AbstractEventLoop, recording: Recording) -> Ports:
    listening = free_port()
    return Ports(listening, start_proxy(loop, recording, listening).port)


def _converse(version: str, *arguments: str) -> None:
    command = java_command(version, str(JAVA_SOURCES / "Converse.java"), *arguments)
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"Converse.java on Kafka {version} failed:\n{result.stderr}")
    say(f"Java {version}: {' '.join(arguments)}\n{result.stdout}")


def _ask_again(version: str, port: int, exchanges: list[Exchange], names: dict[int, str]) -> None:
    wanted = [exchange for exchange in exchanges if names[exchange.api_key] not in NOT_ASKED_AGAIN | LEFT_OUT]
    seeds = []
    for _ in range(SEEDS):
        chosen = _choice(wanted).values()
        seeds += [exchange.request for exchange in chosen]
        # Requests of the same length differ in little more than their correlation ids.
        said = {(exchange.api_key, exchange.version, len(exchange.request)) for exchange in chosen}
        wanted = [each for each in wanted if (each.api_key, each.version, len(each.request)) not in said]
    command = java_command(version, str(JAVA_SOURCES / "Reversion.java"), str(port))
    lines = "".join(base64.b64encode(seed).decode() + "\n" for seed in seeds)
    result = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"Reversion.java on Kafka {version} failed:\n{result.stderr}")
    say(f"{len(seeds)} requests asked again of Kafka {version}: {result.stdout.strip()}")


def _choice(exchanges: list[Exchange]) -> dict[tuple[int, int], Exchange]:
    """One exchange for each API and version: rather a client's own, rather one that says much, but a small one."""
    host_name = socket.gethostname().encode()

    def worth(exchange: Exchange) -> tuple[bool, bool, int]:
        sizes = (len(exchange.request), len(exchange.response))
        small = max(sizes) <= SMALL_BYTES
        return small, AGAIN not in exchange.source, sum(sizes) if small else -sum(sizes)

    best: dict[tuple[int, int], Exchange] = {}
    for exchange in exchanges:
        both = exchange.request + exchange.response
        tells_where = TEMPORARY_PREFIX.encode() in both or host_name in both
        if tells_where or max(len(exchange.request), len(exchange.response)) > MAX_BYTES:
            continue
        known = best.get((exchange.api_key, exchange.version))
        if known is None or worth(exchange) > worth(known):
            best[exchange.api_key, exchange.version] = exchange
    return best


def _keep(exchanges: list[Exchange], names: dict[int, str]) -> None:
    TARGET.mkdir(exist_ok=True)
    for old in TARGET.glob("*.bin"):
        old.unlink()
    manifest = []
    total = 0
    for (api_key, version), exchange in sorted(_choice(exchanges).items()):
        if names[api_key] in LEFT_OUT:
            continue
        snake = re.sub(r"(?<!^)(?=[A-Z])", "_", names[api_key]).lower()
        stem = f"{snake}.v{version}"
        (TARGET / f"{stem}.request.bin").write_bytes(exchange.request)
        (TARGET / f"{stem}.response.bin").write_bytes(exchange.response)
        total += len(exchange.request) + len(exchange.response)
        manifest.append({"exchange": stem, "api_key": api_key, "version": version, "heard": exchange.source})
    (TARGET / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    say(f"{len(manifest)} exchanges, {total} bytes in {TARGET}")


def _api_names() -> dict[int, str]:
    """API names by key, from Kafka's own definitions of both versions."""
    names = {}
    for version in ("3.9.1", "4.3.1"):
        with zipfile.ZipFile(jar(version, "kafka-clients")) as archive:
            for entry in archive.namelist():
                if entry.startswith("common/message/") and entry.endswith("Request.json"):
                    text = archive.read(entry).decode()
                    name = re.search(r'"name":\s*"(\w+)Request"', text)
                    key = re.search(r'"apiKey":\s*(\d+)', text)
                    if name and key:
                        names[int(key[1])] = name[1]
    return names


if __name__ == "__main__":
    main()
