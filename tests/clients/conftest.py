"""Python clients against a running broker: one for each worker of a test run, with topics of its own for each test."""

from __future__ import annotations

import gc
import re
import uuid
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from support.clients.aiokafka_client import AiokafkaClient
from support.clients.confluent_client import ConfluentClient
from support.clients.dialect import CODECS, Client
from support.clients.interposer import Interposer, running_interposer
from support.clients.kafka_python_client import KafkaPythonClient
from support.clients.ottla_client import OttlaAsyncClient, OttlaClient
from support.clients.peers import WITH_ZOOKEEPER, Peer, chosen_peer, running_peer
from support.groups.flavours import Flavour
from support.kafka_process import Ports, free_port

CLIENTS: dict[str, type[Client]] = {
    "confluent": ConfluentClient,
    "kafka-python": KafkaPythonClient,
    "aiokafka": AiokafkaClient,
    "ottla": OttlaClient,
    "ottla-asyncio": OttlaAsyncClient,
}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A broker that has no such protocol cannot be asked for it."""
    if chosen_peer() == WITH_ZOOKEEPER and isinstance(item, pytest.Function) and hasattr(item, "callspec"):
        flavours = [value for value in item.callspec.params.values() if isinstance(value, Flavour)]
        if "consumer" in [*item.callspec.id.split("-"), *(flavour.protocol for flavour in flavours)]:
            pytest.skip("Kafka with ZooKeeper has no groups of the consumer protocol")


@pytest.fixture(scope="module", autouse=True)
def _sockets_of_others() -> Iterator[None]:
    """kafka-python leaves sockets of brokers that went away to the garbage collector. It comes here, so that no test of
    another module that this worker runs is blamed for them."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@dataclass(frozen=True, slots=True)
class InterposedPeer:
    """A broker that clients reach only through the interposer, whose port it advertises."""

    broker: Peer
    interposer: Interposer

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.interposer.port}"


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with running_peer(tmp_path_factory.mktemp("broker"), {"auto.create.topics.enable": "true"}) as peer:
        yield peer


@pytest.fixture(scope="session")
def strict_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """One that creates no topic unasked."""
    with running_peer(tmp_path_factory.mktemp("strict"), {"auto.create.topics.enable": "false"}) as peer:
        yield peer


@pytest.fixture(scope="session")
def interposed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InterposedPeer]:
    listening = free_port()
    with running_interposer(listening) as interposer:
        ports = Ports(listening, interposer.port)
        settings = {"auto.create.topics.enable": "false"}
        with running_peer(tmp_path_factory.mktemp("interposed"), settings, ports) as peer:
            yield InterposedPeer(peer, interposer)


@pytest.fixture(params=CLIENTS)
def client_type(request: pytest.FixtureRequest) -> type[Client]:
    """Each of the clients in turn."""
    return CLIENTS[request.param]


@pytest.fixture
def client(client_type: type[Client], broker: Peer) -> Client:
    return client_type(broker.bootstrap)


@pytest.fixture(params=CODECS)
def codec(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses, and that says where it comes from."""
    origin = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)
    return f"{origin[:80]}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def confluent(broker: Peer) -> ConfluentClient:
    return ConfluentClient(broker.bootstrap)


@pytest.fixture
def kafka_python(broker: Peer) -> KafkaPythonClient:
    return KafkaPythonClient(broker.bootstrap)
