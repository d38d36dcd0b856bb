"""WriteTxnMarkers (27): the transaction coordinator has commit or abort markers written (KIP-98).

v1 flexible · v2 transaction version (KIP-1228).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Request,
    String,
    Struct,
    since,
)


class WriteTxnMarkersRequest(
    Request["WriteTxnMarkersResponse"],
    api_key=ApiKey.WRITE_TXN_MARKERS,
    versions=(1, 2),
    flexible=1,
):
    class WritableTxnMarkerTopic(Struct):
        name: String
        partition_indexes: Array[Int32]

    class WritableTxnMarker(Struct):
        producer_id: Int64
        producer_epoch: Int16
        transaction_result: Bool  # true: commit
        topics: Array[WriteTxnMarkersRequest.WritableTxnMarkerTopic]
        coordinator_epoch: Int32
        transaction_version: Int8 = since(2, default=0, ignorable=True)  # KIP-1228

    markers: Array[WritableTxnMarker]


class WriteTxnMarkersResponse(
    Message, api_key=ApiKey.WRITE_TXN_MARKERS, versions=(1, 2), flexible=1
):
    class WritableTxnMarkerPartitionResult(Struct):
        partition_index: Int32
        error_code: Int16 = 0

    class WritableTxnMarkerTopicResult(Struct):
        name: String
        partitions: Array[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult] = ()

    class WritableTxnMarkerResult(Struct):
        producer_id: Int64
        topics: Array[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = ()

    markers: Array[WritableTxnMarkerResult] = ()
