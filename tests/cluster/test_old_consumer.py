"""Consumers with group.protocol=zookeeper on three brokers: they use the cluster's own ZooKeeper."""

from __future__ import annotations

import uuid

from ottla.client.administer import AsyncAdmin, NewTopic
from ottla.testing.cluster import Cluster
from support.groups.zookeeper_members import Site, members, run, send, shares, until


def test_a_group_goes_on_when_a_broker_is_killed(cluster: Cluster) -> None:
    site = Site(cluster.bootstrap, cluster.zookeeper_connect)
    topic = f"topic-{uuid.uuid4().hex[:8]}"

    async def scenario() -> None:
        async with AsyncAdmin(bootstrap_servers=site.bootstrap) as admin:
            await admin.create_topics([NewTopic(topic, 3, 3)])
        async with members(site, f"group-{topic}", topic, 2) as pair:
            await until(lambda: shares(pair) == [[0, 1], [2]])
            await send(site, topic, {index: [b"a%d" % index] for index in range(3)})
            await until(lambda: len(pair[0].values) + len(pair[1].values) == 3)
            killed = cluster.wait_for_leader(topic, 0)
            cluster.brokers[killed].kill()
            try:
                await send(site, topic, {index: [b"b%d" % index] for index in range(3)})
                await until(lambda: len({*pair[0].values, *pair[1].values}) == 6)
                assert shares(pair) == [[0, 1], [2]]
                assert [what for member in pair for what, _ in member.told if what == "lost"] == []
                assert pair[0].failures + pair[1].failures == []
            finally:
                cluster.brokers[killed].start()

    run(scenario)
