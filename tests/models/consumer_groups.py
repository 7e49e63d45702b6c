"""Clients of the consumer protocol that do as they should, dawdle, crash, come back and go, by a seed, in simulated
time; answers get lost, appends fail, the coordinator moves, and topics come, grow and go.

What must hold, whatever happens:

- no partition is owned by two members at once, where a member owns what it was told to until it has given it up;
- nobody is told to give up what it is to keep: there is no pause for those whom a rebalance does not concern;
- the group's epoch never goes back; no member is ahead of the target, nor the target of the group;
- whoever owns a partition may commit for it, also if it has not heard of its newest epoch;
- what the log holds is the group: loading it gives the same one;
- once nothing more happens, exactly those who live are members, and every partition of what they subscribe to has an
  owner, evenly if all subscribe to the same.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.groups.group import ConsumerTimes, GroupSettings
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from support.coordinators.consumer_members import Coordinated, Partition, told
from support.coordinators.topics import FakeTopics

SETTINGS = GroupSettings(consumer_times=ConsumerTimes(9_000, 1_000), consumer_max_size=7)
_STEP_MS = 100
_SUBSCRIPTIONS: list[tuple[list[str], str]] = [
    (["t"], ""),
    (["t", "u"], ""),
    (["v"], ""),
    ([], "t|w.*"),
    (["u"], "w.*"),
    ([], ""),
]
_TOPICS = ["t", "u", "v", "w1", "w2"]
_BEGINS_ANEW = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}
_TRIES_AGAIN = {ErrorCode.NOT_COORDINATOR, ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.UNRELEASED_INSTANCE_ID}


@dataclass(slots=True, eq=False)
class Client:
    member_id: str
    instance_id: str | None
    subscription: tuple[list[str], str]
    rebalance_timeout_ms: int
    epoch: int = 0
    owned: set[Partition] = field(default_factory=set)
    assigned: set[Partition] | None = None
    """What it was last told, while it still gives up what is not in there."""
    gives_up_ms: int = 0
    """When it will have."""
    next_beat_ms: int = 0
    says_all: bool = True
    """The next heartbeat says everything: after a change, or an answer that did not come."""
    lives: bool = True

    def begin_anew(self) -> None:
        self.epoch, self.owned, self.assigned, self.says_all = 0, set(), None, True


class ConsumerGroupModel:
    """See the module."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.coordinated = Coordinated(SETTINGS, topics=FakeTopics(t=5, u=3, v=1))
        self.clients: list[Client] = []
        self.now_ms = 0
        self.named = 0
        self.epoch = 0
        self.dawdles = True
        self.loses_answers = True

    # --- what happens ---

    def run(self, steps: int) -> None:
        for _ in range(steps):
            if self.random.random() < 0.12:
                self.random.choice(
                    [
                        *[self._come] * 3,
                        *[self._go] * 2,
                        self._crash,
                        self._resubscribe,
                        self._change_topics,
                        self._move_coordinator,
                        self._refuse_appends,
                    ]
                )()
            self._pass_time()
        self._come_to_rest()

    def _come(self) -> None:
        if len(self.clients) >= 9:
            return
        away = [client for client in self.clients if not client.lives and client.instance_id is not None]
        if away and self.random.random() < 0.7:
            client = self.random.choice(away)
            client.lives, client.next_beat_ms = True, self.now_ms
            if self.random.random() < 0.5:
                client.member_id = self._name()
            client.begin_anew()
            return
        static = self.random.random() < 0.3
        self.clients.append(
            Client(
                member_id=self._name(),
                instance_id=self._name() if static else None,
                subscription=self.random.choice(_SUBSCRIPTIONS[: self.random.choice([1, 1, 6])]),
                rebalance_timeout_ms=self.random.choice([3_000, 8_000]),
                next_beat_ms=self.now_ms,
            )
        )

    def _name(self) -> str:
        self.named += 1
        return f"n{self.named}"

    def _go(self) -> None:
        living = [client for client in self.clients if client.lives and client.epoch > 0]
        if living:
            client = self.random.choice(living)
            for_a_while = client.instance_id is not None and self.random.random() < 0.7
            self._send(client, member_epoch=-2 if for_a_while else -1)
            client.begin_anew()
            client.lives = False
            if not for_a_while:
                self.clients.remove(client)

    def _crash(self) -> None:
        if self.clients:
            client = self.random.choice(self.clients)
            client.begin_anew()
            client.lives = False
            if client.instance_id is None:
                self.clients.remove(client)

    def _resubscribe(self) -> None:
        if self.clients:
            client = self.random.choice(self.clients)
            client.subscription, client.says_all = self.random.choice(_SUBSCRIPTIONS), True

    def _change_topics(self) -> None:
        topics, name = self.coordinated.topics, self.random.choice(_TOPICS)
        count = topics.partition_count(name)
        if count is None:
            topics.put(name, self.random.randint(1, 4))
        elif self.random.random() < 0.3:
            topics.remove(name)
        else:
            topics.put(name, count + self.random.randint(1, 3))

    def _move_coordinator(self) -> None:
        self.coordinated = self.coordinated.loaded_again()

    def _refuse_appends(self) -> None:
        refuses = self.coordinated.log.refuse_appends
        self.coordinated.log.refuse_appends = None if refuses else ErrorCode.NOT_COORDINATOR

    # --- clients ---

    def _pass_time(self) -> None:
        self.now_ms += _STEP_MS
        self.coordinated.time.advance_ms(_STEP_MS)
        for client in self.clients:
            if client.assigned is not None and client.gives_up_ms <= self.now_ms:
                client.owned, client.assigned = client.assigned, None
                client.next_beat_ms = self.now_ms
        for client in self.random.sample(self.clients, len(self.clients)):
            if client.lives and client.next_beat_ms <= self.now_ms:
                self._beat(client)
        self._check()

    def _beat(self, client: Client) -> None:
        client.next_beat_ms = self.now_ms + SETTINGS.consumer_times.heartbeat_interval_ms
        topics, pattern = client.subscription
        everything: dict[str, Any] = {
            "rebalance_timeout_ms": client.rebalance_timeout_ms,
            "subscribed_topic_names": topics,
            "subscribed_topic_regex": pattern,
        }
        response = self._send(
            client, topic_partitions=told(client.owned), **everything if client.says_all or not client.epoch else {}
        )
        error = ErrorCode(response.error_code)
        if error in _BEGINS_ANEW:
            client.begin_anew()
        elif error in _TRIES_AGAIN:
            client.says_all = True
        elif error:
            raise AssertionError(f"{client}: {response}")
        elif self.loses_answers and self.random.random() < 0.05:
            client.says_all = True
        else:
            self._take(client, response)

    def _send(self, client: Client, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        said: dict[str, Any] = {
            "member_id": client.member_id,
            "member_epoch": client.epoch,
            "instance_id": client.instance_id,
        }
        return self.coordinated.heartbeat(**said | fields)

    def _take(self, client: Client, response: ConsumerGroupHeartbeatResponse) -> None:
        client.epoch, client.says_all = response.member_epoch, False
        client.next_beat_ms = min(client.next_beat_ms, self.now_ms + response.heartbeat_interval_ms)
        if response.assignment is None:
            return
        assigned = {
            (topic.topic_id, index) for topic in response.assignment.topic_partitions for index in topic.partitions
        }
        lost = client.owned - assigned
        kept_by_target = lost & self.coordinated.group().target_of(client.member_id)
        assert not kept_by_target, f"{client.member_id} loses {kept_by_target}, which it is to keep"
        if lost:
            client.owned &= assigned | lost
            client.assigned = assigned
            longest_ms = 6_000 if self.dawdles and self.random.random() < 0.1 else 1_000
            client.gives_up_ms = self.now_ms + self.random.randint(0, longest_ms)
        else:
            client.owned, client.assigned = assigned, None

    # --- what must hold ---

    def _check(self) -> None:
        if not self.coordinated.has_group():
            return
        group = self.coordinated.group()
        assert group.epoch >= self.epoch
        self.epoch = group.epoch
        assert group.target_epoch <= group.epoch
        owners: dict[Partition, str] = {}
        for client in self.clients:
            member = group.members.get(client.member_id)
            if not client.lives or member is None or client.epoch == 0:
                continue
            assert member.standing.epoch <= group.target_epoch
            check = group.check_commit(
                client.member_id, client.instance_id, client.epoch, in_transaction=False, version=9
            )
            for partition in client.owned:
                assert partition not in owners, f"{owners[partition]} and {client.member_id} own {partition}"
                owners[partition] = client.member_id
                assert group.owners.get(partition) == client.member_id
                if check is not None:  # An answer was lost: it commits nevertheless what it owns.
                    check(*partition)
        for member in group.members.values():
            standing = member.standing
            assert standing.assignment_epochs.keys() == standing.assigned | standing.revoking
            assert all(0 <= epoch <= group.target_epoch for epoch in standing.assignment_epochs.values())
        assert +group.kinds == group.kinds
        if self.random.random() < 0.05:
            assert self.coordinated.loaded_again().state() == self.coordinated.state()

    def _come_to_rest(self) -> None:
        self.coordinated.log.refuse_appends = None
        self.dawdles = self.loses_answers = False
        self.clients = [client for client in self.clients if client.lives]
        del self.clients[SETTINGS.consumer_max_size :]
        for _ in range(40_000 // _STEP_MS):
            self._pass_time()
        if not self.clients:
            return
        group, topics = self.coordinated.group(), self.coordinated.topics
        assert group.state_name == "Stable"
        assert set(group.members) == {client.member_id for client in self.clients}
        expected: set[Partition] = set()
        for client in self.clients:
            names, pattern = client.subscription
            read = {*names, *(name for name in topics.topic_names() if pattern and _meets(pattern, name))}
            its = {
                (topic_id, index)
                for name in read
                if (topic_id := topics.topic_id(name)) is not None
                for index in range(topics.partition_count(name) or 0)
            }
            assert client.owned <= its
            assert client.owned == group.target_of(client.member_id)
            expected |= its
        owned = [partition for client in self.clients for partition in client.owned]
        assert len(owned) == len(set(owned))
        assert set(owned) == expected
        if len({(frozenset(names), pattern) for names, pattern in (each.subscription for each in self.clients)}) == 1:
            sizes = [len(client.owned) for client in self.clients]
            assert max(sizes) - min(sizes) <= 1


def _meets(pattern: str, name: str) -> bool:
    """The patterns of this model, without the code that is tested."""
    return any(name == each if each[-1] != "*" else name.startswith(each[:-2]) for each in pattern.split("|"))
