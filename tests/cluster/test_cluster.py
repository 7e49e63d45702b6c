"""Three real brokers on the embedded ZooKeeper: what is acknowledged survives the loss of any one of them."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import closing
from pathlib import Path

import aiokafka
import confluent_kafka
import pytest

from ottla import Admin, Producer
from ottla.client.administer.topics import NewPartitions, NewTopic
from ottla.testing.cluster import Cluster
from support.cluster.traffic import DELIVERY_S, new_topic, numbered, read, write
from support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("cluster")

BROKERS = {1, 2, 3}


def test_records_reach_all_replicas(cluster: Cluster, topic: str) -> None:
    write(cluster, topic, numbered(0, 100))
    assert read(cluster, topic, 100) == numbered(0, 100)
    logs = [cluster.brokers[each].directory.rglob(f"{topic}-0/*.log") for each in BROKERS]
    sizes = [sum(file.stat().st_size for file in files) for files in logs]
    assert sizes[0] > 0
    assert len(set(sizes)) == 1


def test_confluent_kafka(cluster: Cluster, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for value in numbered(0, 50):
        producer.produce(topic, value)
    assert producer.flush(DELIVERY_S) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    with closing(consumer):
        consumer.subscribe([topic])
        found: list[object] = []
        while len(found) < 50:
            message = consumer.poll(DELIVERY_S)
            assert message is not None
            assert message.error() is None
            found.append(message.value())
    assert found == numbered(0, 50)


def test_aiokafka(cluster: Cluster, topic: str) -> None:
    async def work() -> list[bytes | None]:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap, acks="all", enable_idempotence=True
        ) as producer:
            for value in numbered(0, 50):
                await producer.send_and_wait(topic, value)
        async with aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=cluster.bootstrap, group_id=topic, auto_offset_reset="earliest"
        ) as consumer:
            return [(await consumer.getone()).value for _ in range(50)]

    assert asyncio.run(asyncio.wait_for(work(), DELIVERY_S)) == numbered(0, 50)


def test_a_killed_leader_is_replaced_and_returns(cluster: Cluster, topic: str) -> None:
    write(cluster, topic, numbered(0, 50))
    leader = cluster.wait_for_leader(topic)
    cluster.brokers[leader].kill()
    write(cluster, topic, numbered(50, 100))
    new_leader = cluster.wait_for_leader(topic, other_than=leader)
    cluster.brokers[leader].start()
    state = cluster.wait_for_isr(topic, 0, BROKERS)
    assert state.leader == new_leader
    write(cluster, topic, numbered(100, 150))
    assert read(cluster, topic, 150) == numbered(0, 150)


def test_a_killed_follower_does_not_stop_producers(cluster: Cluster, topic: str) -> None:
    follower = next(each for each in BROKERS if each != cluster.wait_for_leader(topic))
    cluster.brokers[follower].kill()
    write(cluster, topic, numbered(0, 50))
    cluster.brokers[follower].start()
    cluster.wait_for_isr(topic, 0, BROKERS)
    assert read(cluster, topic, 50) == numbered(0, 50)


def test_a_killed_controller_is_replaced(cluster: Cluster, topic: str) -> None:
    controller = cluster.wait_for_controller()
    cluster.brokers[controller].kill()
    cluster.wait_for_controller(other_than=controller)
    write(cluster, topic, numbered(0, 50))
    cluster.brokers[controller].start()
    cluster.wait_for_isr(topic, 0, BROKERS)
    other = new_topic(cluster, partitions=3)
    write(cluster, other, numbered(0, 50))
    assert read(cluster, topic, 50) == numbered(0, 50)


def test_a_group_survives_its_coordinator(cluster: Cluster, topic: str) -> None:
    group = f"g-{topic}"
    write(cluster, topic, numbered(0, 20))
    assert read(cluster, topic, 20, group) == numbered(0, 20)
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        coordinator = admin.describe_consumer_groups([group])[group].coordinator_id
    cluster.brokers[coordinator].kill()
    write(cluster, topic, numbered(20, 40))
    assert read(cluster, topic, 20, group) == numbered(20, 40)  # goes on at the committed offset
    cluster.brokers[coordinator].start()
    cluster.wait_for_isr(topic, 0, BROKERS)


def test_each_broker_restarts_while_a_producer_writes(cluster: Cluster) -> None:
    topic = new_topic(cluster, partitions=3)
    sent = []
    with Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"}) as producer:
        for broker in sorted(BROKERS):
            sent += [producer.send(topic, value=value) for value in numbered(0, 100)]
            cluster.brokers[broker].restart()
            sent += [producer.send(topic, value=value) for value in numbered(0, 100)]
            for index in range(3):
                cluster.wait_for_isr(topic, index, BROKERS)
        places = {(each.result(DELIVERY_S).partition, each.result().offset) for each in sent}
    assert len(places) == 600
    assert len(read(cluster, topic, 600)) == 600


def test_all_brokers_are_killed_and_return(cluster: Cluster, topic: str) -> None:
    write(cluster, topic, numbered(0, 50))
    for broker in cluster.brokers.values():
        broker.kill()
    cluster.start()
    cluster.wait_for_isr(topic, 0, BROKERS)
    write(cluster, topic, numbered(50, 60))
    assert read(cluster, topic, 60) == numbered(0, 60)


def test_a_replica_that_lost_records_with_its_machine_does_not_lead(cluster: Cluster, topic: str) -> None:
    """All machines lose power. The one whose page cache had not reached the disk comes back first."""
    write(cluster, topic, numbered(0, 100))
    state = cluster.wait_for_isr(topic, 0, cluster.brokers)
    crashed = state.isr[0]
    for broker in cluster.brokers.values():
        broker.kill()
    logs = cluster.brokers[crashed].directory / "data" / "logs"
    (segment,) = (logs / f"{topic}-0").glob("*.log")
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size // 2)
    (logs / "machine.boot").write_text("an earlier boot\n", encoding="ascii")
    cluster.brokers[crashed].start()
    other = next(each for each in cluster.brokers if each != crashed)
    cluster.brokers[other].start()
    # Until there is a controller, the tree says who led before.
    assert cluster.wait_for_leader(topic, other_than=crashed) == other
    cluster.start()
    cluster.wait_for_isr(topic, 0, cluster.brokers)
    assert "the machine went down without stopping the broker" in cluster.brokers[crashed].output
    assert read(cluster, topic, 100) == numbered(0, 100)


def test_a_topic_is_created_by_its_first_use(cluster: Cluster) -> None:
    topic = f"auto-{uuid.uuid4().hex[:8]}"
    write(cluster, topic, numbered(0, 10))
    assert len(cluster.wait_for_isr(topic, 0, BROKERS).isr) == 3
    assert read(cluster, topic, 10) == numbered(0, 10)


def test_partitions_are_added(cluster: Cluster, topic: str) -> None:
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        admin.create_partitions({topic: NewPartitions(3)})
    for index in range(3):
        cluster.wait_for_isr(topic, index, BROKERS)
    write(cluster, topic, numbered(0, 300))
    assert sorted(map(bytes, filter(None, read(cluster, topic, 300)))) == sorted(numbered(0, 300))


def test_a_deleted_topic_leaves_all_brokers(cluster: Cluster, topic: str) -> None:
    write(cluster, topic, numbered(0, 10))
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        admin.delete_topics([topic])
        wait_until(lambda: not folders(cluster, topic), f"the folders of {topic} to go")
        wait_until(lambda: topic not in {each.name for each in admin.list_topics()}, f"{topic} to leave the metadata")
        wait_until(lambda: cluster.view.partition(topic, 0) is None, f"the nodes of {topic} to go")
        admin.create_topics([NewTopic(topic, partitions=1, replication_factor=3)])
    cluster.wait_for_isr(topic, 0, BROKERS)
    write(cluster, topic, numbered(10, 20))
    assert read(cluster, topic, 10) == numbered(10, 20)


def test_a_topic_is_deleted_while_a_broker_is_down(cluster: Cluster, topic: str) -> None:
    write(cluster, topic, numbered(0, 10))
    assert len(folders(cluster, topic)) == 3
    down = cluster.wait_for_controller()
    cluster.brokers[down].stop()
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        admin.delete_topics([topic])
    cluster.brokers[down].start()
    wait_until(lambda: not folders(cluster, topic), f"the folders of {topic} to go")


def folders(cluster: Cluster, topic: str) -> list[Path]:
    """Of its first partition, on all brokers."""
    paths = [broker.directory / "data" / "logs" / f"{topic}-0" for broker in cluster.brokers.values()]
    return [path for path in paths if path.exists()]
