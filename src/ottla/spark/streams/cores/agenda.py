"""When the keys of a bucket must be looked at again as event time moves on.

An agenda consists of slots of time, each with the keys that may be due in it. The farther away a due time is, the wider
is its slot, at most an eighth of the distance. So a bucket has few slots, and time that moves by small steps does not
make it read keys again and again: a key passes through few slots, each narrower than the one before.

A key is in the slot that its entry names. Other slots may list it as well, and so may its slot after the key is gone:
both are found out when the slot is due.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple, Self

_SLOT: Final = struct.Struct(">Bq")
_TIMER: Final = struct.Struct(">q")
_COUNT: Final = struct.Struct(">i")
_SLOTS_PER_DISTANCE_BITS: Final = 3
SLOT_BYTES: Final = _SLOT.size


class Slot(NamedTuple):
    """The milliseconds from `begin_ms` on, 2 ** bits of them."""

    bits: int
    number: int

    @classmethod
    def at(cls, due_ms: int, now_ms: int, *, is_exact: bool) -> Self:
        """The slot for what is due once time has passed `due_ms`; if not `is_exact`, one that begins later will do."""
        bits = max(0, (due_ms - now_ms).bit_length() - 1 - _SLOTS_PER_DISTANCE_BITS) if due_ms > now_ms else 0
        return cls(bits, due_ms >> bits if is_exact else -(-due_ms >> bits))

    @classmethod
    def of(cls, data: bytes) -> Self:
        return cls(*_SLOT.unpack(data))

    @property
    def begin_ms(self) -> int:
        return self.number << self.bits

    def data(self) -> bytes:
        return _SLOT.pack(self.bits, self.number)


class Agenda:
    """The slots of a bucket, and the timers that were set for them."""

    def __init__(self, slots: Iterable[Slot] = (), timers_ms: Iterable[int] = ()) -> None:
        self._slots = set(slots)
        self._timers_ms = set(timers_ms)

    @classmethod
    def of(cls, data: bytes | None) -> Agenda:
        if data is None:
            return cls()
        (count,) = _COUNT.unpack_from(data)
        begin = _COUNT.size + count * _TIMER.size
        timers = _TIMER.iter_unpack(data[_COUNT.size : begin])
        return cls(map(Slot._make, _SLOT.iter_unpack(data[begin:])), (timer_ms for (timer_ms,) in timers))

    @property
    def is_empty(self) -> bool:
        return not self._slots and not self._timers_ms

    def data(self) -> bytes | None:
        if self.is_empty:
            return None
        timers = map(_TIMER.pack, sorted(self._timers_ms))
        return b"".join((_COUNT.pack(len(self._timers_ms)), *timers, *(slot.data() for slot in sorted(self._slots))))

    def add(self, slot: Slot) -> None:
        self._slots.add(slot)

    def take_due(self, now_ms: int) -> list[Slot]:
        """Called when a timer has fired: removes the slots that time has passed, and returns them in their order."""
        self._timers_ms = {timer_ms for timer_ms in self._timers_ms if timer_ms >= now_ms}
        due = sorted((slot for slot in self._slots if slot.begin_ms < now_ms), key=lambda one: (one.begin_ms, one.bits))
        self._slots.difference_update(due)
        return due

    def next_timer_ms(self, now_ms: int) -> int | None:
        """The timer that must be set, if any. It fires in the first micro-batch whose time has passed it.

        Timers cannot be set for the present: what is due at `now_ms` precisely is found at `now_ms + 2`.
        """
        if not self._slots:
            return None
        first_ms = max(min(slot.begin_ms for slot in self._slots), now_ms + 1)
        if any(timer_ms <= first_ms for timer_ms in self._timers_ms):
            return None  # also if one fires in this micro-batch: the next one is set then
        self._timers_ms.add(first_ms)
        return first_ms
