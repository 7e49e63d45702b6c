"""Assigns partitions to the members of a group. The names are Kafka's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ottla.base.ids import Uuid
from ottla.coordinator.groups.consumer.assignors.members import MemberSpec, Partitions
from ottla.coordinator.groups.consumer.assignors.ranges import assign_ranges
from ottla.coordinator.groups.consumer.assignors.uniform import assign_uniformly

Assignor = Callable[[Mapping[str, MemberSpec], Mapping[Uuid, int]], dict[str, Partitions]]
"""Given the members and the partition count of each topic, returns the target assignment of each member. Every
partition of a subscribed topic is assigned to exactly one subscriber. A member whose assignment is unchanged gets the
same object."""

ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
