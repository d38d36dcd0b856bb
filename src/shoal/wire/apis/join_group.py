"""JoinGroup (11): a member enters a classic group, or enters it again for a rebalance.

v1 rebalance timeout · v4 a member without an id is sent away with one (KIP-394) · v5 static
members (KIP-345) · v6 flexible · v7 protocol type in the answer (KIP-559) · v8 reason (KIP-800) ·
v9 the leader may be told to skip the assignment (KIP-814).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import (
    Array,
    Bool,
    Bytes,
    Int16,
    Int32,
    Message,
    Request,
    String,
    Struct,
    nullable,
    since,
)


class JoinGroupRequest(
    Request["JoinGroupResponse"], api_key=ApiKey.JOIN_GROUP, versions=(0, 9), flexible=6
):
    class Protocol(Struct):
        name: String  # of an assignor
        metadata: Bytes  # a Subscription of consumer_protocol.py

    group_id: String
    session_timeout_ms: Int32
    # -1: the session timeout counts
    rebalance_timeout_ms: Int32 = since(1, default=-1, ignorable=True)
    member_id: String  # empty on the first try; the answer has the id to use
    group_instance_id: String | None = since(5, default=None)  # static membership, KIP-345
    protocol_type: String
    protocols: Array[Protocol]  # in order of preference
    reason: String | None = since(8, default=None, ignorable=True)  # KIP-800


class JoinGroupResponse(Message, api_key=ApiKey.JOIN_GROUP, versions=(0, 9), flexible=6):
    class Member(Struct):
        member_id: String
        group_instance_id: String | None = since(5, default=None, ignorable=True)
        metadata: Bytes = b""

    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: String | None = since(7, default=None, ignorable=True)  # KIP-559
    # null if there is none, before v7 empty
    protocol_name: String | None = nullable(since=7, default="")
    leader: String = ""
    skip_assignment: Bool = since(9, default=False)  # KIP-814: a static leader came back
    member_id: String = ""
    members: Array[Member] = ()  # only the leader gets them
