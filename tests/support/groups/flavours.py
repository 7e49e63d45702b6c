"""Who a member of a group can be: which client, in which protocol."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Flavour:
    """A client, the protocol it speaks, and who gets what: the assignor of the clients, or in the consumer protocol the
    broker's."""

    library: str
    protocol: str
    strategy: str

    def __str__(self) -> str:
        return f"{self.library}-{self.protocol}-{self.strategy}"


CONFLUENT = [
    Flavour("confluent", "classic", "range"),
    Flavour("confluent", "classic", "roundrobin"),
    Flavour("confluent", "classic", "cooperative-sticky"),
    Flavour("confluent", "consumer", "uniform"),
    Flavour("confluent", "consumer", "range"),
]
OTHERS = [
    Flavour("kafka_python", "classic", "range"),
    Flavour("kafka_python", "classic", "cooperative-sticky"),
    Flavour("aiokafka", "classic", "roundrobin"),
]
OURS = [
    Flavour("ottla", "classic", "range"),
    Flavour("ottla", "classic", "roundrobin"),
    Flavour("ottla", "classic", "sticky"),
    Flavour("ottla", "classic", "cooperative-sticky"),
    Flavour("ottla", "consumer", "uniform"),
    Flavour("ottla", "consumer", "range"),
]
FLAVOURS = [*CONFLUENT, *OTHERS, *OURS]
A_CLIENT_EACH = [CONFLUENT[0], CONFLUENT[3], OTHERS[0], OTHERS[2], OURS[0], OURS[4]]
"""For what does not depend on who gets what: each client in each protocol it speaks."""
