"""Brokers with a listener for clients, one between brokers, and one for the controller's requests only."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import pytest

from ottla import Admin
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import parse_uuid
from ottla.broker.links.broker_peer import BrokerPeer
from ottla.net.client_connection import Address, ConnectionOptions
from ottla.testing.broker import Setting
from ottla.testing.cluster import Cluster
from ottla.testing.server_process import unused_port
from ottla.wire.messages.fetch import FetchPartition, FetchReplicaState, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from ottla.wire.schema import Request, Response
from support.cluster.traffic import new_topic, numbered, read, write

R = TypeVar("R", bound=Response)

pytestmark = pytest.mark.xdist_group("cluster")


class ThreeListeners(Cluster):
    """Ports by broker: of the listener between brokers, and of the control plane."""

    def __init__(self) -> None:
        super().__init__(3)
        self.other_ports = {broker: (unused_port(), unused_port()) for broker in range(1, 4)}

    def broker_settings(self, broker: int) -> dict[str, Setting]:
        settings = super().broker_settings(broker)
        between, control = self.other_ports[broker]
        return {
            **settings,
            "listeners": f"{settings['listeners']},BETWEEN://127.0.0.1:{between},CONTROL://127.0.0.1:{control}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BETWEEN:PLAINTEXT,CONTROL:PLAINTEXT",
            "inter.broker.listener.name": "BETWEEN",
            "control.plane.listener.name": "CONTROL",
        }


def forged(port: int, request: Request, response: type[R]) -> R:
    async def ask() -> R:
        peer = BrokerPeer("a broker", lambda: Address("127.0.0.1", port), ConnectionOptions(client_id="forger"))
        try:
            return await peer.send(request, response, timeout_s=30)
        finally:
            peer.close()

    return asyncio.run(ask())


def error_of_forged_request(port: int) -> ErrorCode:
    request = LeaderAndIsrRequest(controller_id=1, controller_epoch=1, broker_epoch=2**60)
    return ErrorCode.of(forged(port, request, LeaderAndIsrResponse).error_code)


def error_of_forged_fetch(port: int, topic: str, follower: int) -> ErrorCode:
    """As if the follower had everything, which would commit records that it does not have."""
    with Admin(bootstrap_servers=f"127.0.0.1:{port}") as admin:
        topic_id = parse_uuid(admin.describe_topics([topic])[topic].topic_id or "")
    partition = FetchPartition(partition=0, fetch_offset=20, partition_max_bytes=1)
    request = FetchRequest(
        replica_state=FetchReplicaState(replica_id=follower, replica_epoch=-1),
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        topics=[FetchTopic(topic_id=topic_id, partitions=[partition])],
    )
    answer = forged(port, request, FetchResponse)
    return ErrorCode.of(answer.error_code or answer.responses[0].partitions[0].error_code)


def test_the_control_plane_has_a_listener_of_its_own() -> None:
    with ThreeListeners() as cluster:
        topic = new_topic(cluster)
        write(cluster, topic, numbered(0, 10))
        controller = cluster.wait_for_controller()
        cluster.brokers[controller].kill()
        write(cluster, topic, numbered(10, 20))
        cluster.brokers[controller].start()
        cluster.wait_for_isr(topic, 0, cluster.brokers)
        assert read(cluster, topic, 20) == numbered(0, 20)
        other = next(each for each in cluster.brokers if each != controller)
        between, control = cluster.other_ports[other]
        for_clients = int(cluster.brokers[other].bootstrap.rpartition(":")[2])
        leader = cluster.wait_for_leader(topic)
        follower = next(each for each in cluster.brokers if each != leader)
        for_clients_of_leader = int(cluster.brokers[leader].bootstrap.rpartition(":")[2])
        forged_fetch = error_of_forged_fetch(for_clients_of_leader, topic, follower)
        assert forged_fetch is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert error_of_forged_fetch(cluster.other_ports[leader][0], topic, follower) is ErrorCode.NONE
        assert error_of_forged_request(for_clients) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert error_of_forged_request(between) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert error_of_forged_request(control) is ErrorCode.STALE_CONTROLLER_EPOCH
