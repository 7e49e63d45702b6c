"""Reads a log of ours as a consumer does, through fetches of limited size."""

from __future__ import annotations

from ottla.log.partition_log import PartitionLog
from ottla.records import BatchView, Record, decode_batch, iter_batches, read_transaction_marker

FETCH_BYTES = 3000
"""Ends in the middle of a batch more often than not."""


def read_all(log: PartitionLog, *, committed: bool = False) -> list[Record]:
    """All data from the log's start on; only what is committed if asked for, found by the aborted transactions that
    come with each fetch."""
    records: list[Record] = []
    offset = log.log_start_offset
    bound = log.last_stable_offset if committed else log.next_offset
    while True:
        found = log.read(offset, FETCH_BYTES, bound=bound, with_aborted=committed)
        if found.slice is None:
            return records
        waiting = sorted(found.aborted_transactions or (), key=lambda aborted: aborted.first_offset)
        doomed: set[int] = set()
        for batch in iter_batches(found.slice.read(), partial_tail=True):
            while waiting and waiting[0].first_offset <= batch.last_offset:
                doomed.add(waiting.pop(0).producer_id)
            if batch.header.is_control:
                if _aborts(batch):
                    doomed.discard(batch.header.producer_id)
            elif not (committed and batch.header.is_transactional and batch.header.producer_id in doomed):
                records += [record for record in decode_batch(batch) if record.offset >= offset]
            offset = batch.next_offset


def _aborts(batch: BatchView) -> bool:
    marker = read_transaction_marker(batch)
    return marker is not None and not marker.committed
