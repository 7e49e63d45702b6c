"""Our client beside the other Python clients, on one broker: the same work for all, in turns, in one run.

Begin at `__main__`. `conditions` says what is the same for all, `lines` what is measured and against which target. Each
turn of a client is a process of its own, by `driver`, that runs one of the loads: `producing`, `consuming`, `waiting`.
"""
