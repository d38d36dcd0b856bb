"""A scripted broker that also coordinates one transactional id, in either protocol.

It keeps no transaction: it says yes, or the code it is told to, and writes down what it was asked
in which order. What a real coordinator makes of that order is tested on a real one.
"""

from __future__ import annotations

from typing import Any

from shoal.wire.apis.add_offsets_to_txn import AddOffsetsToTxnResponse
from shoal.wire.apis.add_partitions_to_txn import AddPartitionsToTxnResponse
from shoal.wire.apis.api_versions import ApiVersionsResponse
from shoal.wire.apis.describe_producers import DescribeProducersResponse
from shoal.wire.apis.describe_transactions import DescribeTransactionsResponse
from shoal.wire.apis.end_txn import EndTxnResponse
from shoal.wire.apis.find_coordinator import FindCoordinatorResponse
from shoal.wire.apis.init_producer_id import InitProducerIdResponse
from shoal.wire.apis.list_transactions import ListTransactionsResponse
from shoal.wire.apis.metadata import MetadataResponse
from shoal.wire.apis.produce import ProduceResponse
from shoal.wire.apis.registry import API, ApiKey
from shoal.wire.apis.txn_offset_commit import TxnOffsetCommitResponse
from shoal.wire.apis.write_txn_markers import WriteTxnMarkersResponse
from shoal.wire.frames import decode_request_header
from tests.client.scripted import VERSIONS, ScriptedBroker

PARTITIONS = 2
_OURS = VERSIONS | {
    ApiKey.PRODUCE: 12,
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.ADD_PARTITIONS_TO_TXN: 5,
    ApiKey.ADD_OFFSETS_TO_TXN: 4,
    ApiKey.END_TXN: 5,
    ApiKey.TXN_OFFSET_COMMIT: 5,
    ApiKey.LIST_TRANSACTIONS: 2,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.DESCRIBE_PRODUCERS: 0,
    ApiKey.WRITE_TXN_MARKERS: 2,
}
_TOLD = {
    ApiKey.PRODUCE,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.OFFSET_FETCH,
}
OPENED_AT = 2
"""Where a transaction is open in the first partition, as administrators are told."""


class ScriptedCoordinator(ScriptedBroker):
    """``level`` is what it publishes as transaction.version."""

    def __init__(self, level: int, **most: int) -> None:
        super().__init__()
        self.level = level
        self.producer = (7, 0)
        self.hangs = False
        """Whether the coordinator knows nothing of what is open in the partition."""
        self.log: list[tuple[str, int, Any]] = []
        """Names, versions and requests about transactions, in the order they came."""
        self._versions = _OURS | {ApiKey[name.upper()]: version for name, version in most.items()}

    @property
    def told(self) -> list[str]:
        """The same in short: names, and how EndTxn ended."""
        return [
            name if name != "EndTxn" else "commit" if request.committed else "abort"
            for name, _, request in self.log
        ]

    def _answer(self, frame: bytes) -> bytes | None:
        header, body = decode_request_header(frame)
        spec = API[header.api_key]
        if spec.key in _TOLD:
            request = spec.request.decode(body, header.api_version)
            self.log.append((spec.name, header.api_version, request))
        return super()._answer(frame)

    def _message(self, key: ApiKey, request: Any, code: int) -> Any:
        match key:
            case ApiKey.API_VERSIONS:
                keys = [
                    ApiVersionsResponse.ApiVersion(
                        api_key=api, min_version=API[api].min_version, max_version=most
                    )
                    for api, most in self._versions.items()
                ]
                feature = ApiVersionsResponse.FinalizedFeatureKey(
                    name="transaction.version", max_version_level=self.level
                )
                return ApiVersionsResponse(
                    api_keys=keys, finalized_features=[feature], finalized_features_epoch=1
                )
            case ApiKey.INIT_PRODUCER_ID:
                if not code and request.producer_id >= 0:
                    self.producer = (self.producer[0], self.producer[1] + 1)
                return InitProducerIdResponse(
                    error_code=code, producer_id=self.producer[0], producer_epoch=self.producer[1]
                )
            case ApiKey.FIND_COORDINATOR if request.key_type == 1:
                # Another broker than the leader, so another connection: order is the client's work.
                return FindCoordinatorResponse(
                    error_code=code, node_id=2, host="localhost", port=self.port
                )
            case ApiKey.ADD_PARTITIONS_TO_TXN:
                return self._added(request, code)
            case ApiKey.ADD_OFFSETS_TO_TXN:
                return AddOffsetsToTxnResponse(error_code=code)
            case ApiKey.TXN_OFFSET_COMMIT:
                part = TxnOffsetCommitResponse.Partition(partition_index=0, error_code=code)
                topic = TxnOffsetCommitResponse.Topic(name="t", partitions=[part])
                return TxnOffsetCommitResponse(topics=[topic])
            case ApiKey.END_TXN:
                if not code and self.level >= 2:
                    self.producer = (self.producer[0], self.producer[1] + 1)
                return EndTxnResponse(
                    error_code=code, producer_id=self.producer[0], producer_epoch=self.producer[1]
                )
            case ApiKey.LIST_TRANSACTIONS:
                one = ListTransactionsResponse.TransactionState(
                    transactional_id="billing-1", producer_id=7, transaction_state="Ongoing"
                )
                return ListTransactionsResponse(
                    error_code=code, transaction_states=[] if code else [one]
                )
            case ApiKey.DESCRIBE_TRANSACTIONS:
                (name,) = request.transactional_ids
                return self._described(name, code)
            case ApiKey.DESCRIBE_PRODUCERS:
                return self._producers(request, code)
            case ApiKey.WRITE_TXN_MARKERS:
                result = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(
                    partition_index=0, error_code=code
                )
                marked = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(
                    name="t", partitions=[result]
                )
                marker = WriteTxnMarkersResponse.WritableTxnMarkerResult(
                    producer_id=7, topics=[marked]
                )
                return WriteTxnMarkersResponse(markers=[marker])
            case ApiKey.PRODUCE:
                parts = [
                    ProduceResponse.PartitionProduceResponse(index=one.index, error_code=code)
                    for one in request.topic_data[0].partition_data
                ]
                stored = ProduceResponse.TopicProduceResponse(name="t", partition_responses=parts)
                return ProduceResponse(responses=[stored])
        return super()._message(key, request, code)

    def _described(self, name: str, code: int) -> DescribeTransactionsResponse:
        topics = [] if self.hangs else [DescribeTransactionsResponse.TopicData(topic="t")]
        for topic in topics:
            topic.partitions = [0]
        state = DescribeTransactionsResponse.TransactionState(
            error_code=code,
            transactional_id=name,
            transaction_state="Ongoing",
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=1_000,
            producer_id=7,
            producer_epoch=3,
            topics=topics,
        )
        return DescribeTransactionsResponse(transaction_states=[state])

    def _producers(self, request: Any, code: int) -> DescribeProducersResponse:
        one = DescribeProducersResponse.ProducerState(
            producer_id=7,
            producer_epoch=3,
            last_timestamp=1_000,
            coordinator_epoch=5,
            current_txn_start_offset=OPENED_AT,
        )
        return DescribeProducersResponse(
            topics=[
                DescribeProducersResponse.TopicResponse(
                    name=topic.name,
                    partitions=[
                        DescribeProducersResponse.PartitionResponse(
                            partition_index=number,
                            error_code=code,
                            active_producers=[one] if number == 0 and not code else [],
                        )
                        for number in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ]
        )

    def _added(self, request: Any, code: int) -> AddPartitionsToTxnResponse:
        results = [
            AddPartitionsToTxnResponse.TopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnResponse.PartitionResult(
                        partition_index=number,
                        # As Kafka does: the one that fails says why, the others that it did.
                        partition_error_code=(code if not at else 55) if code else 0,
                    )
                    for at, number in enumerate(topic.partitions)
                ],
            )
            for topic in request.v3_and_below_topics
        ]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    def _metadata(self, code: int) -> MetadataResponse:
        answer = super()._metadata(code)
        if not code:
            answer.topics[0].partitions = [
                MetadataResponse.Partition(
                    partition_index=n, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
                )
                for n in range(PARTITIONS)
            ]
        return answer
