"""One member of a group, as a process that can be killed.

Given a membership as JSON. It consumes, tells what it consumed and which partitions come and go, as lines of JSON, and
only then commits: whoever kills it can not make it forget a record. Ends, by leaving the group, when its input ends.
"""

from __future__ import annotations

import json
import select
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from support.groups.consumers import (
    Assigned,
    Consumed,
    Event,
    GroupRefusedError,
    Membership,
    join,
)
from support.groups.flavours import Flavour


def line_of(event: Event) -> list[Any]:
    if isinstance(event, Consumed):
        return ["consumed", *event.partition, event.offset, event.value]
    return ["assigned" if isinstance(event, Assigned) else "revoked", event.partitions]


def tell(events: Sequence[Event]) -> None:
    if events:
        sys.stdout.write("".join(json.dumps(line_of(event)) + "\n" for event in events))
        sys.stdout.flush()


def run(membership: Membership) -> None:
    consumer = join(membership)
    while not select.select([sys.stdin], [], [], 0)[0]:
        events = consumer.poll(0.1)
        tell(events)
        if membership.auto_commit_ms is None and any(isinstance(event, Consumed) for event in events):
            try:
                consumer.commit()
            except GroupRefusedError as error:  # a rebalance came between: others get these records again
                sys.stdout.write(json.dumps(["refused", error.code, str(error)]) + "\n")
    tell(consumer.close())


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    run(Membership(**{**given, "flavour": Flavour(**given["flavour"])}))
