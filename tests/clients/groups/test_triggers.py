"""What makes a group share its partitions anew, beside members that come and go; and what does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.clients.confluent_client import ConfluentClient
from support.clients.dialect import Record
from support.groups.consumers import MakeTopic, Membership, Partition, pattern_for
from support.groups.flavours import A_CLIENT_EACH, CONFLUENT, OURS, Flavour
from support.groups.processes import GroupOfProcesses, group_of_processes
from support.groups.traffic import traffic

EAGER, COOPERATIVE, CONSUMER = CONFLUENT[0], CONFLUENT[2], CONFLUENT[3]
each_client = pytest.mark.parametrize("flavour", [*A_CLIENT_EACH, COOPERATIVE, OURS[3]], ids=str)


def deliver(group: GroupOfProcesses, client: ConfluentClient, partitions: list[Partition]) -> None:
    """Sends a record to each partition, which somebody has to get."""
    sent = {}
    for topic, index in partitions:
        (offset,) = client.produce(topic, [Record(b"hello", partition=index)])
        sent[(topic, index), offset] = "hello"
    group.wait_for(sent)
    group.check(sent)


@each_client
def test_partitions_that_are_added(
    membership: Membership, topic: str, make_topic: MakeTopic, confluent: ConfluentClient
) -> None:
    partitions = make_topic(topic, 2)
    with group_of_processes(membership) as group:
        group.start()
        group.start()
        group.wait_until_stable(partitions)
        with confluent.admin() as admin:
            admin.create_partitions(topic, 5)
        partitions = [(topic, index) for index in range(5)]
        group.wait_until_stable(partitions)
        deliver(group, confluent, partitions)


@each_client
def test_a_new_topic_that_a_pattern_meets(
    membership: Membership, topic: str, make_topic: MakeTopic, confluent: ConfluentClient
) -> None:
    first = make_topic(f"{topic}.first", 2)
    make_topic(f"not-{topic}", 1)
    by_pattern = replace(membership, topics=(), pattern=pattern_for(f"{topic}."))
    with group_of_processes(by_pattern) as group:
        group.start()
        group.start()
        group.wait_until_stable(first)
        second = make_topic(f"{topic}.second", 2)
        group.wait_until_stable([*first, *second])
        deliver(group, confluent, [*first, *second])
        with confluent.admin() as admin:
            admin.delete_topic(f"{topic}.first")
        group.wait_until_stable(second)


@pytest.mark.parametrize(
    "flavour", [EAGER, COOPERATIVE, CONSUMER, OURS[0], OURS[3], OURS[4]], ids=str
)  # the other clients do not look for it again
def test_a_topic_that_is_made_after_the_group_subscribed(
    membership: Membership, topic: str, make_topic: MakeTopic, confluent: ConfluentClient
) -> None:
    early = f"{topic}.early"
    with group_of_processes(replace(membership, topics=[topic, early])) as group:
        group.start()
        partitions = make_topic(early, 1)
        group.wait_until_stable(partitions)
        partitions += make_topic(topic, 1)
        group.wait_until_stable(partitions)
        deliver(group, confluent, partitions)


@pytest.mark.parametrize("flavour", A_CLIENT_EACH, ids=str)
def test_a_static_member_that_restarts_gets_its_partitions_back_and_nobody_notices(
    membership: Membership, topic: str, make_topic: MakeTopic, confluent: ConfluentClient
) -> None:
    patient = replace(membership, session_ms=30_000)
    partitions = make_topic(topic, 4)
    with group_of_processes(patient) as group:
        other = group.start(replace(patient, instance="first"))
        group.wait_until_stable(partitions)
        restarting = group.start(replace(patient, instance="second"))
        group.wait_until_stable(partitions)
        had, assignments = restarting.owned, other.assignments
        if patient.flavour.protocol == "classic":
            group.kill(restarting)
        else:  # where a member has to say that it will be back
            group.leave(restarting)
        restarted = group.start(restarting.membership)
        group.wait_until_stable(partitions)
        assert restarted.owned == had
        assert other.assignments == assignments
        deliver(group, confluent, partitions)


@pytest.mark.parametrize(
    ("flavour", "other_flavour"), [(EAGER, CONSUMER), (CONSUMER, EAGER)], ids=["classic", "consumer"]
)
def test_groups_do_not_touch_each_other(
    membership: Membership, other_flavour: Flavour, topic: str, make_topic: MakeTopic
) -> None:
    partitions = make_topic(topic, 3)
    other = replace(membership, group=f"{membership.group}-other", flavour=other_flavour)
    with (
        group_of_processes(membership) as restless,
        group_of_processes(other) as quiet,
        traffic(membership.bootstrap, topic, len(partitions)) as records,
    ):
        undisturbed = quiet.start()
        quiet.wait_until_stable(partitions)
        restless.start()
        for _ in range(2):
            comer = restless.start()
            restless.wait_until_stable(partitions)
            restless.leave(comer)
            restless.wait_until_stable(partitions)
        sent = records.stop()
        for group in (restless, quiet):
            group.wait_for(sent)
            group.check(sent)
    assert undisturbed.assignments == 1
    assert len(undisturbed.values) == len(sent)
