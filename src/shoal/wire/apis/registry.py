"""Every API we can read and write: key, versions, and where its messages are declared.

The table repeats the versions of the declarations (a test holds them together), because a broker
must know them at its first byte and importing sixty modules for that would cost more than the
rest of its start.

Rule: a module of an API is imported by the first use of ``request`` or ``response``, never before.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from importlib import import_module
from typing import Final, cast

from shoal.wire.schema import Message


class ApiKey(IntEnum):
    """The numbers of the protocol. Those of the controllers among themselves are not here."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


@dataclass(frozen=True)
class ApiSpec:
    """One API. ``flexible_from`` is None if no version is flexible (KIP-482)."""

    key: ApiKey
    min_version: int
    max_version: int
    flexible_from: int | None

    @property
    def name(self) -> str:
        """Kafka's spelling: ``ApiKey.FIND_COORDINATOR`` is ``FindCoordinator``."""
        return "".join(word.capitalize() for word in self.key.name.split("_"))

    @property
    def module(self) -> str:
        return f"shoal.wire.apis.{self.key.name.lower()}"

    @cached_property
    def request(self) -> type[Message]:
        return self._message("Request")

    @cached_property
    def response(self) -> type[Message]:
        return self._message("Response")

    def _message(self, kind: str) -> type[Message]:
        return cast("type[Message]", getattr(import_module(self.module), self.name + kind))

    def has_version(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from

    def request_header_version(self, version: int) -> int:
        """2 with tagged fields, 1 without."""
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """1 with tagged fields, 0 without; an ApiVersions response never has them (KIP-511)."""
        return int(self.is_flexible(version) and self.key is not ApiKey.API_VERSIONS)


API: Final[dict[int, ApiSpec]] = {
    spec.key: spec
    for spec in (
        ApiSpec(ApiKey.PRODUCE, 3, 13, 9),
        ApiSpec(ApiKey.FETCH, 4, 18, 12),
        ApiSpec(ApiKey.LIST_OFFSETS, 1, 11, 6),
        ApiSpec(ApiKey.METADATA, 0, 13, 9),
        ApiSpec(ApiKey.OFFSET_COMMIT, 2, 10, 8),
        ApiSpec(ApiKey.OFFSET_FETCH, 1, 10, 6),
        ApiSpec(ApiKey.FIND_COORDINATOR, 0, 6, 3),
        ApiSpec(ApiKey.JOIN_GROUP, 0, 9, 6),
        ApiSpec(ApiKey.HEARTBEAT, 0, 4, 4),
        ApiSpec(ApiKey.LEAVE_GROUP, 0, 5, 4),
        ApiSpec(ApiKey.SYNC_GROUP, 0, 5, 4),
        ApiSpec(ApiKey.DESCRIBE_GROUPS, 0, 6, 5),
        ApiSpec(ApiKey.LIST_GROUPS, 0, 5, 3),
        ApiSpec(ApiKey.SASL_HANDSHAKE, 0, 1, None),
        ApiSpec(ApiKey.API_VERSIONS, 0, 4, 3),
        ApiSpec(ApiKey.CREATE_TOPICS, 2, 7, 5),
        ApiSpec(ApiKey.DELETE_TOPICS, 1, 6, 4),
        ApiSpec(ApiKey.DELETE_RECORDS, 0, 2, 2),
        ApiSpec(ApiKey.INIT_PRODUCER_ID, 0, 6, 2),
        ApiSpec(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, 4),
        ApiSpec(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, 3),
        ApiSpec(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, 3),
        ApiSpec(ApiKey.END_TXN, 0, 5, 3),
        ApiSpec(ApiKey.WRITE_TXN_MARKERS, 1, 2, 1),
        ApiSpec(ApiKey.TXN_OFFSET_COMMIT, 0, 5, 3),
        ApiSpec(ApiKey.DESCRIBE_ACLS, 1, 3, 2),
        ApiSpec(ApiKey.CREATE_ACLS, 1, 3, 2),
        ApiSpec(ApiKey.DELETE_ACLS, 1, 3, 2),
        ApiSpec(ApiKey.DESCRIBE_CONFIGS, 1, 4, 4),
        ApiSpec(ApiKey.ALTER_CONFIGS, 0, 2, 2),
        ApiSpec(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, 2),
        ApiSpec(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, 2),
        ApiSpec(ApiKey.SASL_AUTHENTICATE, 0, 2, 2),
        ApiSpec(ApiKey.CREATE_PARTITIONS, 0, 3, 2),
        ApiSpec(ApiKey.DELETE_GROUPS, 0, 2, 2),
        ApiSpec(ApiKey.ELECT_LEADERS, 0, 2, 2),
        ApiSpec(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, 1),
        ApiSpec(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, 0),
        ApiSpec(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, 0),
        ApiSpec(ApiKey.OFFSET_DELETE, 0, 0, None),
        ApiSpec(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, 1),
        ApiSpec(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, 1),
        ApiSpec(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, 0),
        ApiSpec(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, 0),
        ApiSpec(ApiKey.DESCRIBE_QUORUM, 0, 2, 0),
        ApiSpec(ApiKey.UPDATE_FEATURES, 0, 2, 0),
        ApiSpec(ApiKey.DESCRIBE_CLUSTER, 0, 2, 0),
        ApiSpec(ApiKey.DESCRIBE_PRODUCERS, 0, 0, 0),
        ApiSpec(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, 0),
        ApiSpec(ApiKey.LIST_TRANSACTIONS, 0, 2, 0),
        ApiSpec(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, 0),
        ApiSpec(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, 0),
        ApiSpec(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, 0),
        ApiSpec(ApiKey.PUSH_TELEMETRY, 0, 0, 0),
        ApiSpec(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, 0),
        ApiSpec(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, 0),
    )
}
