"""The exactly-once sink: one transaction per task, one commit record per micro-batch.

`records` and `decisions` say what is to be done, without I/O; `identifiers` names transactions. `tasks` is what runs in
Spark's Python workers, with transactional ids of `places`; `driver` is what commits or aborts a batch, with the commit
topic of `commit_log`. The reasons are in docs/decisions/0017-exactly-once-sink.md.
"""
