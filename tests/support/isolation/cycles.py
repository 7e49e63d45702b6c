"""Information does not flow in circles (G1c): the graph of dependencies between visible transactions has no cycle.

| edge | from one transaction to another that |
| --- | --- |
| wr | consumed a value that the first wrote |
| ww | wrote after it in a partition |
| time | began after it was over |

Kafka lets transactions that overlap in time interleave their writes in any way: one may be first in this partition and
second in that (G0 is allowed). So ww edges count only between transactions that do not overlap, where each edge has to
agree with the order in time. A transaction's commit is decided between its beginning and its end, and after everything
that it read was; so on a correct system, all edges point from an earlier decision to a later one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from support.isolation.anomalies import Anomaly, Finding
from support.isolation.history import History, Transaction

Edges = dict[int, dict[int, str]]


def judge_cycles(history: History) -> Iterator[Finding]:
    writers = {value: one for value, (one, _) in history.writers().items()}
    named = {one.number: one for one in history.transactions}
    edges = _edges(history, writers)
    for cycle in _cycles(edges):
        steps = [f"{named[number]} -{edges[number][after]}-> " for number, after in _around(cycle, edges)]
        yield Finding(Anomaly.CYCLE, f"{''.join(steps)}{named[cycle[0]]}")


def _edges(history: History, writers: Mapping[int, Transaction]) -> Edges:
    edges: Edges = {}

    def add(one: Transaction, other: Transaction, kind: str) -> None:
        if one.number != other.number:
            edges.setdefault(one.number, {}).setdefault(other.number, kind)

    seen = {value for records in history.visible.values() for _, value in records}
    shown = {one.number for one in history.transactions if any(write.value in seen for write in one.writes)}
    for one in history.transactions:
        if one.number not in shown and one.writes:
            continue  # it was aborted, as far as anybody can see
        for read in one.reads:
            if read.value in writers:
                add(writers[read.value], one, "wr")
    for records in history.visible.values():
        written = [writers[value] for _, value in records if value in writers]
        for one, other in pairwise(written):
            if one.precedes(other):
                add(one, other, "ww")
        # The transaction with the earliest end, of those that come later in the log: it must not be over before one
        # that comes earlier in the log began.
        earliest: Transaction | None = None
        for one in reversed(written):
            if earliest is not None and earliest.precedes(one):
                add(one, earliest, "ww")
                add(earliest, one, "time")
            if one.ended_ns is not None and (
                earliest is None or earliest.ended_ns is None or one.ended_ns < earliest.ended_ns
            ):
                earliest = one
    return edges


def _cycles(edges: Edges) -> list[list[int]]:
    """The strongly connected components with more than one member (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(edges.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for after in rest:
                if after not in index:
                    index[after] = low[after] = len(index)
                    stack.append(after)
                    on_stack.add(after)
                    work.append((after, iter(edges.get(after, ()))))
                    break
                if after in on_stack:
                    low[node] = min(low[node], index[after])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == node:
                            break
                    if len(component) > 1:
                        found.append(component)
    return found


def _around(component: list[int], edges: Edges) -> list[tuple[int, int]]:
    """The steps of one shortest cycle through the first member."""
    members, start = set(component), component[0]
    before: dict[int, int] = {}
    wave = [start]
    while wave:
        following = []
        for node in wave:
            for after in edges.get(node, ()):
                if after == start:
                    steps = [(node, start)]
                    while node != start:
                        steps.append((before[node], node))
                        node = before[node]
                    return steps[::-1]
                if after in members and after not in before:
                    before[after] = node
                    following.append(after)
        wave = following
    raise AssertionError("a strongly connected component has a cycle through each member")
