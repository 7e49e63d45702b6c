"""Groups on a broker of ours beside those on Apache Kafka: the same work for both, in turns, in one run.

Begin at `__main__`. `lines` says what is measured and against which target. The loads run in processes of their own,
by `driver`: `rebalances` lets groups grow and lose members, which are light (`classic`, `consumer`, over `member`) and
tell `ownership` what they consume; `commits` sends offsets that were made before; `load` fills and reads whole groups.
"""
