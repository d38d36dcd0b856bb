"""One batch appended as it is: for callers that number and sign what they write themselves.

Rule: a plain function on a ``Cluster``. It may be repeated: a batch with a producer id, an epoch
and a sequence is stored once.
"""

from __future__ import annotations

from typing import Final

from shoal.client.cluster import Cluster
from shoal.client.connection import Versioned
from shoal.client.deadlines import Deadline
from shoal.types import TopicPartition
from shoal.wire.apis.produce import ProduceRequest
from shoal.wire.apis.registry import ApiKey

_ALL: Final = -1
# Later versions add partitions to transactions, or name topics by id.
_LAST_PLAIN: Final = 11


async def append_batch(
    cluster: Cluster, tp: TopicPartition, batch: bytes, deadline: Deadline
) -> int | None:
    """Until all replicas have it; its offset, if that is told (not of a repetition).

    Raises:
        BrokerError: refused; INVALID_PRODUCER_EPOCH if a later epoch has written there.
        RequestTimeoutError: no success until ``deadline``; it may be stored or not.
    """

    async def attempt() -> int | None:
        await cluster.topics([tp.topic], deadline)
        request = ProduceRequest(
            acks=_ALL,
            timeout_ms=cluster.config.request_timeout_ms,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=tp.topic,
                    partition_data=[
                        ProduceRequest.PartitionProduceData(index=tp.partition, records=batch)
                    ],
                )
            ],
        )
        versioned = Versioned(ApiKey.PRODUCE, lambda _: request, up_to=_LAST_PLAIN)
        answer = await cluster.ask(versioned, node_id=cluster.leader_id(tp), deadline=deadline)
        (one,) = answer.responses[0].partition_responses
        cluster.check("Produce", one.error_code, str(tp))
        return one.base_offset if one.base_offset >= 0 else None

    return await cluster.retrying(attempt, deadline)
