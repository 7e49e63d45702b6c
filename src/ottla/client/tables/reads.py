"""Reading a table as a mapping: what `TableView` and `AsyncTableView` share.

Reads wait for nothing and may come from any thread. Until the topic was read to the end for the first time they raise
an error, because a key that is missing then may exist; after an error or `close` they raise that.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from ottla.client.tables.contents import TableContents

if TYPE_CHECKING:
    from ottla.client.tables.following import TableFollower

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

MAX_BYTES: Final = 1 << 30
"""The default of `max_bytes`."""


class TableReads(Mapping[K, V]):
    """A mapping whose entries may change between two calls."""

    _follower: TableFollower

    def _contents(self) -> TableContents:
        follower = self._follower
        if follower.readable is None:
            raise follower.refusal()
        return follower.readable

    # One key.

    def __getitem__(self, key: K) -> V:
        value: V = self._follower.decode(self._contents().values[key])
        return value

    @overload
    def get(self, key: K, /) -> V | None: ...

    @overload
    def get(self, key: K, /, default: V | T) -> V | T: ...

    def get(self, key: K, /, default: V | T | None = None) -> V | T | None:
        """The value of the key, or the default."""
        value = self._contents().values.get(key)
        if value is None:
            return default
        decoded: V = self._follower.decode(value)
        return decoded

    def __contains__(self, key: object) -> bool:
        return key in self._contents().values

    def __len__(self) -> int:
        return len(self._contents().values)

    # Many keys.

    def __iter__(self) -> Iterator[K]:
        """The keys at this moment, in no particular order: a list of references is copied, and no key."""
        return iter(list(self._contents().values))

    def items(self) -> ItemsView[K, V]:
        """The keys at the moment when an iteration begins, without those that are deleted while it goes on; each with
        the value at the moment when it is reached."""
        return _Items(self)

    def values(self) -> ValuesView[V]:
        """The values, as in `items`."""
        return _Values(self)

    def range(self, start: K | None = None, stop: K | None = None, *, reverse: bool = False) -> Iterator[tuple[K, V]]:
        """Keys and values from `start` (inclusive) to `stop` (exclusive), in the order of the decoded keys. None means
        no limit. The first call sorts the keys, which takes a moment; later calls sort only what was added."""
        decode = self._follower.decode
        found = self._contents().between(start, stop, reverse=reverse)
        return ((key, decode(value)) for key, value in found)

    def snapshot(self) -> dict[K, V]:
        """A copy of the table at one moment."""
        values = self._contents().copy()
        decoded = self._follower.decode_all(values.values())
        return dict(zip(values, decoded, strict=True))

    def current_items(self) -> Iterator[tuple[K, V]]:
        contents, decode = self._contents(), self._follower.decode
        table = contents.values
        for key in list(table):
            value = table.get(key)
            if value is not None:
                yield key, decode(value)

    # About the table.

    @property
    def topic(self) -> str:
        """The topic that is read."""
        return self._follower.topic

    @property
    def max_bytes(self) -> int:
        """The largest size that is allowed."""
        return self._follower.max_bytes

    @property
    def size_in_bytes(self) -> int:
        """The memory of the entries: keys, values as bytes, and the hash table. While the table is read again, this is
        the size of the new one if it is larger."""
        return self._follower.size_in_bytes

    def metrics(self) -> dict[str, int]:
        """Counts: keys, bytes, max_bytes, records applied, records without a key (which are skipped), how often the
        table was read again from the beginning, and how many offsets it is behind (as of the last fetch)."""
        return self._follower.metrics()

    def __repr__(self) -> str:
        follower = self._follower
        state = f"{len(follower.readable.values)} keys" if follower.readable is not None else str(follower.refusal())
        return f"<{type(self).__name__} of topic {follower.topic!r}: {state}>"


class _Items(ItemsView[K, V]):
    _mapping: TableReads[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return self._mapping.current_items()


class _Values(ValuesView[V]):
    _mapping: TableReads[Any, V]

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._mapping.current_items())
