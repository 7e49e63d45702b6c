"""A connection without I/O: bytes in any pieces become the same frames; answers leave in the order of requests."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.net.core import SMALL_FRAME, Answers, InBuffer, RefusedFrameError, Slot
from ottla.net.limits import MemoryBudget
from support.examples import examples

MAX_BYTES = 4 * SMALL_FRAME


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def feed(buffer: InBuffer, data: bytes, piece_sizes: list[int]) -> list[bytes]:
    """Receives the data in pieces of those sizes, over and over, as a socket would: never more than fits the target."""
    frames, at, turn = [], 0, 0
    while at < len(data):
        target = buffer.target()
        count = min(piece_sizes[turn % len(piece_sizes)], len(target), len(data) - at)
        target[:count] = data[at : at + count]
        only = buffer.only_frame(count)
        frames += [bytes(frame) for frame in ([only] if only is not None else buffer.frames(count))]
        at += count
        turn += 1
    return frames


def new_buffer(scratch_bytes: int = 1024, budget: MemoryBudget | None = None) -> InBuffer:
    return InBuffer(memoryview(bytearray(scratch_bytes)), MAX_BYTES, budget or MemoryBudget(1 << 30))


@settings(deadline=None, max_examples=examples(60))
@given(
    sizes=st.lists(st.integers(0, 3000) | st.sampled_from([0, 1, SMALL_FRAME - 4, SMALL_FRAME, MAX_BYTES]), max_size=8),
    pieces=st.lists(st.integers(1, 2000) | st.sampled_from([1, 4, 5, 65536, 200_000]), min_size=1, max_size=5),
    scratch_bytes=st.sampled_from([16, 1024, 1 << 20]),
    seed=st.integers(0, 2**32),
)
def test_frames_do_not_depend_on_how_bytes_arrive(
    sizes: list[int], pieces: list[int], scratch_bytes: int, seed: int
) -> None:
    if sum(sizes) > 10_000:
        pieces = [max(piece, 1000) for piece in pieces]
    bodies = [random.Random(seed + number).randbytes(size) for number, size in enumerate(sizes)]
    buffer = new_buffer(scratch_bytes)
    assert feed(buffer, b"".join(map(framed, bodies)), pieces) == bodies
    assert buffer.is_empty


def test_what_is_left_in_the_scratch_buffer_is_no_frame() -> None:
    bodies = [b"x" * 20, b"y" * 30]
    data = b"".join(map(framed, bodies))
    # The second piece is as long as the frame whose beginning is still in the scratch buffer.
    assert feed(new_buffer(), data, [10, 24, 100]) == bodies


def test_a_frame_that_comes_alone_is_not_taken_if_it_is_too_large() -> None:
    buffer = InBuffer(memoryview(bytearray(1024)), 10, MemoryBudget(1 << 30))
    with pytest.raises(RefusedFrameError):
        feed(buffer, framed(b"x" * 11), [100])


@settings(deadline=None, max_examples=examples(60))
@given(
    sizes=st.lists(st.integers(0, 3000) | st.sampled_from([SMALL_FRAME, MAX_BYTES]), max_size=12),
    stops=st.lists(st.integers(0, 3), min_size=1),
)
def test_frames_that_must_wait_come_later_and_in_order(sizes: list[int], stops: list[int]) -> None:
    bodies = [random.Random(number).randbytes(size) for number, size in enumerate(sizes)]
    data = b"".join(map(framed, bodies))
    buffer = new_buffer(1 << 20)
    found: list[bytes] = []
    at = turn = 0
    while at < len(data) or buffer.has_frames:
        count = 0
        if not buffer.has_frames:
            target = buffer.target()
            count = min(len(target), len(data) - at)
            target[:count] = data[at : at + count]
            at += count
        left = stops[turn % len(stops)] + (turn % 7 == 6)
        turn += 1
        frames = buffer.frames(count)
        for frame in frames:
            found.append(bytes(frame))
            left -= 1
            if left <= 0:
                frames.close()
                break
    assert found == bodies


@pytest.mark.parametrize("size", [MAX_BYTES + 1, 2**31 - 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("piece", [1, 2, 4, 100])
def test_a_size_beyond_the_limit_is_refused_before_anything_is_awaited(size: int, piece: int) -> None:
    buffer = new_buffer()
    with pytest.raises(RefusedFrameError, match=r"socket\.request\.max\.bytes is"):
        feed(buffer, size.to_bytes(4, "big") + b"xx", [piece])


def test_a_refusal_tells_how_the_bytes_began() -> None:
    with pytest.raises(RefusedFrameError) as refused:
        feed(new_buffer(), b"GET / HTTP/1.1\r\n\r\n", [100])
    assert refused.value.seen == b"GET / HTTP/1.1\r\n"


def test_a_large_frame_waits_for_memory_and_goes_on_where_it_was() -> None:
    budget = MemoryBudget(SMALL_FRAME * 3)
    first, second = new_buffer(budget=budget), new_buffer(budget=budget)
    body = random.Random(1).randbytes(2 * SMALL_FRAME)
    data = framed(body)
    assert feed(first, data[:100], [100]) == []
    assert feed(second, data[:100], [100]) == []
    assert not first.is_waiting
    assert second.is_waiting
    assert not second.retry()
    assert feed(first, data[100:], [1000]) == [body]
    first.release()
    assert second.retry()
    assert feed(second, data[100:], [1000]) == [body]
    second.release()
    assert budget.used == 0


@pytest.mark.parametrize("first_bytes", [4, 5, 100])
@pytest.mark.parametrize("api_key", [4, 5, 6, 0])
def test_requests_of_the_controller_do_not_wait_for_memory(api_key: int, first_bytes: int) -> None:
    budget = MemoryBudget(SMALL_FRAME * 3)
    producer, controller = new_buffer(budget=budget), new_buffer(budget=budget)
    data = framed(bytes(2 * SMALL_FRAME))
    feed(producer, data[:100], [100])
    body = api_key.to_bytes(2, "big") + bytes(2 * SMALL_FRAME)
    assert feed(controller, framed(body)[:first_bytes], [first_bytes]) == []
    assert feed(controller, framed(body)[first_bytes:SMALL_FRAME], [1000]) == []
    assert controller.is_waiting == (api_key == 0)
    if api_key:
        assert feed(controller, framed(body)[SMALL_FRAME:], [1000]) == [body]


def test_a_frame_beyond_the_budget_is_received_when_it_is_alone() -> None:
    buffer = new_buffer(budget=MemoryBudget(10))
    body = bytes(SMALL_FRAME + 1)
    assert feed(buffer, framed(body), [5000]) == [body]


def test_large_frames_of_one_size_are_received_in_the_same_memory() -> None:
    budget = MemoryBudget(1 << 30)
    buffer = new_buffer(budget=budget)
    body = bytes(SMALL_FRAME * 2)
    feed(buffer, framed(body), [5000])
    used = budget.used
    target = buffer.target()
    assert len(target) == len(body) + 4
    assert feed(buffer, framed(body) * 3, [50_000]) == [body] * 3
    assert budget.used == used


def test_memory_is_reserved_for_what_is_sent_and_not_for_what_is_announced() -> None:
    budget = MemoryBudget(1 << 30)
    buffer = InBuffer(memoryview(bytearray(1024)), 100_000_000, budget)
    body = random.Random(1).randbytes(3_000_000)
    data = framed(body)
    sent, most = 0, 0.0
    while sent < len(data):
        assert feed(buffer, data[sent : sent + 10_000], [10_000]) == ([] if sent + 10_000 < len(data) else [body])
        sent += 10_000
        most = max(most, budget.used / max(sent, SMALL_FRAME))
        assert buffer.reserved == budget.used
    assert most <= 4
    buffer.release()
    assert budget.used == 0


def test_what_is_received_into_the_scratch_buffer_already_is_reserved_however_little_is_left() -> None:
    budget = MemoryBudget(10)
    budget.used = 10
    buffer = new_buffer(1 << 20, budget)
    data = framed(bytes(3 * SMALL_FRAME))
    assert feed(buffer, data[: 2 * SMALL_FRAME], [1 << 20]) == []
    assert buffer.is_waiting
    assert budget.used == 10 + 2 * SMALL_FRAME
    buffer.close()
    assert budget.used == 10


def test_a_buffer_that_is_closed_between_frames_takes_no_memory() -> None:
    budget = MemoryBudget(1 << 30)
    buffer = new_buffer(budget=budget)
    data = framed(b"a") + framed(bytes(MAX_BYTES))[:100]
    buffer.target()[: len(data)] = data
    for _ in buffer.frames(len(data)):
        buffer.close()
    assert budget.used == 0
    assert buffer.is_empty


def test_a_kept_buffer_is_given_back_though_a_small_frame_is_half_received() -> None:
    budget = MemoryBudget(1 << 30)
    buffer = new_buffer(budget=budget)
    large, small = bytes(2 * SMALL_FRAME), random.Random(1).randbytes(100)
    assert feed(buffer, framed(large) + framed(small)[:50], [SMALL_FRAME]) == [large]
    assert budget.used > 0
    buffer.release()
    assert budget.used == 0
    assert feed(buffer, framed(small)[50:], [10]) == [small]


def test_while_memory_is_short_a_buffer_is_given_back_when_its_frame_is_handled() -> None:
    budget = MemoryBudget(1 << 30)
    buffer = new_buffer(budget=budget)
    budget.is_short = True
    body = bytes(2 * SMALL_FRAME)
    for _ in range(2):
        assert feed(buffer, framed(body), [SMALL_FRAME]) == [body]
        assert budget.used == 0


def test_only_the_first_answer_of_a_request_counts() -> None:
    answers = Answers()
    answers.reserve(slot := Slot())
    assert answers.fill(slot, ["first"])
    assert not answers.fill(slot, ["second"])
    assert list(answers.ready) == ["first"]


@settings(deadline=None)
@given(data=st.data())
def test_answers_leave_in_the_order_of_their_requests(data: st.DataObject) -> None:
    """Whatever is ready at once, later, or never answered at all."""
    kinds = data.draw(st.lists(st.sampled_from(["now", "later", "silent"]), max_size=20))
    answers = Answers()
    waiting = []
    for number, kind in enumerate(kinds):
        if kind == "now":
            answers.add([number])
        else:
            answers.reserve(slot := Slot())
            waiting.append((slot, [number] if kind == "later" else []))
    for slot, chunks in data.draw(st.permutations(waiting)):
        answers.fill(slot, chunks)
        ready = list(answers.ready)
        assert ready == sorted(ready)
    assert list(answers.ready) == [number for number, kind in enumerate(kinds) if kind != "silent"]
    assert len(answers) == 0


def test_an_answer_waits_for_the_one_before_it() -> None:
    answers = Answers()
    answers.reserve(slot := Slot())
    answers.add(["second"])
    assert not answers.ready
    assert answers.fill(slot, ["first"])
    assert list(answers.ready) == ["first", "second"]
