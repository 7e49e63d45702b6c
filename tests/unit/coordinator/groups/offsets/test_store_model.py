"""Offsets under any order of commits, transactions, deletions and expiry: as a plain model has them, and the same again
when another coordinator replays the log, compacted or not."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.groups.group import GroupSettings
from ottla.coordinator.key_values import iter_key_values
from ottla.records import BatchOptions, Record, encode_batch
from support.coordinators.committers import Committers
from support.coordinators.fake_log import FakeLog
from support.examples import examples

T = TypeVar("T")
HOUR_MS = 3_600_000

group_ids = st.sampled_from(["g", "g", "h"])
places = st.sampled_from([("t", 0), ("u", 1)])
offsets = st.dictionaries(places, st.integers(0, 1000), min_size=1)
producers = st.integers(1, 2)

Offsets = dict[tuple[str, int], int]


class OffsetsMachine(RuleBasedStateMachine):
    """The model: what counts, and what is pending, with the number of the commit that it is."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.groups = self.run_(self.made())
        self.commits = 0
        self.stored: dict[str, dict[tuple[str, int], tuple[int, int]]] = {"g": {}, "h": {}}
        self.pending: dict[int, dict[tuple[str, tuple[str, int]], tuple[int, int]]] = {}

    def run_(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    async def made(self, log: FakeLog | None = None) -> Committers:
        made = Committers(log, GroupSettings(offsets_retention_ms=HOUR_MS))
        while made.coordinator.runtime.is_loading:
            await asyncio.sleep(0)
        return made

    @rule(group_id=group_ids, committed=offsets)
    def commit(self, group_id: str, committed: Offsets) -> None:
        errors = self.run_(self.groups.commit(committed, group_id=group_id))
        assert set(errors) == {ErrorCode.NONE}
        self.commits += 1
        self.stored[group_id].update({place: (self.commits, offset) for place, offset in committed.items()})

    @rule(group_id=group_ids, producer_id=producers, committed=offsets)
    def commit_in_transaction(self, group_id: str, producer_id: int, committed: Offsets) -> None:
        self.run_(self.groups.commit_in_transaction(producer_id, committed, group_id=group_id))
        self.commits += 1
        pending = self.pending.setdefault(producer_id, {})
        pending.update({(group_id, place): (self.commits, offset) for place, offset in committed.items()})

    @rule(producer_id=producers, committed=st.booleans())
    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.groups.end_transaction(producer_id, committed=committed)
        for (group_id, place), offset in self.pending.pop(producer_id, {}).items():
            if committed:
                self.stored[group_id][place] = max(offset, self.stored[group_id].get(place, (0, 0)))

    @rule(group_id=group_ids, place=places)
    def delete(self, group_id: str, place: tuple[str, int]) -> None:
        self.run_(self.groups.delete(place, group_id=group_id))
        self.forget(group_id, place)

    @precondition(lambda self: self.commits % 4 == 0)  # seldom: little is left to go wrong afterwards
    @rule(topic=st.sampled_from(["t", "u"]))
    def delete_topic(self, topic: str) -> None:
        self.groups.coordinator.topics_deleted([topic])
        for group_id in self.stored:
            for index in range(2):
                self.forget(group_id, (topic, index))

    def forget(self, group_id: str, place: tuple[str, int]) -> None:
        self.stored[group_id].pop(place, None)
        for pending in self.pending.values():
            pending.pop((group_id, place), None)

    @precondition(lambda self: self.commits % 4 == 0)
    @rule()
    def let_time_pass(self) -> None:
        """Everything expires but what is pending."""
        self.groups.time.advance_ms(2 * HOUR_MS)
        kept = {key for pending in self.pending.values() for key in pending}
        for group_id, stored in self.stored.items():
            self.stored[group_id] = {place: each for place, each in stored.items() if (group_id, place) in kept}

    @invariant()
    def everything_is_as_the_model_has_it(self) -> None:
        self.check(self.groups)

    @rule(compacted=st.booleans())
    def load_again(self, compacted: bool) -> None:
        log = self.groups.log.copy()
        if compacted:
            log.batches = [compacted_as_far_as_it_may(log.batches[0])]
        now_ms = self.groups.time.now_ms()
        groups = self.run_(self.made(log))
        groups.time.set_now_ms(now_ms)
        self.check(groups)
        if not compacted:
            assert set(groups.shard.groups) == set(self.groups.shard.groups)
            self.groups = groups

    def check(self, groups: Committers) -> None:
        for group_id, stored in self.stored.items():
            wanted = {place: offset for place, (_, offset) in stored.items()}
            assert self.run_(groups.offsets(group_id)) == wanted
            store = groups.shard.offsets
            for topic in ("t", "u"):
                for index in range(2):
                    is_pending = any((group_id, (topic, index)) in each for each in self.pending.values())
                    assert store.is_pending(group_id, topic, index) == is_pending

    def teardown(self) -> None:
        self.groups.coordinator.close()
        self.loop.close()


def compacted_as_far_as_it_may(batches: list[bytes]) -> list[bytes]:
    """Up to the first transaction that is not over."""
    begun: dict[int, int] = {}
    for number, batch in enumerate(batches):
        ((header, found),) = iter_key_values(batch)
        if not isinstance(found, list):
            begun.pop(header.producer_id, None)
        elif header.is_transactional:
            begun.setdefault(header.producer_id, number)
    end = min(begun.values(), default=len(batches))
    return [*(compacted(batches[number:end]) for number in range(end)), *batches[end:]]


def compacted(batches: list[bytes]) -> bytes:
    """The first of them, without records that a later one of the same key supersedes; those of transactions stay."""
    ((header, found),) = iter_key_values(batches[0])
    if not isinstance(found, list) or header.is_transactional:
        return batches[0]
    later = set()
    for batch in batches[1:]:
        ((other, records),) = iter_key_values(batch)
        if isinstance(records, list) and not other.is_transactional:
            later |= {key for _, _, key, _ in records}
    kept = [Record(offset, time, key, value) for offset, time, key, value in found if key not in later]
    options = BatchOptions(base_offset=header.base_offset, last_offset_delta=header.last_offset_delta)
    return bytes(encode_batch(kept, options, keep_offsets=True))


TestOffsets = OffsetsMachine.TestCase
TestOffsets.settings = settings(max_examples=examples(40), stateful_step_count=50, deadline=None)
