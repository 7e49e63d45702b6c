"""What the runtime promises: append, then replay, then answer; over a log whose commits a test holds back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial, wraps
from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.key_values import KeyValue, Record, TransactionProducer
from ottla.coordinator.partitioning import partition_for
from ottla.coordinator.pending import PendingAnswer
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.shards import ShardContext, WriteOutcome
from ottla.records import BatchView, encode_transaction_marker
from ottla.records.new_batch import NewBatch
from support.coordinators.fake_log import FakeLog
from support.coordinators.simulated_time import SimulatedTime


class Words:
    """A shard that remembers what was replayed, in order. The value `bad`, and the end of the transaction of producer
    13, it takes only while it is loaded."""

    def __init__(self, context: ShardContext) -> None:
        self.context = context
        self.words: list[tuple[bytes, bytes | None, int]] = []
        self.transactions: list[tuple[int, bool]] = []
        self.is_loaded = False
        self.waiting: list[PendingAnswer[str]] = []

    def replay(self, records: Collection[Record], offsets: Sequence[int], producer_id: int, /) -> None:
        for (key, value), offset in zip(records, offsets, strict=True):
            if value == b"bad" and self.is_loaded:
                raise ValueError("cannot take it")
            self.words.append((key, value, offset) if producer_id < 0 else (key, value, producer_id))

    def replay_end_of_transaction(self, producer_id: int, *, committed: bool) -> None:
        if producer_id == 13 and self.is_loaded:
            raise ValueError("cannot take it")
        self.transactions.append((producer_id, committed))

    def loaded(self) -> None:
        self.is_loaded = True

    def unload(self) -> None:
        for each in self.waiting:
            each.answer("the shard is gone")

    def keys(self) -> list[bytes]:
        return [key for key, _, _ in self.words]


class Setting:
    def __init__(self, log: FakeLog | None = None) -> None:
        self.log = log or FakeLog()
        self.time = SimulatedTime()
        self.runtime = CoordinatorRuntime("words", self.log, self.time, self.time, Words)

    @property
    def shard(self) -> Words:
        return self.runtime.active_shards()[0]

    def write(self, *keys: bytes) -> str | Coroutine[Any, Any, str]:
        return self.runtime.write_now("k", lambda _: WriteOutcome("done", [KeyValue(key, b"v") for key in keys]))


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 30))

    return run


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def led() -> Setting:
    setting = Setting()
    setting.runtime.lead(0, 0)
    return setting


# --- writes ---------------------------------------------------------------------------------------------------------


@in_loop
async def test_a_write_is_one_batch_replayed_with_its_offsets_and_answered_at_once() -> None:
    setting = led()
    assert setting.write(b"a", b"b") == "done"
    assert await setting.runtime.write("k", lambda _: WriteOutcome("again", [KeyValue(b"c", None)])) == "again"
    assert setting.shard.words == [(b"a", b"v", 0), (b"b", b"v", 1), (b"c", None, 2)]
    assert len(setting.log.batches[0]) == 2


@in_loop
async def test_an_append_that_fails_changes_nothing_and_is_reported() -> None:
    setting = led()
    setting.write(b"a")
    setting.log.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    called: list[str] = []
    with pytest.raises(CoordinatorError) as caught:
        setting.runtime.write_now(
            "k", lambda _: WriteOutcome("done", [KeyValue(b"b", b"v")], on_appended=lambda: called.append("x"))
        )
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (setting.shard.keys(), called) == ([b"a"], [])
    setting.log.refuse_appends = None
    setting.write(b"c")
    assert setting.shard.keys() == [b"a", b"c"]


@in_loop
async def test_an_answer_that_is_known_at_once_is_returned_only_when_it_is_committed() -> None:
    setting = led()

    def decide(_: Words) -> WriteOutcome[str]:
        answer: PendingAnswer[str] = PendingAnswer()
        return WriteOutcome(answer, [KeyValue(b"a", b"v")], on_appended=lambda: answer.answer("here"))

    assert setting.runtime.write_now("k", decide) == "here"
    setting.log.hold_commits()
    later = setting.runtime.write_now("k", decide)
    assert isinstance(later, Coroutine)
    task = asyncio.create_task(later)
    await turns()
    assert not task.done()
    setting.log.commit()
    assert await task == "here"


class OneWord:
    """A write of one record without key and value."""

    count = 1

    def __init__(self, tell: Callable[[CoordinatorError | None], None]) -> None:
        self.tell = tell

    def decide(self, _: Words) -> bool:
        return True

    def encoded(self, first: int) -> bytes:
        return bytes([12, 0, 0, first << 1, 0, 1, 0])

    def records(self) -> list[list[Record]]:
        return [[(b"", None)] * self.count]


class LogOfOrder(FakeLog):
    """Notes what is appended; takes nothing for some partitions."""

    def __init__(self, partition_count: int) -> None:
        super().__init__(partition_count)
        self.events: list[object] = []
        self.refused: set[int] = set()

    def append(self, index: int, batch: NewBatch) -> int:
        self.events.append(("appended", index))
        if index in self.refused:
            raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return super().append(index, batch)


@in_loop
async def test_gathered_writes_are_all_appended_before_the_first_is_answered() -> None:
    log = LogOfOrder(3)
    setting = Setting(log)
    keys = {partition_for(str(number), 3): str(number) for number in range(30)}
    for index in keys:
        setting.runtime.lead(index, 0)
    log.refused = {1}
    for index, key in sorted(keys.items()):

        def told(error: CoordinatorError | None, index: int = index) -> None:
            log.events.append(("done" if error is None else error.code, index))

        assert setting.runtime.write_gathered(key, OneWord(told))
    assert log.events == []
    setting.time.advance_ms(0)
    assert log.events == [
        *[("appended", index) for index in range(3)],
        *[("done", 0), (ErrorCode.COORDINATOR_NOT_AVAILABLE, 1), ("done", 2)],
    ]


class ManyWords(OneWord):
    """So many that they begin a batch of their own; it may be that they cannot be replayed."""

    count = 20
    is_bad = False

    def encoded(self, first: int) -> bytes:
        return b"".join(super(ManyWords, self).encoded(first + number) for number in range(self.count))

    def records(self) -> list[list[Record]]:
        return [[(b"", b"bad")], [(b"", None)] * (self.count - 1)] if self.is_bad else super().records()


@in_loop
async def test_large_writes_have_batches_of_their_own_and_small_ones_join_them() -> None:
    setting = led()
    told: list[CoordinatorError | None] = []
    for kind in (OneWord, OneWord, ManyWords, ManyWords, OneWord):
        assert setting.runtime.write_gathered("k", kind(told.append))
    setting.time.advance_ms(0)
    assert told == [None] * 5
    assert [BatchView(batch).record_count for batch in setting.log.batches[0]] == [2, 20, 21]


@in_loop
async def test_a_failed_replay_fails_all_later_writes_and_reloads_the_shard() -> None:
    setting = led()
    told: dict[str, CoordinatorError | None] = {}
    for name, kind in {"before": ManyWords, "bad": ManyWords, "behind": ManyWords, "last": OneWord}.items():
        write = kind(partial(told.__setitem__, name))
        write.is_bad = name == "bad"  # type: ignore[attr-defined]  # of one that has none it is not asked
        assert setting.runtime.write_gathered("k", write)
    setting.time.advance_ms(0)
    assert told.pop("before") is None
    assert [error.code for error in told.values() if error is not None] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 3
    assert [BatchView(batch).record_count for batch in setting.log.batches[0]] == [20, 20]
    await asyncio.sleep(0)
    assert setting.runtime.write_gathered("k", OneWord(lambda _: None))


class BrokenLog(LogOfOrder):
    """Raises what the seam does not allow, for some partitions, before or after it has appended."""

    before: frozenset[int] = frozenset()
    after: frozenset[int] = frozenset()

    def append(self, index: int, batch: NewBatch) -> int:
        if index in self.before:
            raise ValueError("a bug")
        end = super().append(index, batch)
        if index in self.after:
            raise ValueError("a bug")
        return end


@in_loop
async def test_an_unforeseen_error_of_one_partition_leaves_no_gathered_write_unanswered() -> None:
    log = BrokenLog(4)
    setting = Setting(log)
    keys = {partition_for(str(number), 4): str(number) for number in range(40)}
    for index in keys:
        setting.runtime.lead(index, 0)
    log.before, log.after = frozenset({0}), frozenset({2})
    told: dict[int, object] = {}

    def tell(index: int, error: CoordinatorError | None) -> None:
        told[index] = error and error.code
        if index == 1:
            raise ValueError("a bug in the one that is told")

    for index, key in sorted(keys.items()):
        assert setting.runtime.write_gathered(key, OneWord(partial(tell, index)))
    setting.time.advance_ms(0)
    unknown = ErrorCode.UNKNOWN_SERVER_ERROR
    assert told == {0: unknown, 1: None, 2: unknown, 3: None}
    await turns()
    log.before = log.after = frozenset()
    for index, key in keys.items():
        assert setting.runtime.write_gathered(key, OneWord(partial(tell, index)))
    setting.time.advance_ms(0)
    assert set(told.values()) == {None}


class Unencodable(ManyWords):
    def encoded(self, first: int) -> bytes:
        raise ValueError(f"cannot be written behind {first}")


@in_loop
async def test_a_gathered_write_that_cannot_be_encoded_fails_alone() -> None:
    setting = led()
    told: dict[str, CoordinatorError | None] = {}
    for name, kind in {"before": ManyWords, "bad": Unencodable, "behind": ManyWords}.items():
        assert setting.runtime.write_gathered("k", kind(partial(told.__setitem__, name)))
    setting.time.advance_ms(0)
    error = told.pop("bad")
    assert error is not None
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert told == {"before": None, "behind": None}


@in_loop
async def test_after_an_unforeseen_error_the_shard_has_what_the_log_has() -> None:
    log = BrokenLog(1)
    setting = Setting(log)
    setting.runtime.lead(0, 0)
    log.after = frozenset({0})
    failed: list[ErrorCode] = []
    outcome = WriteOutcome("done", [KeyValue(b"a", b"v")], on_failed=lambda error: failed.append(error.code))
    with pytest.raises(CoordinatorError):
        setting.runtime.write_now("k", lambda _: outcome)
    assert failed == [ErrorCode.UNKNOWN_SERVER_ERROR]
    await turns()
    assert setting.shard.keys() == [b"a"]


@in_loop
async def test_nothing_is_asked_of_a_shard_that_a_gathered_write_had_unloaded() -> None:
    """What it decides would be kept in a shard that is gone: whoever waits there waits for ever."""
    log = BrokenLog(1)
    setting = Setting(log)
    setting.runtime.lead(0, 0)
    setting.write(b"a")  # so that loading takes more than a turn of the loop
    log.after = frozenset({0})
    asked: list[str] = []

    def decide(_: Words) -> WriteOutcome[str]:
        asked.append("write")
        return WriteOutcome("done")

    def own() -> WriteOutcome[None]:
        asked.append("own")
        return WriteOutcome(None)

    def fail_gathered() -> ShardContext:
        """Leaves a write that will fail when it is appended."""
        assert setting.runtime.write_gathered("k", OneWord(lambda error: told.append(error.code if error else None)))
        return setting.shard.context

    told: list[ErrorCode | None] = []
    fail_gathered()
    with pytest.raises(CoordinatorError, match=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.description):
        setting.runtime.write_now("k", decide)
    await turns()
    fail_gathered()
    with pytest.raises(CoordinatorError, match=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.description):
        setting.runtime.read_now("k", lambda _: asked.append("read"))
    await turns()
    fail_gathered().write(own)
    assert told == [ErrorCode.UNKNOWN_SERVER_ERROR] * 3
    assert asked == []


@in_loop
async def test_a_failed_write_of_the_shard_itself_is_reported_to_waiting_callers() -> None:
    setting = led()
    setting.log.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    failed: list[ErrorCode] = []
    outcome = WriteOutcome(None, [KeyValue(b"a", b"v")], on_failed=lambda error: failed.append(error.code))
    setting.shard.context.write(lambda: outcome)
    assert failed == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


@in_loop
async def test_a_write_that_raises_appends_nothing() -> None:
    setting = led()

    def refuse(_: Words) -> WriteOutcome[str]:
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)

    with pytest.raises(CoordinatorError) as caught:
        await setting.runtime.write("k", refuse)
    assert caught.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert setting.log.batches == [[]]


@in_loop
async def test_soft_state_changes_after_the_replay_and_before_the_answer() -> None:
    setting = led()
    seen: list[list[bytes]] = []
    record = KeyValue(b"a", b"v")
    outcome = WriteOutcome("done", [record], on_appended=lambda: seen.append(setting.shard.keys()))
    setting.log.hold_commits()
    answer = setting.runtime.write_now("k", lambda _: outcome)
    assert seen == [[b"a"]]
    setting.log.commit()
    assert isinstance(answer, Coroutine)
    assert await answer == "done"


@in_loop
async def test_the_answer_to_a_write_waits_until_it_is_committed() -> None:
    setting = led()
    setting.log.hold_commits()
    answer = asyncio.ensure_future(setting.runtime.write("k", lambda _: WriteOutcome("done", [KeyValue(b"a", b"v")])))
    await turns()
    assert setting.shard.keys() == [b"a"]
    assert not answer.done()
    setting.log.commit()
    assert await answer == "done"


@in_loop
async def test_an_uncertain_commit_is_reported() -> None:
    setting = led()
    setting.log.hold_commits()
    answer = setting.write(b"a")
    assert isinstance(answer, Coroutine)
    task = asyncio.ensure_future(answer)
    await turns()
    setting.log.fail_commits(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    with pytest.raises(CoordinatorError) as caught:
        await task
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


@in_loop
async def test_a_write_without_records_waits_for_those_before_it() -> None:
    setting = led()
    setting.log.hold_commits()
    first = setting.write(b"a")
    answer = asyncio.ensure_future(setting.runtime.write("k", lambda shard: WriteOutcome(len(shard.words))))
    await turns()
    assert not answer.done()
    setting.log.commit()
    assert await answer == 1
    assert isinstance(first, Coroutine)
    await first


@in_loop
async def test_a_response_can_come_later() -> None:
    setting = led()
    response: PendingAnswer[str] = PendingAnswer()
    answer = asyncio.ensure_future(
        setting.runtime.write("k", lambda _: WriteOutcome[str](response, [KeyValue(b"a", b"v")]))
    )
    await turns()
    assert setting.shard.keys() == [b"a"]
    assert not answer.done()
    response.answer("later")
    assert await answer == "later"


@in_loop
async def test_a_shard_that_cannot_take_what_it_wrote_is_loaded_again() -> None:
    setting = led()
    setting.write(b"a")
    broken = setting.shard
    with pytest.raises(CoordinatorError) as caught:
        setting.runtime.write_now("k", lambda _: WriteOutcome("done", [KeyValue(b"b", b"v"), KeyValue(b"c", b"bad")]))
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    await turns()
    assert setting.shard is not broken
    assert setting.shard.keys() == [b"a", b"b", b"c"]


# --- reads ----------------------------------------------------------------------------------------------------------


@in_loop
async def test_a_read_answers_at_once_where_all_is_committed() -> None:
    setting = led()
    setting.write(b"a")
    assert setting.runtime.read_now("k", lambda shard: shard.keys()) == [b"a"]
    assert await setting.runtime.read_all(lambda shard: shard.keys()) == [[b"a"]]


@in_loop
async def test_a_read_waits_for_the_commit_of_what_it_saw_and_not_for_later_writes() -> None:
    setting = led()
    setting.log.hold_commits()
    writes = [setting.write(b"a")]
    read = asyncio.ensure_future(setting.runtime.read("k", lambda shard: shard.keys()))
    read_all = asyncio.ensure_future(setting.runtime.read_all(lambda shard: shard.keys()))
    await turns()
    writes.append(setting.write(b"b"))
    assert not read.done()
    assert not read_all.done()
    setting.log.commit()
    assert await read == [b"a"]
    assert await read_all == [[b"a"]]
    for write in writes:
        assert isinstance(write, Coroutine)
        await write


@in_loop
async def test_a_read_of_all_shards_asks_none_that_was_unloaded_meanwhile() -> None:
    setting = Setting(FakeLog(2))
    keys = {partition_for(str(number), 2): str(number) for number in range(20)}
    for index in keys:
        setting.runtime.lead(index, 0)
    setting.log.hold_commits()
    writes = [
        setting.runtime.write_now(key, lambda _, key=key: WriteOutcome("done", [KeyValue(key.encode(), b"v")]))  # type: ignore[misc]
        for _, key in sorted(keys.items())
    ]
    asked: list[Words] = []

    def ask(shard: Words) -> list[bytes]:
        assert shard in setting.runtime.active_shards()
        asked.append(shard)
        return shard.keys()

    reading = asyncio.ensure_future(setting.runtime.read_all(ask))
    await turns()
    assert len(asked) == 2
    setting.runtime.unload(1)
    setting.log.commit()
    assert await reading == [[keys[0].encode()], [keys[1].encode()]]
    for write in writes:
        assert isinstance(write, Coroutine)
        await write


@in_loop
async def test_a_read_of_all_shards_leaves_out_one_that_went_elsewhere() -> None:
    setting = led()
    setting.log.hold_commits()
    write = setting.write(b"a")
    reading = asyncio.ensure_future(setting.runtime.read_all(lambda shard: shard.keys()))
    await turns()
    setting.log.fail_commits(ErrorCode.NOT_COORDINATOR)
    assert await reading == []
    assert isinstance(write, Coroutine)
    setting.log.commit()
    await write


@in_loop
async def test_a_read_of_what_may_be_lost_fails() -> None:
    setting = led()
    setting.log.hold_commits()
    write = setting.write(b"a")
    read = asyncio.ensure_future(setting.runtime.read("k", lambda shard: shard.keys()))
    await turns()
    setting.log.fail_commits(ErrorCode.NOT_COORDINATOR)
    with pytest.raises(CoordinatorError):
        await read
    setting.log.commit()
    assert isinstance(write, Coroutine)
    await write


# --- shards come and go ---------------------------------------------------------------------------------------------


@in_loop
async def test_a_shard_is_loaded_by_replaying_its_partition() -> None:
    setting = led()
    for number in range(3):
        setting.write(b"%d" % number, b"x")
    marker = encode_transaction_marker(
        producer_id=9, producer_epoch=0, committed=True, coordinator_epoch=0, timestamp_ms=1
    )
    outcome = WriteOutcome("done", [KeyValue(b"t", b"v")], producer=TransactionProducer(9, 0))
    setting.runtime.write_now("k", lambda _: outcome)
    setting.runtime.end_transaction(0, setting.log.put(0, marker), 9, committed=True)
    assert setting.shard.transactions == [(9, True)]
    other = Setting(setting.log.copy())
    other.runtime.lead(0, 1)
    assert other.runtime.is_loading
    await turns()
    assert (other.shard.words, other.shard.transactions) == (setting.shard.words, setting.shard.transactions)
    assert other.shard.words[-1] == (b"t", b"v", 9)
    assert other.shard.is_loaded


@in_loop
async def test_what_is_gathered_when_a_marker_comes_is_waited_for() -> None:
    setting = led()
    marker = encode_transaction_marker(
        producer_id=9, producer_epoch=0, committed=True, coordinator_epoch=0, timestamp_ms=1
    )
    assert setting.runtime.write_gathered("k", OneWord(lambda _: None))
    end = setting.log.put(0, marker)
    setting.log.hold_commits()
    setting.runtime.end_transaction(0, end, 9, committed=True)  # appends what is gathered, after the marker
    read = asyncio.ensure_future(setting.runtime.read("k", lambda shard: shard.keys()))
    await turns()
    assert not read.done()
    setting.log.commit()
    assert len(await read) == 1


@in_loop
async def test_a_marker_that_cannot_be_replayed_is_read_from_the_log() -> None:
    setting = led()
    marker = encode_transaction_marker(
        producer_id=13, producer_epoch=0, committed=True, coordinator_epoch=0, timestamp_ms=1
    )
    setting.runtime.end_transaction(0, setting.log.put(0, marker), 13, committed=True)
    await turns()
    assert setting.shard.transactions == [(13, True)]


@in_loop
async def test_requests_are_refused_until_the_shard_is_loaded() -> None:
    setting = led()
    setting.write(b"a")
    other = Setting(setting.log.copy())
    assert refusal(other) is ErrorCode.NOT_COORDINATOR
    other.runtime.lead(0, 0)
    assert refusal(other) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await turns()
    assert other.write(b"b") == "done"
    assert other.shard.words[-1] == (b"b", b"v", 1)
    other.runtime.unload(0)
    assert refusal(other) is ErrorCode.NOT_COORDINATOR


def refusal(setting: Setting) -> ErrorCode:
    with pytest.raises(CoordinatorError) as caught:
        setting.write(b"x")
    return caught.value.code


@in_loop
async def test_there_is_no_coordinator_without_its_topic() -> None:
    setting = Setting(FakeLog(0))
    assert refusal(setting) is ErrorCode.COORDINATOR_NOT_AVAILABLE


@in_loop
async def test_a_new_epoch_of_the_same_leader_keeps_the_shard_and_a_new_leadership_loads_it() -> None:
    setting = led()
    setting.write(b"a")
    shard = setting.shard
    response: PendingAnswer[str] = PendingAnswer()
    answer = asyncio.ensure_future(setting.runtime.write("k", lambda _: WriteOutcome[str](response)))
    await turns()
    setting.runtime.lead(0, 0)
    setting.runtime.lead(0, 1)  # an in-sync replica died, for instance
    assert setting.shard is shard
    response.answer("joined")
    assert await answer == "joined"
    setting.runtime.unload(0)
    setting.runtime.lead(0, 2)
    await turns()
    assert setting.shard is not shard
    assert setting.shard.keys() == [b"a"]


@in_loop
async def test_an_unreadable_log_leaves_the_shard_unserved_until_the_next_leadership() -> None:
    setting = led()
    setting.write(b"a")
    sound = setting.log.batches[0][0]
    setting.log.batches[0] = [sound[:-1] + b"?"]
    setting.runtime.unload(0)
    setting.runtime.lead(0, 1)
    assert refusal(setting) is ErrorCode.NOT_COORDINATOR
    setting.log.batches[0] = [sound[:-1]]  # cut off, and nothing follows
    setting.runtime.lead(0, 1)
    assert refusal(setting) is ErrorCode.NOT_COORDINATOR
    setting.log.batches[0] = [sound]
    setting.runtime.lead(0, 1)
    await turns()
    assert setting.shard.keys() == [b"a"]


@in_loop
async def test_unloading_answers_waiting_callers_and_ends_timers() -> None:
    setting = led()
    shard = setting.shard
    response: PendingAnswer[str] = PendingAnswer()
    shard.waiting.append(response)
    answer = asyncio.ensure_future(setting.runtime.write("k", lambda _: WriteOutcome[str](response)))
    shard.context.schedule("late", 1, lambda: WriteOutcome(None, [KeyValue(b"late", b"v")]))
    await turns()
    setting.runtime.close()
    assert await answer == "the shard is gone"
    setting.time.advance_ms(5_000)
    assert setting.log.batches == [[]]


@in_loop
async def test_a_shard_that_is_unloaded_while_it_loads_never_serves() -> None:
    setting = led()
    setting.write(b"a")
    setting.runtime.unload(0)
    setting.runtime.lead(0, 1)
    assert setting.runtime.is_loading
    setting.runtime.unload(0)
    await turns()
    assert setting.runtime.active_shards() == []


# --- timers ---------------------------------------------------------------------------------------------------------


@in_loop
async def test_a_timer_writes_when_it_is_due_and_one_of_its_name_replaces_it() -> None:
    setting = led()
    context = setting.shard.context
    context.schedule("t", 1, lambda: WriteOutcome(None, [KeyValue(b"first", b"v")]))
    context.schedule("t", 2, lambda: WriteOutcome(None, [KeyValue(b"second", b"v")]))
    context.schedule("other", 2, lambda: WriteOutcome(None, [KeyValue(b"other", b"v")]))
    setting.time.advance_ms(1_999)
    assert context.is_scheduled("t")
    context.cancel("other")
    assert setting.shard.keys() == []
    setting.time.advance_ms(1)
    assert setting.shard.keys() == [b"second"]
    assert not context.is_scheduled("t")


@in_loop
async def test_a_timer_whose_write_fails_leaves_the_shard_as_it_is() -> None:
    setting = led()
    context = setting.shard.context

    def broken() -> WriteOutcome[None]:
        raise ValueError("a bug")

    context.schedule("broken", 1, broken)
    context.schedule("refused", 2, lambda: WriteOutcome(None, [KeyValue(b"a", b"v")]))
    setting.time.advance_ms(1_000)
    setting.log.refuse_appends = ErrorCode.NOT_COORDINATOR
    setting.time.advance_ms(1_000)
    setting.log.refuse_appends = None
    assert setting.shard.keys() == []
    assert setting.write(b"b") == "done"


# --- what a shard waits for -----------------------------------------------------------------------------------------


@in_loop
async def test_a_shard_is_notified_when_all_its_writes_are_committed_if_it_asked() -> None:
    setting = led()
    setting.write(b"a")
    told: list[str] = []
    setting.shard.context.when_committed(lambda: told.append("a"))
    assert told == []
    setting.time.advance_ms(0)
    assert told == ["a"]
    setting.log.hold_commits()
    waiting = setting.write(b"b")
    setting.shard.context.when_committed(lambda: told.append("b"))
    setting.time.advance_ms(1_000)
    assert told == ["a"]
    setting.log.commit()
    setting.time.advance_ms(0)
    assert told == ["a", "b"]
    assert isinstance(waiting, Coroutine)
    await waiting


@in_loop
async def test_a_shard_waits_on_if_a_commit_takes_long() -> None:
    setting = led()
    setting.log.hold_commits()
    write = setting.write(b"a")
    assert isinstance(write, Coroutine)
    write.close()
    told: list[str] = []
    setting.shard.context.when_committed(lambda: told.append("a"))
    setting.time.advance_ms(0)
    for error in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_COORDINATOR):
        setting.log.fail_commits(error)
        setting.time.advance_ms(1_000)
    assert told == []
    setting.log.commit()
    setting.time.advance_ms(0)
    assert told == ["a"]


@in_loop
async def test_an_unloaded_shard_is_not_notified_of_commits() -> None:
    setting = led()
    setting.log.hold_commits()
    write = setting.write(b"a")
    assert isinstance(write, Coroutine)
    write.close()
    told: list[str] = []
    setting.shard.context.when_committed(lambda: told.append("waiting in the log"))
    setting.time.advance_ms(0)
    setting.shard.context.when_committed(lambda: told.append("not looked yet"))
    before = setting.shard
    setting.runtime.unload(0)
    setting.runtime.lead(0, 1)
    await turns()
    before.context.when_committed(lambda: told.append("too late"))
    setting.log.commit()
    setting.time.advance_ms(1_000)
    assert told == []


@in_loop
async def test_a_failing_waiter_does_not_affect_a_commit(caplog: pytest.LogCaptureFixture) -> None:
    setting = led()

    def fail() -> None:
        raise ValueError("no")

    told: list[str] = []
    setting.shard.context.when_committed(fail)
    setting.shard.context.when_committed(lambda: told.append("next"))
    setting.time.advance_ms(0)
    assert told == ["next"]
    assert "what waited for a commit failed" in caplog.text


@in_loop
async def test_a_shard_knows_the_epoch_of_its_leader() -> None:
    setting = led()
    shard = setting.shard
    assert shard.context.leader_epoch == 0
    setting.runtime.lead(0, 7)
    assert setting.shard is shard
    assert shard.context.leader_epoch == 7
