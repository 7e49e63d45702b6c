"""The judge of a history: a list of findings, empty if all is well.

| anomaly | judged by |
| --- | --- |
| aborted and dirty reads, values from nowhere | `visibility.judge_reads` |
| torn transactions, lost and doubled writes | `visibility.judge_outcomes` |
| different values at one offset, moved values | `order.judge_places` |
| a producer's writes out of order | `order.judge_producers` |
| offsets without record or marker | `order.judge_holes` |
| consumers that go back or skip records | `order.judge_readers` |
| circular information flow | `cycles.judge_cycles` |
| inputs processed twice or not at all, offsets that go back | `processing.judge_processing` |
| prepared transactions that do not end as decided | `preparation.judge_decisions` |
| keys of compacted partitions without their last value | `compaction.judge_latest` |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from support.isolation.anomalies import Finding
from support.isolation.compaction import judge_latest
from support.isolation.cycles import judge_cycles
from support.isolation.history import History
from support.isolation.order import judge_holes, judge_places, judge_producers, judge_readers
from support.isolation.preparation import judge_decisions
from support.isolation.processing import judge_processing
from support.isolation.visibility import judge_outcomes, judge_reads

_JUDGES = (
    judge_reads,
    judge_outcomes,
    judge_places,
    judge_producers,
    judge_holes,
    judge_readers,
    judge_cycles,
    judge_processing,
    judge_decisions,
    judge_latest,
)
_SHOWN_MAX = 5


def check(history: History) -> list[Finding]:
    return [finding for judge in _JUDGES for finding in judge(history)]


def in_brief(findings: Sequence[Finding]) -> str:
    """For people: the first ones of each kind, and how many there are."""
    lines = []
    for anomaly, count in Counter(finding.anomaly for finding in findings).items():
        lines.append(f"{anomaly.value}: {count}")
        of_kind = [finding.what for finding in findings if finding.anomaly is anomaly]
        lines += [f"  {what}" for what in of_kind[:_SHOWN_MAX]]
    return "\n".join(lines)
