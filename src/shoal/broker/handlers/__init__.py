"""One file per API: a function from request to response.

``handle(broker, call, request)`` returns a response, or ``None`` and replies later through
``call.reply``; an ``async def`` is for requests that must wait for the disk, a generator for those
that may take long (it pauses, see ``slices.py``). ``refuse(request,
code, version)`` is the answer that says an error in every place where this API can say one; APIs
with a single ``error_code`` at the top need none.

Rule: what is advertised is this table and nothing else. A version is listed when every field of
it means something here.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Support(NamedTuple):
    """The versions of one API that this broker serves."""

    module: str
    min_version: int
    max_version: int
    # KAFKA-18659: librdkafka takes a missing Produce v0 for "no compression supported".
    advertised_min: int | None = None


SUPPORTED: Final[dict[int, Support]] = {
    0: Support("produce", 3, 13, advertised_min=0),
    1: Support("fetch", 4, 18),
    2: Support("list_offsets", 1, 11),
    3: Support("metadata", 0, 13),
    8: Support("offset_commit", 2, 10),
    9: Support("offset_fetch", 1, 10),
    10: Support("find_coordinator", 0, 6),
    11: Support("join_group", 0, 9),
    12: Support("heartbeat", 0, 4),
    13: Support("leave_group", 0, 5),
    14: Support("sync_group", 0, 5),
    15: Support("describe_groups", 0, 6),
    16: Support("list_groups", 0, 5),
    17: Support("sasl_handshake", 0, 1),
    18: Support("api_versions", 0, 4),
    19: Support("create_topics", 2, 7),
    20: Support("delete_topics", 1, 6),
    21: Support("delete_records", 0, 2),
    22: Support("init_producer_id", 0, 5),
    23: Support("offset_for_leader_epoch", 2, 4),
    # Without an authorizer Kafka answers SECURITY_DISABLED, and so do we.
    29: Support("describe_acls", 1, 3),
    30: Support("create_acls", 1, 3),
    31: Support("delete_acls", 1, 3),
    32: Support("describe_configs", 1, 4),
    33: Support("alter_configs", 0, 2),
    34: Support("alter_replica_log_dirs", 1, 2),
    # Not v5: kafka-python takes it for Kafka 4.3 with transactions and all.
    35: Support("describe_log_dirs", 1, 4),
    36: Support("sasl_authenticate", 0, 2),
    37: Support("create_partitions", 0, 3),
    42: Support("delete_groups", 0, 2),
    43: Support("elect_leaders", 0, 2),
    44: Support("incremental_alter_configs", 0, 1),
    45: Support("alter_partition_reassignments", 0, 1),
    46: Support("list_partition_reassignments", 0, 0),
    47: Support("offset_delete", 0, 0),
    48: Support("describe_client_quotas", 0, 1),
    49: Support("alter_client_quotas", 0, 1),
    50: Support("describe_user_scram_credentials", 0, 0),
    51: Support("alter_user_scram_credentials", 0, 0),
    55: Support("describe_quorum", 0, 2),
    57: Support("update_features", 0, 2),
    60: Support("describe_cluster", 0, 2),
    61: Support("describe_producers", 0, 0),
    66: Support("list_transactions", 0, 2),
    74: Support("list_config_resources", 0, 1),
    75: Support("describe_topic_partitions", 0, 0),
}
