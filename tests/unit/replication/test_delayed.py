"""Operations that wait: woken by what they wait for, ended by their time, and never both."""

from __future__ import annotations

import asyncio

import pytest

from models.step_loop import StepLoop
from ottla.replication.delayed import DelayedOperation, Purgatory

WAIT_S = 20.0


class Countdown(DelayedOperation[str]):
    """Is ready when it was told of changes so many times."""

    def __init__(self, changes: int) -> None:
        super().__init__()
        self.left = changes
        self.seen: list[str] = []
        self.completed = 0
        self.ended = asyncio.Event()

    def is_ready(self, key: str) -> bool:
        self.seen.append(key)
        self.left -= 1
        return self.left <= 0

    def complete(self) -> None:
        self.completed += 1
        self.ended.set()


async def turn() -> None:
    """Lets the loop do what was put off until it is free."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def new_purgatory() -> Purgatory[str]:
    return Purgatory("test", asyncio.get_running_loop())


def test_an_operation_ends_with_the_change_it_waits_for() -> None:
    async def work() -> None:
        purgatory = new_purgatory()
        operation = Countdown(2)
        purgatory.wait(operation, ["a", "b"], WAIT_S)
        purgatory.changed("a")
        await turn()
        assert (operation.completed, len(purgatory)) == (0, 1)
        purgatory.changed("b")
        await turn()
        assert operation.seen == ["a", "b"]
        assert (operation.completed, len(purgatory), purgatory.expired_count) == (1, 0, 0)
        purgatory.changed("a")
        await turn()
        assert operation.seen == ["a", "b"]

    asyncio.run(work())


def test_changes_of_one_moment_are_looked_at_once() -> None:
    async def work() -> None:
        purgatory = new_purgatory()
        operation = Countdown(3)
        purgatory.wait(operation, ["a"], WAIT_S)
        for _ in range(10):
            purgatory.changed("a")
        await turn()
        assert operation.seen == ["a"]
        purgatory.close()

    asyncio.run(work())


def test_changes_can_be_checked_before_the_end_of_the_turn() -> None:
    async def work() -> None:
        purgatory = new_purgatory()
        operation = Countdown(2)
        purgatory.wait(operation, ["a", "b"], WAIT_S)
        purgatory.look_now()
        assert operation.seen == []
        purgatory.changed("a")
        purgatory.look_now()
        assert operation.seen == ["a"]
        await turn()
        assert operation.seen == ["a"]
        purgatory.changed("b")
        await turn()
        assert (operation.seen, operation.completed) == (["a", "b"], 1)

    asyncio.run(work())


def test_an_operation_ends_with_its_time() -> None:
    async def work() -> None:
        purgatory = new_purgatory()
        operation = Countdown(1)
        purgatory.wait(operation, ["a"], 0.001)
        await asyncio.wait_for(operation.ended.wait(), WAIT_S)
        assert (operation.completed, len(purgatory), purgatory.expired_count) == (1, 0, 1)
        purgatory.changed("a")
        await turn()
        assert operation.completed == 1

    asyncio.run(work())


def test_other_keys_wake_nobody() -> None:
    async def work() -> None:
        purgatory = new_purgatory()
        operation = Countdown(1)
        purgatory.wait(operation, ["a"], WAIT_S)
        purgatory.changed("b")
        await turn()
        assert operation.seen == []
        purgatory.cancel(operation)
        assert (operation.completed, len(purgatory)) == (0, 0)

    asyncio.run(work())


def test_one_that_fails_to_look_is_completed_and_the_others_are_looked_at() -> None:
    class Failing(Countdown):
        def is_ready(self, key: str) -> bool:
            raise RuntimeError(key)

    async def work() -> None:
        purgatory = new_purgatory()
        failing, fine = Failing(1), Countdown(1)
        purgatory.wait(failing, ["a"], WAIT_S)
        purgatory.wait(fine, ["a"], WAIT_S)
        purgatory.changed("a")
        await turn()
        assert (failing.completed, fine.completed) == (1, 1)

    asyncio.run(work())


class Breaking(Countdown):
    """Cannot be completed."""

    def complete(self) -> None:
        super().complete()
        raise RuntimeError("broken")


def test_one_that_cannot_be_completed_takes_no_wake_up_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        purgatory = new_purgatory()
        before, breaking, behind, elsewhere = Countdown(1), Breaking(1), Countdown(1), Countdown(1)
        for operation in (before, breaking, behind):
            purgatory.wait(operation, ["a"], WAIT_S)
        purgatory.wait(elsewhere, ["b"], WAIT_S)
        purgatory.changed("a")
        purgatory.changed("b")
        purgatory.look_now()
        assert [each.completed for each in (before, breaking, behind, elsewhere)] == [1, 1, 1, 1]
        assert len(purgatory) == 0

    asyncio.run(work())
    assert caplog.text.count("a delayed test could not be completed") == 1
    caplog.clear()


def test_closing_continues_after_one_that_cannot_be_completed(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        purgatory = new_purgatory()
        operations = [Breaking(1), Countdown(1)]
        for operation in operations:
            purgatory.wait(operation, ["a"], WAIT_S)
        purgatory.close()
        assert [each.completed for each in operations] == [1, 1]

    asyncio.run(work())
    caplog.clear()


def test_closing_ends_everything_that_waits_once() -> None:
    async def work() -> None:
        purgatory = new_purgatory()
        operations = [Countdown(1) for _ in range(5)]
        for operation in operations:
            purgatory.wait(operation, ["a", "b"], WAIT_S)
        purgatory.close()
        assert [operation.completed for operation in operations] == [1] * 5
        assert len(purgatory) == 0

    asyncio.run(work())


def test_a_wait_can_be_shortened_but_not_prolonged() -> None:
    async def work() -> None:
        purgatory = new_purgatory()
        hastened, short = Countdown(1), Countdown(1)
        purgatory.wait(hastened, ["a"], WAIT_S)
        purgatory.wait(short, ["a"], 0.001)
        purgatory.hasten(hastened, 0.001)
        purgatory.hasten(short, WAIT_S)
        async with asyncio.timeout(WAIT_S / 2):
            await hastened.ended.wait()
            await short.ended.wait()
        purgatory.hasten(hastened, 0.001)
        assert (hastened.completed, short.completed, len(purgatory)) == (1, 1, 0)

    asyncio.run(work())


def test_operations_end_in_the_order_of_their_time_whatever_ended_before() -> None:
    loop = StepLoop()
    purgatory: Purgatory[str] = Purgatory("test", loop)
    ended: list[int] = []

    class Timed(DelayedOperation[str]):
        def __init__(self, at: int) -> None:
            super().__init__()
            self.at = at

        def is_ready(self, key: str) -> bool:
            raise AssertionError(key)

        def complete(self) -> None:
            ended.append(self.at)

    operations = {at: Timed(at) for at in (5, 3, 9, 1, 7)}
    for at, operation in operations.items():
        purgatory.wait(operation, ["a"], at)
    purgatory.cancel(operations[1])
    purgatory.hasten(operations[9], 4)
    loop.advance(2.5)
    assert ended == []
    loop.advance(1)
    assert ended == [3]
    loop.advance(1)
    assert ended == [3, 9]
    loop.advance(10)
    assert (ended, len(purgatory), purgatory.expired_count) == ([3, 9, 5, 7], 0, 4)
    loop.close()


def test_a_timer_that_fires_a_little_early_counts() -> None:
    """As in uvloop, whose clock has whole milliseconds. Another timer would fire in each turn until then."""
    loop = StepLoop()
    loop._clock_resolution = 0.001  # type: ignore[attr-defined]
    purgatory: Purgatory[str] = Purgatory("test", loop)
    operation, later = Countdown(1), Countdown(1)
    purgatory.wait(operation, ["a"], 0.5)
    purgatory.wait(later, ["a"], 0.502)
    loop.advance(0.4996)
    assert (operation.completed, later.completed) == (1, 0)
    loop.advance(0.002)
    assert (later.completed, len(purgatory)) == (1, 0)
    loop.close()


def test_deadlines_of_ended_operations_do_not_pile_up() -> None:
    async def work() -> None:
        purgatory = new_purgatory()
        waiting = Countdown(1)
        purgatory.wait(waiting, ["a"], WAIT_S)
        for _ in range(1000):
            operation = Countdown(1)
            purgatory.wait(operation, ["b"], WAIT_S)
            purgatory.cancel(operation)
        assert len(purgatory._deadlines) < 100
        purgatory.hasten(waiting, 0.001)
        await asyncio.wait_for(waiting.ended.wait(), WAIT_S)

    asyncio.run(work())
