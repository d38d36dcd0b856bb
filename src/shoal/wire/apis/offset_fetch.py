"""OffsetFetch (9): a group's stored positions are read.

v2 null topics mean all, and an error of the whole group · v5 leader epoch (KIP-320) · v6 flexible ·
v7 only stable offsets (KIP-447) · v8 several groups (KIP-709) · v9 new group protocol (KIP-848) ·
v10 topic ids instead of names (KIP-848).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import (
    ZERO_UUID,
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    Request,
    String,
    Struct,
    Uuid,
    since,
    until,
)


class OffsetFetchRequest(
    Request["OffsetFetchResponse"], api_key=ApiKey.OFFSET_FETCH, versions=(1, 10), flexible=6
):
    class Topic(Struct):
        name: String
        partition_indexes: Array[Int32]

    class Topics(Struct):
        name: String = until(9, default="", ignorable=True)
        topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)  # KIP-848
        partition_indexes: Array[Int32]

    class Group(Struct):
        group_id: String
        member_id: String | None = since(9, default=None, ignorable=True)
        # -1 from a client that is no member
        member_epoch: Int32 = since(9, default=-1, ignorable=True)
        topics: Array[OffsetFetchRequest.Topics] | None

    group_id: String = until(7, default="")
    topics: Array[Topic] | None = until(7, default=(), nullable_since=2)
    groups: Array[Group] = since(8, default=())  # KIP-709
    require_stable: Bool = since(7, default=False)  # wait for open transactions, KIP-447


class OffsetFetchResponse(Message, api_key=ApiKey.OFFSET_FETCH, versions=(1, 10), flexible=6):
    class Partition(Struct):
        partition_index: Int32
        committed_offset: Int64 = 0
        committed_leader_epoch: Int32 = since(5, default=-1, ignorable=True)  # KIP-320
        metadata: String | None = ""
        error_code: Int16 = 0

    class Topic(Struct):
        name: String
        partitions: Array[OffsetFetchResponse.Partition] = ()

    class Partitions(Struct):
        partition_index: Int32
        committed_offset: Int64 = 0
        committed_leader_epoch: Int32 = -1  # KIP-320
        metadata: String | None = ""
        error_code: Int16 = 0

    class Topics(Struct):
        name: String = until(9, default="", ignorable=True)
        topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)  # KIP-848
        partitions: Array[OffsetFetchResponse.Partitions] = ()

    class Group(Struct):
        group_id: String
        topics: Array[OffsetFetchResponse.Topics] = ()
        error_code: Int16 = 0

    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    topics: Array[Topic] = until(7, default=())
    error_code: Int16 = since(2, until=7, default=0, ignorable=True)
    groups: Array[Group] = since(8, default=())  # KIP-709
