"""The disk of one broker is full: other brokers take over at once, and it returns when there is room."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ottla import Admin
from ottla.client.administer.topics import NewTopic
from support.cluster.fault_cluster import FaultCluster, fill_up
from support.cluster.traffic import numbered, read, write
from support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("cluster")

_HAND_OVER_S = 15.0
"""Far below `replica.lag.time.max.ms`."""


def test_a_full_disk(tmp_path: Path) -> None:
    cluster = FaultCluster(
        tmp_path / "cluster", small_disk_bytes=64 * 2**20, settings={"replica.lag.time.max.ms": 60_000}
    )
    try:
        if cluster.small_disk is None:
            pytest.skip("this process may not mount a file system")
        cluster.start()
        full = cluster.small_disk_broker
        others = set(cluster.brokers) - {full}
        with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
            orders = {0: [full, *others], 1: [*others, full]}
            admin.create_topics([NewTopic("orders", assignments=orders)])
            admin.create_topics([NewTopic("deleted-meanwhile", assignments={0: [full, *others]})])
            for topic, index in (("orders", 0), ("orders", 1), ("deleted-meanwhile", 0)):
                cluster.wait_for_isr(topic, index, cluster.brokers)
            write(cluster, "orders", numbered(0, 50))
            filling = fill_up(cluster.small_disk)
            began_s = time.monotonic()
            write(cluster, "orders", [bytes(100_000)] * 50)
            for index in range(2):
                cluster.wait_for_isr("orders", index, others)
            assert time.monotonic() - began_s < _HAND_OVER_S
            admin.create_topics([NewTopic("made-meanwhile", assignments={0: [*others, full]})])
            write(cluster, "made-meanwhile", numbered(0, 10))
            admin.delete_topics(["deleted-meanwhile"])
            filling.unlink()
            for topic, index in (("orders", 0), ("orders", 1), ("made-meanwhile", 0)):
                cluster.wait_for_isr(topic, index, cluster.brokers)
        wait_until(lambda: cluster.view.partition("deleted-meanwhile", 0) is None, "the deletion to be finished")
        assert len(read(cluster, "orders", 100)) == 100
        assert read(cluster, "made-meanwhile", 10) == numbered(0, 10)
        assert cluster.brokers[full].is_running
    finally:
        cluster.close(stop=False)
