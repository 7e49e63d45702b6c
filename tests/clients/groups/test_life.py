"""Groups that grow, lose members, get them back and shrink while producing goes on: nothing lost or out of order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.groups.consumers import MakeTopic, Membership
from support.groups.flavours import CONFLUENT, OTHERS, OURS, Flavour
from support.groups.processes import GroupOfProcesses, group_of_processes
from support.groups.traffic import traffic
from support.waiting import wait_until

PARTITIONS = 4


def test_a_group_grows_crashes_and_shrinks_while_records_come(
    membership: Membership, topic: str, make_topic: MakeTopic
) -> None:
    partitions = make_topic(topic, PARTITIONS)
    with group_of_processes(membership) as group, traffic(membership.bootstrap, topic, PARTITIONS) as records:
        first = group.start()
        group.wait_until_stable(partitions)
        second, _ = group.start(), group.start()
        group.wait_until_stable(partitions)
        wait_until(lambda: all(member.values for member in group.members), "not every member has consumed")
        group.kill(second)
        group.wait_until_stable(partitions)
        group.start()
        group.wait_until_stable(partitions)
        group.leave(first)
        group.wait_until_stable(partitions)
        sent = records.stop()
        group.wait_for(sent)
    group.check(sent)


@pytest.mark.parametrize("flavour", [OTHERS[0]], ids=str)
def test_clients_of_all_libraries_share_a_group(membership: Membership, topic: str, make_topic: MakeTopic) -> None:
    """They agree on an assignor by name, and read each other's subscriptions and assignments."""
    partitions = make_topic(topic, PARTITIONS)
    with group_of_processes(membership) as group, traffic(membership.bootstrap, topic, PARTITIONS) as records:
        for library in ("confluent", "kafka_python", "aiokafka", "ottla"):
            flavour = Flavour(library, "classic", "range")
            group.start(replace(membership, flavour=flavour))
            group.wait_until_stable(partitions)
        # The leader goes: one of another library assigns now.
        group.kill(group.members[0])
        group.wait_until_stable(partitions)
        sent = records.stop()
        group.wait_for(sent)
    group.check(sent)


@pytest.mark.parametrize("ours_first", [True, False], ids=["ours leads", "theirs leads"])
@pytest.mark.parametrize("flavour", [OURS[0], OURS[1], OURS[3], OURS[4], OURS[5]], ids=str)
def test_our_members_and_those_of_librdkafka_share_a_group(
    membership: Membership, topic: str, make_topic: MakeTopic, *, ours_first: bool
) -> None:
    """Whoever came first assigns in a classic group, until it goes; and nobody loses what it can keep."""
    partitions = make_topic(topic, PARTITIONS)
    theirs = replace(membership, flavour=replace(membership.flavour, library="confluent"))
    members = [membership, theirs, membership, theirs] if ours_first else [theirs, membership, theirs, membership]
    with group_of_processes(membership) as group, traffic(membership.bootstrap, topic, PARTITIONS) as records:
        for each in members:
            group.start(each)
            group.wait_until_stable(partitions)
        group.kill(group.members[0])
        group.wait_until_stable(partitions)
        group.leave(group.members[0])
        group.wait_until_stable(partitions)
        sent = records.stop()
        group.wait_for(sent)
    group.check(sent)


@pytest.mark.parametrize(
    ("flavour", "classic_flavour"), [(CONFLUENT[3], CONFLUENT[0]), (OURS[4], OURS[0])], ids=["confluent", "ottla"]
)
def test_a_group_changes_its_protocol_member_by_member_and_back(
    membership: Membership, classic_flavour: Flavour, topic: str, make_topic: MakeTopic
) -> None:
    partitions = make_topic(topic, PARTITIONS)
    classic = replace(membership, flavour=classic_flavour)

    def replace_all(group: GroupOfProcesses, by: Membership) -> None:
        for member in list(group.members):
            group.leave(member)
            group.start(by)
            group.wait_until_stable(partitions)

    with group_of_processes(membership) as group, traffic(membership.bootstrap, topic, PARTITIONS) as records:
        group.start(classic)
        group.start(classic)
        group.wait_until_stable(partitions)
        replace_all(group, membership)
        replace_all(group, classic)
        sent = records.stop()
        group.wait_for(sent)
    group.check(sent)
