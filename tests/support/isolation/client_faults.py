"""Faults between clients and brokers, and coordinators that move, while transactions run.

| fault | what happens |
| --- | --- |
| lose EndTxn | half of the answers to EndTxn are lost: the client does not know whether it committed |
| lose answers | some answers to all requests of transactions are lost |
| cut clients | connections to a broker, or to all, end; new ones as well |
| mute brokers | answers wait, then arrive late or never |
| late requests | requests wait, and reach the broker when their clients have given up |
| slow clients | everything between clients and brokers is late |
| move coordinator | the leaders of coordinators' partitions move to other replicas |
| reassign coordinator | a coordinator's partition leaves its broker, and comes back |
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from ottla import Admin, TopicPartition
from ottla.client.administer import ElectionType
from ottla.client.errors import OttlaError
from support.cluster.client_network import ClientNetwork
from support.waiting import wait_until

_PRODUCE, _INIT, _ADD_PARTITIONS, _ADD_OFFSETS, _END, _COMMIT_OFFSETS = 0, 22, 24, 25, 26, 28
_OF_TRANSACTIONS: Final = (_PRODUCE, _INIT, _ADD_PARTITIONS, _ADD_OFFSETS, _END, _COMMIT_OFFSETS)
_RESTORE_S: Final = 90.0


class ClientFaults:
    """Belongs to one thread. `end` takes everything back."""

    def __init__(self, network: ClientNetwork, brokers: Sequence[int], chance: random.Random) -> None:
        self._network = network
        self._brokers = sorted(brokers)
        self._chance = chance
        self.kinds: dict[str, Callable[[], str]] = {
            "lose EndTxn": self._lose_ends,
            "lose answers": self._lose_answers,
            "cut clients": self._cut,
            "mute brokers": self._mute,
            "late requests": self._late_requests,
            "slow clients": self._slow,
        }

    def end(self) -> None:
        self._network.heal(lose_held=self._chance.random() < 0.5)

    def _some(self) -> list[int]:
        return self._chance.choice([self._brokers, [self._chance.choice(self._brokers)]])

    def _lose_ends(self) -> str:
        self._network.lose_answers(self._brokers, [_END], 0.5)
        return "half of the answers to EndTxn are lost"

    def _lose_answers(self) -> str:
        self._network.lose_answers(self._brokers, _OF_TRANSACTIONS, 0.05)
        return "some answers to requests of transactions are lost"

    def _cut(self) -> str:
        brokers = self._some()
        self._network.cut(brokers)
        return f"clients do not reach {brokers}"

    def _mute(self) -> str:
        brokers = self._some()
        self._network.hold(brokers, requests=False, answers=True)
        return f"answers of {brokers} do not reach clients"

    def _late_requests(self) -> str:
        brokers = self._some()
        self._network.hold(brokers, requests=True, answers=False)
        return f"requests of clients wait on their way to {brokers}"

    def _slow(self) -> str:
        most_s = self._chance.choice([0.02, 0.1, 0.5])
        self._network.slow_down(self._brokers, most_s)
        return f"delay of up to {most_s} s between clients and brokers"


class CoordinatorMoves:
    """Moves partitions of coordinators' topics. Belongs to one thread. `end` puts all replicas back, in another order:
    so the next election moves leaders too."""

    def __init__(
        self, admin: Admin, partitions: Sequence[TopicPartition], brokers: Sequence[int], chance: random.Random
    ) -> None:
        self._admin = admin
        self._partitions = partitions
        self._brokers = sorted(brokers)
        self._chance = chance
        self._shrunk: set[TopicPartition] = set()
        self.kinds: dict[str, Callable[[], str]] = {
            "move coordinator": self._move,
            "reassign coordinator": self._reassign,
        }

    def _order(self) -> list[int]:
        return self._chance.sample(self._brokers, len(self._brokers))

    def _move(self) -> str:
        """Only the order of the replicas changes, and with it the preferred leader."""
        replicas = {partition: self._order() for partition in self._partitions if partition not in self._shrunk}
        return self._put(replicas) or f"preferred leaders of coordinators: {_leaders(replicas)}"

    def _reassign(self) -> str:
        """To all brokers but one, which may be the leader."""
        partition = self._chance.choice(self._partitions)
        replicas = {partition: self._order()[:-1]}
        self._shrunk.add(partition)
        return self._put(replicas) or f"{partition} has the replicas {replicas[partition]}"

    def _put(self, replicas: dict[TopicPartition, list[int]]) -> str:
        """What went wrong."""
        try:
            self._admin.alter_partition_reassignments(replicas)
            self._admin.elect_leaders(ElectionType.PREFERRED, replicas)
        except OttlaError as error:  # another fault is in the way
            return f"moving {_leaders(replicas)}: {error}"
        return ""

    def end(self) -> None:
        if not self._shrunk:
            return
        replicas = {partition: self._order() for partition in self._shrunk}

        def is_restored() -> bool:
            try:
                self._admin.alter_partition_reassignments(replicas)
            except OttlaError:
                return False
            return True

        wait_until(is_restored, f"the replicas of {_leaders(replicas)} cannot be put back", _RESTORE_S)
        self._shrunk.clear()


def _leaders(replicas: dict[TopicPartition, list[int]]) -> str:
    return ", ".join(f"{partition} on {order[0]}" for partition, order in replicas.items())
