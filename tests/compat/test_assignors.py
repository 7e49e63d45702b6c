"""Our assignors, and what members tell each other, beside Java's: on groups made by chance."""

from __future__ import annotations

import random
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from kafka_artifacts import classpath
from ottla.base.ids import TopicPartition
from ottla.client.membership.assignors import ASSIGNORS, Assignment, GroupMember, Topics
from ottla.client.membership.blobs import assignment_blob, subscription_blob
from support.groups.assignments import RACKS, TOPICS, check_balanced, check_valid

pytestmark = pytest.mark.compat

PROGRAM = Path(__file__).parent / "java" / "Assignors.java"
GROUPS = 1500


class Case(NamedTuple):
    assignor: str
    topics: Topics
    members: list[GroupMember]


class Theirs(NamedTuple):
    shares: Assignment
    subscriptions: dict[str, bytes]
    assignments: dict[str, bytes]


def some_case(chance: random.Random, assignor: str) -> Case:
    topics = {}
    for name in TOPICS:
        if chance.random() < 0.8:
            count = chance.choice([1, 2, 3, 4, 4, 4, 7])
            topics[name] = tuple(
                frozenset(chance.sample(RACKS, chance.randint(0, 2)) if chance.random() < 0.9 else ())
                for _ in range(count)
            )
    shared = frozenset(chance.sample(TOPICS, chance.randint(1, len(TOPICS))))
    members = [
        GroupMember(
            member_id=f"member-{number}",
            topics=shared if chance.random() < 0.5 else frozenset(chance.sample(TOPICS, chance.randint(0, 4))),
            instance_id=chance.choice([None, None, f"instance-{chance.randrange(1000, 9999)}-{number}"]),
            rack=chance.choice([None, *RACKS]),
        )
        for number in chance.sample(range(100), chance.randint(1, 6))
    ]
    known = ASSIGNORS[assignor]
    if "sticky" in assignor:  # there, ours does not look at racks
        members = [replace(one, rack=None) for one in members]
    before = known.assign(topics, [one for one in members if chance.random() < 0.7])
    rejoining = []
    for one in members:
        owned = before.get(one.member_id)
        if owned is not None and chance.random() < 0.9:
            generation = chance.choice([3, 3, 3, 2])
            data = known.user_data(owned, generation)
            kept = [each for each in owned if each.topic in one.topics] if known.is_cooperative else ()
            one = replace(one, owned=kept, generation=generation, user_data=data)
        rejoining.append(one)
    return Case(assignor, topics, rejoining)


def described(case: Case) -> str:
    lines = [f"assign {case.assignor}"]
    for name, partitions in case.topics.items():
        lines.append(f"topic {name} {';'.join(','.join(sorted(racks)) or '-' for racks in partitions)}")
    lines += [
        f"member {member.member_id} {member.instance_id or '-'} {subscription_blob(member).hex()}"
        for member in case.members
    ]
    return "\n".join([*lines, "end", ""])


def assigned_by_java(version: str, cases: list[Case]) -> list[Theirs]:
    ran = subprocess.run(
        ["java", "-cp", classpath(version), str(PROGRAM)],
        input="".join(map(described, cases)),
        check=True,
        capture_output=True,
        text=True,
        timeout=200,
    )
    results = [Theirs({}, {}, {})]
    for line in ran.stdout.splitlines():
        if line == "end":
            results.append(Theirs({}, {}, {}))
            continue
        member_id, partitions, subscription, assignment = line.split(" ")
        pairs = [one.split(":") for one in partitions.split(",")] if partitions != "-" else []
        results[-1].shares[member_id] = sorted(TopicPartition(topic, int(index)) for topic, index in pairs)
        results[-1].subscriptions[member_id] = bytes.fromhex(subscription)
        results[-1].assignments[member_id] = bytes.fromhex(assignment)
    return results[:-1]


@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
def test_assignments_and_what_members_say_are_those_of_java(version: str) -> None:
    chance = random.Random(20_261_116)
    names = list(ASSIGNORS)
    cases = [some_case(chance, names[number % len(names)]) for number in range(GROUPS)]
    results = assigned_by_java(version, cases)
    assert len(results) == len(cases)
    for case, theirs in zip(cases, results, strict=True):
        ours = ASSIGNORS[case.assignor].assign(case.topics, case.members)
        if case.assignor in ("range", "roundrobin"):
            assert {name: sorted(share) for name, share in ours.items()} == theirs.shares, described(case)
        elif case.assignor == "sticky":
            check_valid(case.topics, case.members, ours)
            check_balanced(case.members, ours)
            if all_subscribed(case.members, theirs.shares):
                assert spread(ours) <= spread(theirs.shares), described(case)
        else:
            # Never before its owner has let go of it.
            owners = {one: member.member_id for member in case.members for one in member.owned}
            for shares in (ours, theirs.shares):
                for member_id, share in shares.items():
                    assert all(owners.get(one, member_id) == member_id for one in share), described(case)
        for member in case.members:
            assert theirs.subscriptions[member.member_id] == subscription_blob(member)
        for member_id, share in theirs.shares.items():
            assert theirs.assignments[member_id] == assignment_blob(share)


def all_subscribed(members: list[GroupMember], assignment: Assignment) -> bool:
    """Java's sticky assignor gives, with claims of several generations, a member now and then what it did not subscribe
    to."""
    topics = {member.member_id: member.topics for member in members}
    return all(one.topic in topics[member_id] for member_id, share in assignment.items() for one in share)


def spread(assignment: Assignment) -> int:
    """The less, the more even."""
    return sum(len(share) ** 2 for share in assignment.values())
