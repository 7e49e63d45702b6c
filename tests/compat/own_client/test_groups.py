"""Groups whose members are ours, Java's and librdkafka's at once, in both protocols: nothing lost or out of order."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from compat.own_client.java import Programs
from support.clients.ottla_client import OttlaClient
from support.clients.peers import Peer
from support.groups.consumers import Membership
from support.groups.flavours import OURS, Flavour
from support.groups.processes import GroupOfProcesses, Member, group_of_processes
from support.groups.settings import SESSION_MS
from support.groups.traffic import traffic

pytestmark = pytest.mark.compat

PARTITIONS = 6


def start(group: GroupOfProcesses, library: str, programs: Programs) -> Member:
    membership = replace(group.membership, flavour=replace(group.membership.flavour, library=library))
    return group.start(membership, programs.member(membership) if library == "java" else None)


OURS_FIRST = ("ottla", "java", "confluent")
JAVAS_FIRST = ("java", "ottla", "confluent")


CLASSIC = [OURS[0], OURS[1], OURS[3]]
CONSUMER = OURS[4]


@pytest.mark.parametrize(
    ("broker", "libraries", "flavour"),
    [
        *(pytest.param("ottla", OURS_FIRST, flavour, id=f"ottla-ours-{flavour}") for flavour in CLASSIC),
        *(pytest.param("ottla", JAVAS_FIRST, flavour, id=f"ottla-javas-{flavour}") for flavour in (*CLASSIC, CONSUMER)),
        *(
            pytest.param("kafka-4.3.1", JAVAS_FIRST, flavour, id=f"kafka-javas-{flavour}")
            for flavour in (CLASSIC[0], CONSUMER)
        ),
    ],
    indirect=["broker"],
)
def test_members_of_all_kinds_share_a_group(
    broker: Peer, topic: str, flavour: Flavour, libraries: tuple[str, ...], programs: Programs
) -> None:
    """The first to come assigns in a classic group, until it is killed; then one of another kind does."""
    with OttlaClient(broker.bootstrap).admin() as admin:
        admin.create_topic(topic, PARTITIONS)
    partitions = [(topic, index) for index in range(PARTITIONS)]
    group_id = f"group-{uuid.uuid4().hex[:8]}"
    membership = Membership(broker.bootstrap, group_id, flavour, [topic], session_ms=SESSION_MS)
    with group_of_processes(membership) as group, traffic(broker.bootstrap, topic, PARTITIONS) as records:
        for library in libraries:
            start(group, library, programs)
            group.wait_until_stable(partitions)
        group.kill(group.members[0])
        group.wait_until_stable(partitions)
        start(group, "ottla", programs)
        group.wait_until_stable(partitions)
        group.leave(group.members[0])
        group.wait_until_stable(partitions)
        sent = records.stop()
        group.wait_for(sent)
    group.check(sent)
