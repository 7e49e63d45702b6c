"""The state of a processor for one key: declared as class attributes, and bound to Spark's state in the worker.

While a key has rows, its state is kept in memory, and what changed is written once at the end. So a record that fails
can be undone: `begin` marks the state before a record, and `undo` goes back to the mark. Each task has its own copies.

Callers get copies of lists, structs and other objects that they could change, and what they set is copied. So nothing
changes that was not set, and `undo` can rely on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy, deepcopy
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from ottla.spark.streams.frames import StreamError
from ottla.spark.streams.typed_values import STATE, Fitter, fitter_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
    from pyspark.sql.types import DataType

_FIXED: Final = (int, float, str, bytes, Decimal, date, type(None))
"""Types of values that cannot change; a bool is an int, and a datetime a date."""

T = TypeVar("T")
K = TypeVar("K")


def _own(value: T) -> T:
    return value if isinstance(value, _FIXED) else deepcopy(value)


class _State:
    """What all kinds share. `ttl` deletes what was not written for this long; it needs `time="processing"`."""

    def __init__(self, *, ttl: timedelta | None = None) -> None:
        if ttl is not None and ttl <= timedelta():
            raise StreamError(f"ttl must be positive, not {ttl}")
        self.ttl = ttl
        self._stored: Any = None
        self._fitters: tuple[Fitter, ...] = ()

    @property
    def _ttl_ms(self) -> int | None:
        return None if self.ttl is None else max(1, int(self.ttl.total_seconds() * 1000))

    def types(self) -> tuple[str, ...]:
        """Of values, and of keys if it has any."""
        raise NotImplementedError

    def bound(self, handle: StatefulProcessorHandle, name: str, kinds: Sequence[DataType]) -> Self:
        """A copy of the declaration that reads and writes Spark's state with this name. `kinds` are its `types`."""
        state = copy(self)
        state._stored = state._open(handle, name)
        state._fitters = tuple(fitter_of(kind, STATE) for kind in kinds)
        state.forget()
        return state

    def _open(self, handle: StatefulProcessorHandle, name: str) -> Any:
        raise NotImplementedError

    def forget(self) -> None:
        """Called when another key comes."""
        raise NotImplementedError

    def begin(self) -> None:
        raise NotImplementedError

    def undo(self) -> None:
        raise NotImplementedError

    def flush(self) -> None:
        """Writes what changed."""
        raise NotImplementedError


class Value(_State, Generic[T]):
    """One value per key. `kind` is a Spark type, for example `"BIGINT"` or `"STRUCT<n: INT, city: STRING>"`."""

    _now: T | None
    _is_known: bool
    _is_changed: bool

    def __init__(self, kind: str, *, ttl: timedelta | None = None) -> None:
        super().__init__(ttl=ttl)
        self._kind = kind

    def types(self) -> tuple[str, ...]:
        return (self._kind,)

    def _open(self, handle: StatefulProcessorHandle, name: str) -> Any:
        return handle.getValueState(name, f"value {self._kind}", self._ttl_ms)

    def get(self) -> T | None:
        """The value, or None."""
        if not self._is_known:
            found = self._stored.get()
            self._now, self._is_known = None if found is None else found[0], True
        return _own(self._now)

    def set(self, value: T | None) -> None:
        """Replaces the value; None deletes it."""
        self._now, self._is_known, self._is_changed = self._fitters[0](value), True, True

    def clear(self) -> None:
        """Deletes the value."""
        self.set(None)

    def forget(self) -> None:
        self._now, self._is_known, self._is_changed = None, False, False

    def begin(self) -> None:
        self._mark = (self._now, self._is_known, self._is_changed)

    def undo(self) -> None:
        self._now, self._is_known, self._is_changed = self._mark

    def flush(self) -> None:
        if self._is_changed and self._now is None:
            self._stored.clear()
        elif self._is_changed:
            self._stored.update((self._now,))


class List(_State, Generic[T]):
    """A list per key."""

    _base: tuple[Any, ...] | None
    """What is stored; None if it was not read yet."""
    _added: list[Any]
    _is_replaced: bool

    def __init__(self, kind: str, *, ttl: timedelta | None = None) -> None:
        super().__init__(ttl=ttl)
        self._kind = kind

    def types(self) -> tuple[str, ...]:
        return (self._kind,)

    def _open(self, handle: StatefulProcessorHandle, name: str) -> Any:
        return handle.getListState(name, f"value {self._kind}", self._ttl_ms)

    def get(self) -> list[T]:
        """A copy of the list."""
        if self._base is None:
            self._base = tuple(row[0] for row in self._stored.get())
        return [_own(item) for item in (*self._base, *self._added)]

    def append(self, item: T) -> None:
        self._added.append(self._fitters[0](item))

    def set(self, items: list[T]) -> None:
        """Replaces the list."""
        self._base, self._added, self._is_replaced = (), [self._fitters[0](item) for item in items], True

    def clear(self) -> None:
        self.set([])

    def forget(self) -> None:
        self._base, self._added, self._is_replaced = None, [], False

    def begin(self) -> None:
        self._mark = (self._base, self._added, len(self._added), self._is_replaced)

    def undo(self) -> None:
        self._base, self._added, length, self._is_replaced = self._mark
        del self._added[length:]

    def flush(self) -> None:
        rows = [(item,) for item in self._added]
        if self._is_replaced and not rows:
            self._stored.clear()
        elif self._is_replaced:
            self._stored.put(rows)
        elif rows:
            self._stored.appendList(rows)


class Map(_State, Generic[K, T]):
    """A map per key, of which only the entries that are used are read."""

    _read: dict[K, T | None]
    _changed: dict[K, T | None]
    _is_cleared: bool
    _before: dict[K, tuple[bool, T | None]]
    """Since the mark: whether a key was in the marked `_changed`, and its value there."""

    def __init__(self, key_kind: str, kind: str, *, ttl: timedelta | None = None) -> None:
        super().__init__(ttl=ttl)
        self._key_kind = key_kind
        self._kind = kind

    def types(self) -> tuple[str, ...]:
        return self._kind, self._key_kind

    def _open(self, handle: StatefulProcessorHandle, name: str) -> Any:
        return handle.getMapState(name, f"key {self._key_kind}", f"value {self._kind}", self._ttl_ms)

    def get(self, key: K) -> T | None:
        """The value of this entry, or None."""
        key = self._fitters[1](key)
        if key in self._changed:
            return _own(self._changed[key])
        if self._is_cleared:
            return None
        if key not in self._read:
            found = self._stored.getValue((key,))
            self._read[key] = None if found is None else found[0]
        return _own(self._read[key])

    def set(self, key: K, value: T | None) -> None:
        """Replaces an entry; None deletes it."""
        key, value = self._fitters[1](key), self._fitters[0](value)
        if self._changed is self._mark[0] and key not in self._before:
            self._before[key] = key in self._changed, self._changed.get(key)
        self._changed[key] = value

    def remove(self, key: K) -> None:
        self.set(key, None)

    def items(self) -> dict[K, T]:
        """A copy of the whole map, which is read for it."""
        stored = {} if self._is_cleared else {key[0]: value[0] for key, value in self._stored.iterator()}
        return {key: _own(value) for key, value in {**stored, **self._changed}.items() if value is not None}

    def clear(self) -> None:
        self._changed, self._is_cleared = {}, True

    def forget(self) -> None:
        self._read, self._changed, self._is_cleared = {}, {}, False
        self.begin()

    def begin(self) -> None:
        self._mark = (self._changed, self._is_cleared)
        self._before = {}

    def undo(self) -> None:
        self._changed, self._is_cleared = self._mark
        for key, (was_there, value) in self._before.items():
            if was_there:
                self._changed[key] = value
            else:
                del self._changed[key]
        self._before = {}

    def flush(self) -> None:
        if self._is_cleared:
            self._stored.clear()
        for key, value in self._changed.items():
            if value is not None:
                self._stored.updateValue((key,), (value,))
            elif not self._is_cleared:
                self._stored.removeKey((key,))
