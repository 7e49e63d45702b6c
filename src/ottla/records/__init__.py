"""Record batches: layout, building, reading, columns, compression, control records.

The names exported here are plain Python and load no compiled kernels: a broker needs no more. Import columns and their
kernels from their own modules.
"""

from ottla.records.batch import (
    BatchHeader,
    BatchView,
    attributes_of,
    batch_size,
    compute_crc,
    iter_batches,
    read_header,
    sequence_after,
)
from ottla.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, compress, decompress, expanded_bytes
from ottla.records.control import (
    ControlKey,
    ControlType,
    TransactionMarker,
    encode_transaction_marker,
    read_control_key,
    read_coordinator_epoch,
    read_transaction_marker,
)
from ottla.records.errors import (
    BatchLengthError,
    CorruptBatchError,
    DecompressionError,
    DecompressionLimitError,
    MalformedRecordError,
    OffsetDeltaError,
    RecordCountError,
    RecordError,
    TruncatedBatchError,
    UnknownCompressionError,
    UnknownMagicError,
)
from ottla.records.layout import ByteBuffer, Compression, TimestampType
from ottla.records.legacy import MessageView, convert_to_v2, iter_entries, iter_records
from ottla.records.plain import BatchOptions, decode_batch, encode_batch
from ottla.records.record import Header, Record, RecordLists

__all__ = [
    "DEFAULT_MAX_DECOMPRESSED_BYTES",
    "BatchHeader",
    "BatchLengthError",
    "BatchOptions",
    "BatchView",
    "ByteBuffer",
    "Compression",
    "ControlKey",
    "ControlType",
    "CorruptBatchError",
    "DecompressionError",
    "DecompressionLimitError",
    "Header",
    "MalformedRecordError",
    "MessageView",
    "OffsetDeltaError",
    "Record",
    "RecordCountError",
    "RecordError",
    "RecordLists",
    "TimestampType",
    "TransactionMarker",
    "TruncatedBatchError",
    "UnknownCompressionError",
    "UnknownMagicError",
    "attributes_of",
    "batch_size",
    "compress",
    "compute_crc",
    "convert_to_v2",
    "decode_batch",
    "decompress",
    "encode_batch",
    "encode_transaction_marker",
    "expanded_bytes",
    "iter_batches",
    "iter_entries",
    "iter_records",
    "read_control_key",
    "read_coordinator_epoch",
    "read_header",
    "read_transaction_marker",
    "sequence_after",
]
