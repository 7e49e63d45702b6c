"""Clients of the classic protocol that do as they should, crash, come back and go, by a seed, in simulated time.

What must hold, whatever happens:

- the generation never goes back, and a member has one assignment a generation, the leader's;
- who believes to be in the stable generation is in it; the group's own books agree with each other;
- no request waits for ever;
- what the log holds is the group: loading it gives the same one;
- once nothing more happens, exactly those who live are members of one stable generation, each with its assignment.
"""

from __future__ import annotations

import asyncio
import random
import sys
from dataclasses import dataclass
from typing import Any

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.groups.classic.group import ClassicGroup, ClassicState
from ottla.coordinator.groups.group import GroupSettings
from ottla.wire.messages.join_group import JoinGroupResponse
from ottla.wire.messages.sync_group import SyncGroupResponse
from support.coordinators.classic_members import ClassicMembers, Member, subscription
from support.coordinators.fake_log import FakeLog

SESSION_MS = (6_000, 9_000)
REBALANCE_MS = (7_000, 12_000)
LONGEST_WAIT_MS = max(REBALANCE_MS) + 3_000
"""Of a join or a sync: its phase, and before the first the delay."""
SETTINGS = GroupSettings(max_size=6, new_member_join_timeout_ms=20_000)
_REJOINS = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
_FORGETS = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}
_GIVES_UP = {ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED}


@dataclass(slots=True, eq=False)
class Client:
    """A consumer: its place in the protocol is what it waits for, or a generation."""

    name: str
    is_static: bool
    session_ms: int
    rebalance_ms: int
    version: int
    topics: tuple[str, ...] = ("t",)
    member_id: str = ""
    generation: int = -1
    assignment: bytes | None = None
    lives: bool = True
    joining: asyncio.Task[JoinGroupResponse] | None = None
    syncing: asyncio.Task[SyncGroupResponse] | None = None
    asked_ms: int = 0
    next_beat_ms: int = 0

    @property
    def instance_id(self) -> str | None:
        return self.name if self.is_static else None

    @property
    def is_idle(self) -> bool:
        return self.joining is None and self.syncing is None

    @property
    def is_settled(self) -> bool:
        return self.is_idle and self.assignment is not None


class ClassicGroupModel:
    """See the module."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.log = FakeLog()
        self.members = ClassicMembers(SETTINGS, self.log)
        self.time = self.members.time
        self.clients: list[Client] = []
        self.given: dict[tuple[int, str], bytes] = {}
        """Assignments that were told, by generation and who got them."""
        self.generation = 0
        self.named = 0
        self.actions = 0

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            await self._act()
            await self._look()
        await self._come_to_rest()

    # --- what happens -----------------------------------------------------------------------------------------------

    async def _act(self) -> None:
        living = [client for client in self.clients if client.lives]
        choices: list[tuple[int, Any]] = [(8, self._pass_time), (2, self._come)]
        if living:
            client = self.random.choice(living)
            choices += [
                (1, lambda: self._crash(client)),
                (1, lambda: self._leave(client)),
                (1, lambda: self._subscribe(client)),
                (1, lambda: self._join_again(client)),
                (1, lambda: self._restart_static(client)),
            ]
        choices.append((1, self._move))
        weights, actions = zip(*choices, strict=True)
        await self.random.choices(actions, weights)[0]()

    async def _pass_time(self) -> None:
        for _ in range(self.random.choice((1, 1, 3, 12))):
            await self._second()

    async def _second(self) -> None:
        """Living clients beat in time; then a second passes."""
        for client in self.clients:
            if client.lives and client.is_settled and self.time.now_ms() >= client.next_beat_ms:
                await self._beat(client)
        await self.members.pass_ms(1_000)
        await self._take_answers()

    async def _beat(self, client: Client) -> None:
        client.next_beat_ms = self.time.now_ms() + 2_000
        error = await self.members.heartbeat(Member(client.member_id, client.generation, client.instance_id))
        if error:
            await self._told(client, error)

    async def _come(self) -> None:
        if sum(client.lives for client in self.clients) >= SETTINGS.max_size:
            return
        self.named += 1
        client = Client(
            name=f"n{self.named}",
            is_static=self.random.random() < 0.4,
            session_ms=self.random.choice(SESSION_MS),
            rebalance_ms=self.random.choice(REBALANCE_MS),
            version=self.random.choice((0, 3, 4, 9)),
        )
        if client.is_static:
            client.version = self.random.choice((5, 9))
        self.clients.append(client)
        await self._join(client)

    async def _crash(self, client: Client) -> None:
        client.lives = False

    async def _restart_static(self, client: Client) -> None:
        """It dies, and another of its name begins at once."""
        if client.is_static:
            client.lives = False
            again = Client(client.name, True, client.session_ms, client.rebalance_ms, client.version, client.topics)
            self.clients.append(again)
            await self._join(again)

    async def _leave(self, client: Client) -> None:
        client.lives = False
        if client.member_id:
            await self.members.leave(Member(client.member_id, -1, client.instance_id))

    async def _subscribe(self, client: Client) -> None:
        client.topics = self.random.choice((("t",), ("u",), ("t", "u")))
        if client.is_settled:
            await self._join(client)

    async def _join_again(self, client: Client) -> None:
        """As consumers do when topics change, or when they have given up waiting."""
        if client.syncing is None:
            await self._join(client)

    async def _move(self) -> None:
        """The shard is loaded elsewhere: what was not written is forgotten."""
        self.members.coordinator.resign(0)
        self.members.coordinator.lead(0, self.actions + 1)
        self.actions += 1
        self.generation = 0
        await self.members.settle()

    # --- what clients do about it -----------------------------------------------------------------------------------

    async def _join(self, client: Client) -> None:
        client.generation, client.assignment, client.syncing = -1, None, None
        client.asked_ms = self.time.now_ms()
        client.joining = await self.members.join(
            client.member_id,
            version=client.version,
            client_id=client.name,
            group_instance_id=client.instance_id,
            session_timeout_ms=client.session_ms,
            rebalance_timeout_ms=client.rebalance_ms,
            protocols={"range": subscription(*client.topics), "sticky": subscription(*client.topics)},
        )

    async def _take_answers(self) -> None:
        """Until nobody has one that it has not looked at."""
        waiting = True
        while waiting:
            await self.members.settle()
            waiting = False
            for client in self.clients:
                if client.joining is not None and client.joining.done():
                    answer, client.joining = client.joining.result(), None
                    waiting = True
                    if client.lives:
                        await self._joined(client, answer)
                elif client.syncing is not None and client.syncing.done():
                    synced, client.syncing = client.syncing.result(), None
                    waiting = True
                    if client.lives:
                        await self._synced(client, synced)

    async def _joined(self, client: Client, answer: JoinGroupResponse) -> None:
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
            await self._join(client)
            return
        if error:
            await self._told(client, error)
            return
        client.member_id, client.generation = answer.member_id, answer.generation_id
        client.asked_ms = self.time.now_ms()
        assignments = {}
        if answer.leader == answer.member_id and not answer.skip_assignment:
            for member in answer.members:
                assignments[member.member_id] = self._assignment(
                    answer.generation_id, member.group_instance_id or member.member_id
                )
        client.syncing = await self.members.sync(
            Member(client.member_id, client.generation, client.instance_id),
            assignments,
            protocol_name=answer.protocol_name,
        )

    def _assignment(self, generation: int, whose: str) -> bytes:
        return f"{generation} {whose} {self.actions}".encode()

    async def _synced(self, client: Client, answer: SyncGroupResponse) -> None:
        if answer.error_code:
            await self._told(client, ErrorCode(answer.error_code))
            return
        whose = client.instance_id or client.member_id
        generation, name, _ = answer.assignment.decode().split(" ")
        assert (int(generation), name) == (client.generation, whose), f"{client.name} was told {answer.assignment!r}"
        known = self.given.setdefault((client.generation, whose), answer.assignment)
        assert known == answer.assignment, f"two assignments of generation {client.generation} for {whose}"
        client.assignment = answer.assignment
        client.next_beat_ms = self.time.now_ms() + 2_000

    async def _told(self, client: Client, error: ErrorCode) -> None:
        if error in _GIVES_UP:
            client.lives = False
            return
        assert error in _REJOINS | _FORGETS, error.name
        if error in _FORGETS:
            client.member_id = ""
        await self._join(client)

    # --- what must hold ---------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        await self._take_answers()
        for client in self.clients:
            waits_ms = self.time.now_ms() - client.asked_ms
            assert client.is_idle or waits_ms <= LONGEST_WAIT_MS, f"{client.name} waits for {waits_ms} ms"
        group = self.members.coordinator.runtime.active_shards()[0].groups.get("g")
        if group is None:
            return
        assert isinstance(group, ClassicGroup)
        _check_books(group)
        assert group.generation >= self.generation, "the generation went back"
        self.generation = group.generation
        for client in self.clients:
            if client.lives and client.is_settled and group.state is ClassicState.STABLE:
                self._check_place(client, group)
        if group.state in (ClassicState.STABLE, ClassicState.EMPTY):
            # Static members that are away can make a group too large; without a limit it is not rebalanced for that.
            loaded = ClassicMembers(GroupSettings(), self.log.copy())
            await loaded.settle()
            assert _image(loaded.group()) == _image(group)

    def _check_place(self, client: Client, group: ClassicGroup) -> None:
        """Of a client that believes to be in this generation. It may have been dropped, and not know yet."""
        member = group.members.get(client.member_id)
        if member is not None and client.generation == group.generation:
            assert member.assignment == client.assignment

    async def _come_to_rest(self) -> None:
        living: list[Client] = []
        for _ in range(120):
            await self._second()
            await self._look()
            living = [client for client in self.clients if client.lives]
            if all(client.is_settled for client in living) and self._is_at_rest(living):
                break
        group = self.members.coordinator.runtime.active_shards()[0].groups.get("g")
        if group is None:
            assert not living
            return
        assert isinstance(group, ClassicGroup)
        assert set(group.members) == {client.member_id for client in living}
        assert {client.generation for client in living} <= {group.generation}
        assert all(client.is_settled for client in living)
        assert all(client.is_idle for client in self.clients), "somebody was never answered"
        assert not group.pending_joins
        assert group.state is (ClassicState.STABLE if living else ClassicState.EMPTY)

    def _is_at_rest(self, living: list[Client]) -> bool:
        group = self.members.coordinator.runtime.active_shards()[0].groups.get("g")
        return not isinstance(group, ClassicGroup) or (
            group.state in (ClassicState.STABLE, ClassicState.EMPTY)
            and len(group.members) == len(living)
            and not group.pending_joins
            and all(client.is_idle for client in self.clients)
        )


def _check_books(group: ClassicGroup) -> None:
    assert group.joining_count == sum(member.joining is not None for member in group.members.values())
    assert group.static_members == {
        member.instance_id: member.member_id for member in group.members.values() if member.instance_id is not None
    }
    assert not group.pending_joins & set(group.members)
    assert group.pending_syncs <= set(group.members)
    if group.members:
        assert group.leader_id in group.members
        assert group.supports("consumer", ["range"])
    if group.state in (ClassicState.STABLE, ClassicState.EMPTY, ClassicState.COMPLETING):
        assert group.joining_count == 0
    assert (group.state is ClassicState.EMPTY) <= (not group.members)
    if group.state is ClassicState.STABLE:
        assert all(member.syncing is None for member in group.members.values())


def _image(group: ClassicGroup) -> tuple[object, ...]:
    """What of a group is in the log."""
    members = [
        (
            member.member_id,
            member.instance_id,
            member.client_id,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
            member.protocols[group.protocol or ""],
            member.assignment,
        )
        for member in group.members.values()
    ]
    return (
        group.state,
        group.generation,
        group.leader_id,
        group.type_of_protocol,
        group.protocol,
        group.subscribed_topics,
        members,
    )


def main() -> None:
    """As many seeds as are asked for, from a random one on, which is printed."""
    first = random.SystemRandom().randrange(1 << 32)
    for seed in range(first, first + int(sys.argv[1])):
        print(seed, flush=True)  # noqa: T201
        asyncio.run(ClassicGroupModel(seed).run(200))


if __name__ == "__main__":
    main()
