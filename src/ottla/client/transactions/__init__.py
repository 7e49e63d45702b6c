"""Transactions of a producer: records in many partitions, and offsets of a group, that become visible together.

`states` says which call is allowed when, without I/O. `dialogue` asks the transaction coordinator. `coordination` ties
both to the sender of a producer (`ottla.client.produce`). `ottla.client.exactly_once` is a loop that consumes,
transforms and produces in transactions.
"""

from ottla.client.transactions.prepared import PreparedTransaction

__all__ = ["PreparedTransaction"]
