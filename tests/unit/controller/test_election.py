from __future__ import annotations

from dataclasses import replace

from ottla.controller.election import (
    NO_NODE,
    elect_first,
    elect_next,
    elect_preferred,
    unelected,
    without_leader,
)
from ottla.controller.state import NO_LEADER, PartitionState

LED = PartitionState(
    replicas=(1, 2, 3), leader=1, leader_epoch=5, isr=(3, 1, 2), controller_epoch=8, version=11, adding_replicas=(3,)
)


def test_a_new_partition_is_led_by_its_first_live_replica() -> None:
    new = unelected((1, 2, 3))
    assert (new.leader, new.version) == (NO_LEADER, NO_NODE)
    elected = elect_first(new, {2, 3}, controller_epoch=9)
    assert elected == PartitionState((1, 2, 3), leader=2, leader_epoch=0, isr=(2, 3), controller_epoch=9, version=0)
    assert elect_first(new, {4}, controller_epoch=9) is None


def test_the_next_leader_is_in_sync_and_first_in_the_assignment() -> None:
    assert elect_next(LED, {2, 3}, controller_epoch=9) == replace(
        LED, leader=2, leader_epoch=6, isr=(3, 2), controller_epoch=9, version=12
    )


def test_a_replica_out_of_sync_leads_only_if_that_is_allowed() -> None:
    behind = replace(LED, isr=(1,))
    assert elect_next(behind, {2, 3}, controller_epoch=9) is None
    elected = elect_next(behind, {2, 3}, controller_epoch=9, unclean=True)
    assert elected == replace(LED, leader=2, leader_epoch=6, isr=(2,), controller_epoch=9, version=12)
    assert elect_next(behind, {4}, controller_epoch=9, unclean=True) is None


def test_one_in_sync_is_taken_before_an_earlier_one_that_is_not() -> None:
    elected = elect_next(replace(LED, isr=(3,)), {2, 3}, controller_epoch=9, unclean=True)
    assert elected is not None
    assert (elected.leader, elected.isr) == (3, (3,))


def test_the_preferred_leader_must_live_and_be_in_sync() -> None:
    elsewhere = replace(LED, leader=2)
    assert elect_preferred(elsewhere, {1, 2}, controller_epoch=9) == replace(
        elsewhere, leader=1, leader_epoch=6, controller_epoch=9, version=12
    )
    assert elect_preferred(elsewhere, {2, 3}, controller_epoch=9) is None
    assert elect_preferred(replace(elsewhere, isr=(2, 3)), {1, 2, 3}, controller_epoch=9) is None


def test_without_a_leader_the_isr_is_kept() -> None:
    assert without_leader(LED, controller_epoch=9) == replace(
        LED, leader=NO_LEADER, leader_epoch=6, controller_epoch=9, version=12
    )
