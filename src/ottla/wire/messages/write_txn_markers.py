"""WriteTxnMarkers (27): a transaction coordinator has leaders write the markers that end a transaction.

The marker tells the version of the transaction protocol since v2 (KIP-1228).
"""

from __future__ import annotations

from ottla.wire.schema import INT32, Request, Response, Struct, array, boolean, int8, int16, int32, int64, string


class TxnMarkerTopic(Struct):
    name: str = string()
    partition_indexes: list[int] = array(INT32)


class TxnMarker(Struct):
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()  # committed or not
    topics: list[TxnMarkerTopic] = array(TxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8("2+", ignorable=True)


class WriteTxnMarkersRequest(Request, api_key=27, versions="0-2", flexible="1+"):
    markers: list[TxnMarker] = array(TxnMarker)


class TxnMarkerPartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class TxnMarkerTopicResponse(Struct):
    name: str = string()
    partitions: list[TxnMarkerPartitionResponse] = array(TxnMarkerPartitionResponse)


class TxnMarkerResponse(Struct):
    producer_id: int = int64()
    topics: list[TxnMarkerTopicResponse] = array(TxnMarkerTopicResponse)


class WriteTxnMarkersResponse(Response, api_key=27, versions="0-2", flexible="1+"):
    markers: list[TxnMarkerResponse] = array(TxnMarkerResponse)
