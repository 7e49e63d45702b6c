"""Coordinators by their internal topic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.base.ids import TopicPartition
from ottla.broker.coordinators.coordinators import Coordinators


class Recorder:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def lead(self, index: int, leader_epoch: int) -> None:
        self.calls.append((index, leader_epoch))

    def resign(self, index: int) -> None:
        self.calls.append(index)

    def close(self) -> None:
        self.calls.append("closed")


def log(topic: str) -> Any:
    return SimpleNamespace(topic=topic)


def test_each_coordinator_moves_with_its_own_topic() -> None:
    groups, transactions = Recorder(), Recorder()
    coordinators = Coordinators()
    coordinators.add(log("__consumer_offsets"), groups, "groups")
    coordinators.add(log("__transaction_state"), transactions, "transactions")
    coordinators.lead(TopicPartition("__transaction_state", 3), 5)
    coordinators.lead(TopicPartition("__consumer_offsets", 1), 2)
    coordinators.lead(TopicPartition("orders", 1), 2)
    coordinators.resign(TopicPartition("__consumer_offsets", 1))
    coordinators.resign(TopicPartition("orders", 1))
    assert (groups.calls, transactions.calls) == ([(1, 2), 1], [(3, 5)])
    coordinators.close()
    assert (groups.calls[-1], transactions.calls[-1]) == ("closed", "closed")


def test_which_topics_have_a_coordinator() -> None:
    coordinators = Coordinators()
    coordinators.add(log("__consumer_offsets"), Recorder(), "groups")
    assert "__consumer_offsets" in coordinators
    assert "orders" not in coordinators
    assert [each.purpose for each in coordinators.of(["orders", "__consumer_offsets"])] == ["groups"]
    assert coordinators.of([]) == []
