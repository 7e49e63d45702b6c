"""Members of a group as processes, what they have told so far, and what must be true of it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO

from support.clients.dialect import WAIT_S
from support.groups.consumers import Membership, Partition
from support.waiting import wait_until

_SCRIPT = Path(__file__).with_name("member.py")


class Member:
    """A running member, by `member.py` or by another command that tells the same. What it tells is read as it comes."""

    def __init__(self, membership: Membership, command: Sequence[str] | None = None) -> None:
        self.membership = membership
        self.owned: set[Partition] = set()
        self.assignments = 0
        """How often it was told what it has."""
        self.tenures: list[tuple[Partition, list[int]]] = []
        """The offsets that it saw of a partition each time that was its own."""
        self.values: dict[tuple[Partition, int], str] = {}
        self.refused: list[int] = []
        self._current: dict[Partition, list[int]] = {}
        self._process = subprocess.Popen(
            command or [sys.executable, str(_SCRIPT), json.dumps(asdict(membership))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._complaints: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(self._process.stdout,)),
            threading.Thread(target=self._listen, args=(self._process.stderr,)),
        ]
        for reader in self._readers:
            reader.start()

    def _listen(self, stream: IO[str]) -> None:
        self._complaints += stream

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            if not line.endswith("\n"):  # killed in the middle of it
                return
            match json.loads(line):
                case ["assigned", partitions]:
                    added = {(topic, index) for topic, index in partitions}
                    for partition in sorted(added):
                        self._current[partition] = []
                        self.tenures.append((partition, self._current[partition]))
                    self.owned = self.owned | added
                    self.assignments += 1
                case ["revoked", partitions]:
                    self.owned = self.owned - {(topic, index) for topic, index in partitions}
                case ["consumed", topic, index, offset, value]:
                    self._current[topic, index].append(offset)
                    self.values[(topic, index), offset] = value
                case ["refused", code, _]:
                    self.refused.append(code)

    @property
    def complaints(self) -> str:
        """What it said when it failed."""
        return "".join(self._complaints)

    def check_alive(self) -> None:
        code = self._process.poll()
        assert code is None, f"a member ended by itself, with code {code}: {self.complaints}"

    def kill(self) -> None:
        """As by `kill -9`: the group is not told."""
        self._process.kill()
        self._end()

    def leave(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(WAIT_S) == 0, self.complaints
        self._end()

    def discard(self) -> None:
        """After a test, whatever became of it."""
        if self._process.poll() is None:
            self._process.kill()
        self._end()

    def _end(self) -> None:
        self._process.wait()
        for reader in self._readers:
            reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        self.owned = set()


class GroupOfProcesses:
    """All members that a group ever had, and those it has."""

    def __init__(self, membership: Membership) -> None:
        self.membership = membership
        self.all: list[Member] = []
        self.members: list[Member] = []

    def start(self, membership: Membership | None = None, command: Sequence[str] | None = None) -> Member:
        member = Member(membership or self.membership, command)
        self.all.append(member)
        self.members.append(member)
        return member

    def kill(self, member: Member) -> None:
        self.members.remove(member)
        member.kill()

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        member.leave()

    def is_stable(self, partitions: Sequence[Partition], *, everyone: bool = True) -> bool:
        """Whether each of the partitions has one owner, and (as long as there are enough) every member some."""
        for member in self.members:
            member.check_alive()
        owned = [partition for member in self.members for partition in member.owned]
        if everyone and any(not member.owned for member in self.members):
            return False
        return sorted(owned) == sorted(partitions)

    def wait_until_stable(self, partitions: Sequence[Partition], *, everyone: bool = True) -> None:
        def owners() -> str:
            return str([sorted(member.owned) for member in self.members])

        try:
            wait_until(lambda: self.is_stable(partitions, everyone=everyone), "not every partition has one owner")
        except AssertionError as error:
            raise AssertionError(f"{error}: {owners()}") from error

    @property
    def values(self) -> dict[tuple[Partition, int], str]:
        """Every record that any member has consumed."""
        return {place: value for member in self.all for place, value in list(member.values.items())}

    def wait_for(self, sent: Mapping[tuple[Partition, int], str]) -> None:
        """Until each of these records was consumed by somebody."""

        def missing() -> list[tuple[Partition, int]]:
            for member in self.members:
                member.check_alive()
            return sorted(sent.keys() - self.values.keys())

        try:
            wait_until(lambda: not missing(), "records are not delivered")
        except AssertionError as error:
            lost = missing()[:10]
            tenures = [f"member {at}: {self._tenures(member, lost[0][0])}" for at, member in enumerate(self.all)]
            raise AssertionError(f"{error}: {lost} of {len(sent)}; first and last seen by {tenures}") from error

    @staticmethod
    def _tenures(member: Member, partition: Partition) -> list[tuple[int, int]]:
        return [(seen[0], seen[-1]) for whose, seen in member.tenures if whose == partition and seen]

    def check(self, sent: Mapping[tuple[Partition, int], str]) -> None:
        """Every record was delivered as it was sent, and while a partition was somebody's it came in order, whole."""
        values = self.values
        assert {place: values.get(place) for place in sent} == dict(sent)
        for member in self.all:
            for partition, offsets in member.tenures:
                whole = list(range(offsets[0], offsets[0] + len(offsets))) if offsets else []
                assert offsets == whole, f"{partition} came to {member.membership} out of order or with gaps: {offsets}"


@contextmanager
def group_of_processes(membership: Membership) -> Iterator[GroupOfProcesses]:
    group = GroupOfProcesses(membership)
    try:
        yield group
    finally:
        for member in group.all:
            member.discard()
