"""Record batches as columns: the interface of the compiled codec.

Importing it loads the kernels, and compiles them unless `python -m ottla.records.warm` was run: import it where columns
are used, never in a broker.
"""

from ottla.records.column_reader import (
    ColumnSizeError,
    decode_columns,
    decode_lists,
    decode_records,
    iterate_records,
)
from ottla.records.column_writer import encode_batches, encode_columns
from ottla.records.sections import Reading

__all__ = [
    "ColumnSizeError",
    "Reading",
    "decode_columns",
    "decode_lists",
    "decode_records",
    "encode_batches",
    "encode_columns",
    "iterate_records",
]
