"""Checks the isolation of transactions: a history of transactions and reads is recorded, and judged without I/O.

In the manner of Jepsen's tests of Kafka, Redpanda and Bufstream: writers append unique values to lists (a list is a
partition) in transactions over several lists, some aborted on purpose; processors consume, transform and produce with
their offsets in the transaction; readers poll with read_committed. `checker` says what may not happen.
"""
