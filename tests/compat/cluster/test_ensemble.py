"""Three brokers on an ensemble of three Apache ZooKeeper servers, below a chroot. The server that leads the ensemble is
killed while records are produced: no broker loses its session, and topics can be created again."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ottla import Admin, Producer
from ottla.base.coordination import ConnectionLossError
from ottla.client.administer import NewTopic
from ottla.client.produce import Delivery
from ottla.testing.cluster import Cluster
from ottla.zookeeper import paths
from support.cluster.apache_ensemble import ApacheEnsemble
from support.waiting import wait_until

BROKERS = {1, 2, 3}
SESSION_MS = 10_000
DELIVERY_S = 60

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300), pytest.mark.xdist_group("java tools on a cluster")]


def test_the_server_that_leads_the_ensemble_dies(tmp_path: Path) -> None:
    settings = {"zookeeper.session.timeout.ms": SESSION_MS}
    with ApacheEnsemble(tmp_path / "zookeeper") as ensemble:
        connect = f"{ensemble.connect}/kafka/test"
        with (
            Cluster(3, zookeeper=connect, settings=settings, directory=tmp_path / "brokers") as cluster,
            Admin({"bootstrap.servers": cluster.bootstrap}) as admin,
            Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"}) as producer,
        ):
            admin.create_topics([NewTopic("orders", 1, 3)])
            cluster.wait_for_isr("orders", 0, BROKERS)
            registered = registrations(cluster)
            state = cluster.view.partition("orders", 0)
            killed = ensemble.leader
            assert killed is not None
            done = threading.Event()
            sent: list[Delivery] = []

            def produce() -> None:
                while not done.wait(0.02):
                    sent.append(producer.send("orders", b"%d" % len(sent), partition=0))

            producing = threading.Thread(target=produce)
            producing.start()
            try:
                ensemble.servers[killed].kill()
                wait_until(lambda: ensemble.leader not in (None, killed), "another server to lead the ensemble")
                wait_until(lambda: registrations(cluster) == registered, "the brokers to be registered as before")
                admin.create_topics([NewTopic("later", 3, 3)])
                for partition in range(3):
                    cluster.wait_for_isr("later", partition, BROKERS)
            finally:
                done.set()
                producing.join()
            offsets = [each.result(DELIVERY_S).offset for each in sent]
            assert offsets == list(range(len(sent)))
            assert registrations(cluster) == registered, "a broker lost its session"
            assert cluster.view.partition("orders", 0) == state, "leadership or ISR changed"
            ensemble.servers[killed].start()
            wait_until(lambda: ensemble.servers[killed].mode == "follower", "the killed server to follow")
            assert {broker.is_running for broker in cluster.brokers.values()} == {True}


def registrations(cluster: Cluster) -> dict[int, int]:
    """The transaction that registered each broker. Empty while ZooKeeper cannot be asked."""
    try:
        nodes = {each: cluster.view.ask(lambda tree, each=each: tree.get(paths.broker(each))) for each in BROKERS}  # type: ignore[misc]
    except (TimeoutError, ConnectionLossError):
        return {}
    return {each: node.created_zxid for each, node in nodes.items() if node is not None}
