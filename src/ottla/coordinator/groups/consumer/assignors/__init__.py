"""Who of a group is to own which partitions: by Kafka's names, as clients ask for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ottla.base.ids import Uuid
from ottla.coordinator.groups.consumer.assignors.members import MemberSpec, Partitions
from ottla.coordinator.groups.consumer.assignors.ranges import assign_ranges
from ottla.coordinator.groups.consumer.assignors.uniform import assign_uniformly

Assignor = Callable[[Mapping[str, MemberSpec], Mapping[Uuid, int]], dict[str, Partitions]]
"""Given the members and how many partitions each topic has, what each member is to own. Every partition of a topic that
somebody subscribes to is given to exactly one of those. Who keeps what it had is given the very same object."""

ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
