"""The state of a processor: what a failed record has changed is undone, whatever it was."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.types import ArrayType, DataType, DoubleType, IntegerType, StringType, StructType

from ottla.spark.streams.states import List, Map, Value

NUMBERS = ArrayType(IntegerType())


class Stored:
    """Spark's states of one key, in memory."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.value: tuple[Any] | None = None
        self.rows: list[tuple[Any]] = []
        self.entries: dict[tuple[Any], tuple[Any]] = {}

    def get(self) -> Any:
        return self.value if self.name == "value" else iter(self.rows)

    def update(self, value: tuple[Any]) -> None:
        self.value = value

    def put(self, rows: list[tuple[Any]]) -> None:
        self.rows = rows

    def appendList(self, rows: list[tuple[Any]]) -> None:  # noqa: N802
        self.rows += rows

    def getValue(self, key: tuple[Any]) -> tuple[Any] | None:  # noqa: N802
        return self.entries.get(key)

    def updateValue(self, key: tuple[Any], value: tuple[Any]) -> None:  # noqa: N802
        self.entries[key] = value

    def removeKey(self, key: tuple[Any]) -> None:  # noqa: N802
        self.entries.pop(key, None)

    def iterator(self) -> Any:
        return iter(self.entries.items())

    def clear(self) -> None:
        self.value, self.rows, self.entries = None, [], {}


class Handle:
    def getValueState(self, name: str, *_: object) -> Stored:  # noqa: N802
        return Stored(name)

    getListState = getMapState = getValueState  # noqa: N815


def opened(state: Any, name: str, *kinds: DataType) -> Any:
    return state.bound(Handle(), name, kinds)


@pytest.fixture
def value() -> Value[Any]:
    found: Value[Any] = opened(Value("ARRAY<INT>"), "value", NUMBERS)
    return found


@pytest.fixture
def numbers() -> List[Any]:
    found: List[Any] = opened(List("ARRAY<INT>"), "list", NUMBERS)
    return found


@pytest.fixture
def counts() -> Map[Any, Any]:
    found: Map[Any, Any] = opened(Map("STRING", "ARRAY<INT>"), "map", NUMBERS, StringType())
    return found


def test_a_value_that_is_changed_in_place(value: Value[Any]) -> None:
    given = [1]
    value.set(given)
    given.append(2)
    value.begin()
    found: Any = value.get()
    found.append(3)
    assert value.get() == [1]  # not set
    value.set(found)
    assert value.get() == [1, 3]
    value.undo()
    assert value.get() == [1]


def test_a_list_of_lists(numbers: List[Any]) -> None:
    numbers.append([1])
    numbers.begin()
    numbers.get()[0].append(2)
    numbers.append([3])
    assert numbers.get() == [[1], [3]]
    numbers.undo()
    assert numbers.get() == [[1]]
    numbers.begin()
    numbers.set([[4]])
    numbers.append([5])
    numbers.undo()
    assert numbers.get() == [[1]]
    numbers.append([6])
    numbers.flush()
    numbers.forget()
    assert numbers.get() == [[1], [6]]


def test_a_map(counts: Map[Any, Any]) -> None:
    counts.set("stored", [0])
    counts.flush()
    counts.forget()
    counts.set("a", [1])
    counts.begin()
    found: Any = counts.get("stored")
    found.append(1)
    found = counts.get("a")
    found.append(2)
    counts.set("a", [3])
    counts.set("a", [4])
    counts.set("b", [5])
    counts.remove("stored")
    assert counts.items() == {"a": [4], "b": [5]}
    counts.clear()
    counts.set("c", [6])
    assert counts.items() == {"c": [6]}
    counts.undo()
    assert counts.items() == {"stored": [0], "a": [1]}
    counts.begin()
    counts.set("b", [7])
    counts.begin()
    counts.remove("b")
    counts.undo()
    assert (counts.get("stored"), counts.get("b")) == ([0], [7])
    counts.flush()
    counts.forget()
    assert counts.items() == {"stored": [0], "a": [1], "b": [7]}


def test_values_are_those_of_the_type() -> None:
    """Spark would store an int as a double that is null."""
    total = opened(Value("DOUBLE"), "value", DoubleType())
    total.set(3)
    total.flush()
    assert isinstance(total._stored.value[0], float)
    with pytest.raises(TypeError, match="expected a float for double, not str: '3'"):
        total.set("3")
    with pytest.raises(TypeError, match="expected an int for int at element, not str"):
        opened(List("ARRAY<INT>"), "list", NUMBERS).append(["1"])


def test_structs_are_rows() -> None:
    place = StructType().add("city", StringType()).add("number", IntegerType())
    counts = opened(Map("city STRING, number INT", "DOUBLE"), "map", DoubleType(), place)
    counts.set({"city": "Brno", "number": 1}, 2)
    assert counts.get(Row(city="Brno", number=1)) == 2.0
    counts.flush()
    assert counts.items() == {Row(city="Brno", number=1): 2.0}
