"""What streams and tables have in common: their columns, and the checks of functions that take them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ottla.base.errors import OttlaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY: Final = "key"
VALUE: Final = "value"
TIMESTAMP: Final = "timestamp"
TOPIC: Final = "topic"
PARTITION: Final = "partition"
OFFSET: Final = "offset"

WINDOW: Final = "window"
"""The field of the key of a table of windows, a struct with `start` and `end`."""

COLUMNS: Final = (KEY, VALUE, TIMESTAMP, TOPIC, PARTITION, OFFSET)
"""The columns of a stream or a table. Key and value can have any type; the others have those of the source."""

_TYPES: Final = {TIMESTAMP: "timestamp", TOPIC: "string", PARTITION: "int", OFFSET: "bigint"}


class StreamError(OttlaError, ValueError):
    """A stream or a table cannot be used like this; the message says why, and what to do."""


def check_frame(frame: DataFrame, what: str) -> None:
    """Checks that a DataFrame has the columns of a stream or a table. `what` names the argument."""
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    missing = [name for name in COLUMNS if name not in types]
    if missing:
        words = f"{what} has no column {_listed(missing)}; its columns are {_listed(types)}"
        raise StreamError(f"{words}: use stream() or table(), and keep these columns")
    for name, wanted in _TYPES.items():
        if types[name] != wanted:
            raise StreamError(f"column {name} of {what} must be {wanted}, not {types[name]}: keep it as it was read")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
