"""Background work on logs: checkpoints, flushes, retention, compaction, scrubbing, moves between log directories."""
