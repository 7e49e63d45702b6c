"""Prepared transactions (KIP-939) end as their application decided, whoever completes them."""

from __future__ import annotations

from collections.abc import Iterator

from support.isolation.anomalies import Anomaly, Finding
from support.isolation.history import History


def judge_decisions(history: History) -> Iterator[Finding]:
    visible = {value for records in history.visible.values() for _, value in records}
    for one in history.transactions:
        if not one.is_prepared:
            continue
        decision = history.decisions.get(one.number)
        shown = [write for write in one.writes if write.value in visible]
        if decision:
            missing = [write for write in one.writes if write.value not in visible]
            lost = [write for write in missing if write.place not in history.compacted]
            if lost:
                what = f"{len(lost)} of {len(one.writes)} writes of {one} are missing; it was decided to commit it"
                yield Finding(Anomaly.DECISION_BROKEN, what)
        elif shown:
            why = "nothing was decided" if decision is None else "it was decided to abort it"
            yield Finding(Anomaly.DECISION_BROKEN, f"{len(shown)} writes of {one} are visible; {why}")
