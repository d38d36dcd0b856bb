"""One file per API: a function from request to response. What is served is the table below.

``handle(broker, call, request)`` returns a response, or says that it replies later through
``call.reply`` (``LATER``) or not at all (``NO_REPLY``); how it runs stands in the table.
``refuse(request, code, version)`` is the answer that says an error in every place where this API
can say one; APIs with a single ``error_code`` at the top need none.

What a request needs to be let in stands in the row, too (``door.py``): the handler asks its call
for topics and gets them or a code; it never asks who somebody is.

Rule: what is advertised is this table and nothing else. A version is served when every field of it
means something here: those of the declaration in ``wire/apis``, unless the row says fewer.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from shoal.access.resources import Operation, ResourceType
from shoal.broker.door import Instead, Need, detail, entry, whole
from shoal.wire.apis.registry import API, ApiKey


class Deferred(Enum):
    """What a handler returns that has no response now."""

    LATER = "the reply comes through the call"
    NO_REPLY = "the client expects none"


LATER: Final = Deferred.LATER
NO_REPLY: Final = Deferred.NO_REPLY


class Runs(Enum):
    """How long a handler may take, and so how dispatch runs it."""

    AT_ONCE = "a function: well below a millisecond"
    IN_SLICES = "a generator that pauses (``slices.py``)"
    WAITING = "a coroutine: it waits for the disk or for a thread"
    AS_IT_TURNS_OUT = "a function that returns a response or one of the other two"


class Served(NamedTuple):
    """How this broker serves one API, and what a request of it needs."""

    needs: tuple[Need, ...]
    runs: Runs = Runs.AT_ONCE
    min_version: int | None = None
    max_version: int | None = None
    advertised_min: int | None = None
    needs_receiver: bool = False
    """Only where there is somebody to show what clients push: a metrics port."""
    is_repeated: bool = False
    """A client sends the same bytes again and again, and what they say is changed by nobody."""

    def versions(self, key: int) -> range:
        spec = API[key]
        low = spec.min_version if self.min_version is None else self.min_version
        high = spec.max_version if self.max_version is None else self.max_version
        return range(low, high + 1)


TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = ResourceType
(
    READ,
    WRITE,
    CREATE,
    DELETE,
    ALTER,
    DESCRIBE,
    CLUSTER_ACTION,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    IDEMPOTENT_WRITE,
    TWO_PHASE_COMMIT,
) = Operation

# Needs that several APIs have.
_NOTHING: Final = ()
_MEMBER: Final = (whole(READ, GROUP, "group_id"),)
_CLUSTER_DESCRIBE: Final = (whole(DESCRIBE, CLUSTER),)
_CLUSTER_ALTER: Final = (whole(ALTER, CLUSTER),)
_ALTER_CONFIGS: Final = (
    entry(ALTER_CONFIGS, TOPIC),
    entry(ALTER_CONFIGS, GROUP),
    entry(ALTER_CONFIGS, CLUSTER),
)

SERVED: Final[dict[int, Served]] = {
    # KAFKA-18659: librdkafka takes a missing Produce v0 for "no compression supported".
    ApiKey.PRODUCE: Served(
        (entry(WRITE, TOPIC), entry(WRITE, TRANSACTIONAL_ID)),
        Runs.AS_IT_TURNS_OUT,
        advertised_min=0,
    ),
    ApiKey.FETCH: Served((entry(READ, TOPIC),), Runs.IN_SLICES),
    ApiKey.LIST_OFFSETS: Served((entry(DESCRIBE, TOPIC),), Runs.IN_SLICES),
    ApiKey.METADATA: Served(
        (entry(DESCRIBE, TOPIC), detail(CREATE, TOPIC, Instead(CREATE, CLUSTER))), Runs.IN_SLICES
    ),
    ApiKey.OFFSET_COMMIT: Served(
        (whole(READ, GROUP, "group_id"), entry(READ, TOPIC)), Runs.IN_SLICES
    ),
    ApiKey.OFFSET_FETCH: Served(
        (
            whole(DESCRIBE, GROUP, "group_id", until=7),
            entry(DESCRIBE, GROUP),
            entry(DESCRIBE, TOPIC),
        ),
        Runs.IN_SLICES,
    ),
    ApiKey.FIND_COORDINATOR: Served((entry(DESCRIBE, GROUP), entry(DESCRIBE, TRANSACTIONAL_ID))),
    ApiKey.JOIN_GROUP: Served((*_MEMBER, detail(DESCRIBE, TOPIC))),
    ApiKey.HEARTBEAT: Served(_MEMBER),
    ApiKey.LEAVE_GROUP: Served(_MEMBER),
    ApiKey.SYNC_GROUP: Served(_MEMBER),
    ApiKey.DESCRIBE_GROUPS: Served((entry(DESCRIBE, GROUP),), Runs.IN_SLICES),
    ApiKey.LIST_GROUPS: Served((entry(DESCRIBE, GROUP, Instead(DESCRIBE, CLUSTER)),)),
    ApiKey.SASL_HANDSHAKE: Served(_NOTHING),
    ApiKey.API_VERSIONS: Served(_NOTHING),
    ApiKey.CREATE_TOPICS: Served(
        (entry(CREATE, TOPIC, Instead(CREATE, CLUSTER)), detail(DESCRIBE_CONFIGS, TOPIC)),
        Runs.WAITING,
    ),
    ApiKey.DELETE_TOPICS: Served(
        (entry(DELETE, TOPIC, Instead(DELETE, CLUSTER)), detail(DESCRIBE, TOPIC)), Runs.WAITING
    ),
    ApiKey.DELETE_RECORDS: Served((entry(DELETE, TOPIC),), Runs.WAITING),
    # v6 is two-phase commit (KIP-939), see TWO_PHASE_COMMITS below.
    ApiKey.INIT_PRODUCER_ID: Served(
        (
            whole(WRITE, TRANSACTIONAL_ID, "transactional_id"),
            entry(IDEMPOTENT_WRITE, CLUSTER, Instead(WRITE, TOPIC, of_any=True)),
            detail(TWO_PHASE_COMMIT, TRANSACTIONAL_ID),
        ),
        max_version=5,
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: Served(
        (
            whole(WRITE, TRANSACTIONAL_ID, "v3_and_below_transactional_id", until=3),
            whole(CLUSTER_ACTION, CLUSTER, since=4),
            entry(WRITE, TOPIC),
        ),
        is_repeated=True,
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: Served(
        (whole(WRITE, TRANSACTIONAL_ID, "transactional_id"), whole(READ, GROUP, "group_id"))
    ),
    ApiKey.END_TXN: Served((whole(WRITE, TRANSACTIONAL_ID, "transactional_id"),), is_repeated=True),
    ApiKey.WRITE_TXN_MARKERS: Served(
        (whole(ALTER, CLUSTER, "", Instead(CLUSTER_ACTION, CLUSTER)),)
    ),
    ApiKey.TXN_OFFSET_COMMIT: Served(
        (
            whole(WRITE, TRANSACTIONAL_ID, "transactional_id"),
            whole(READ, GROUP, "group_id"),
            entry(READ, TOPIC),
        )
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Served(
        (entry(DESCRIBE, TOPIC, Instead(CLUSTER_ACTION, CLUSTER)),), Runs.IN_SLICES
    ),
    ApiKey.DESCRIBE_ACLS: Served(_CLUSTER_DESCRIBE),
    ApiKey.CREATE_ACLS: Served(_CLUSTER_ALTER, Runs.WAITING),
    ApiKey.DELETE_ACLS: Served(_CLUSTER_ALTER, Runs.WAITING),
    ApiKey.DESCRIBE_CONFIGS: Served(
        (
            entry(DESCRIBE_CONFIGS, TOPIC),
            entry(DESCRIBE_CONFIGS, GROUP),
            entry(DESCRIBE_CONFIGS, CLUSTER),
        ),
        Runs.IN_SLICES,
    ),
    ApiKey.ALTER_CONFIGS: Served(_ALTER_CONFIGS, Runs.WAITING),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Served(_CLUSTER_ALTER),
    ApiKey.DESCRIBE_LOG_DIRS: Served(_CLUSTER_DESCRIBE, Runs.IN_SLICES),
    ApiKey.SASL_AUTHENTICATE: Served(_NOTHING, Runs.AS_IT_TURNS_OUT),
    ApiKey.CREATE_PARTITIONS: Served((entry(ALTER, TOPIC),), Runs.WAITING),
    ApiKey.DELETE_GROUPS: Served((entry(DELETE, GROUP),), Runs.IN_SLICES),
    ApiKey.ELECT_LEADERS: Served(_CLUSTER_ALTER),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Served(_ALTER_CONFIGS, Runs.WAITING),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Served(_CLUSTER_ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Served(_CLUSTER_DESCRIBE),
    ApiKey.OFFSET_DELETE: Served((whole(DELETE, GROUP, "group_id"), entry(READ, TOPIC))),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Served((whole(DESCRIBE_CONFIGS, CLUSTER),)),
    ApiKey.ALTER_CLIENT_QUOTAS: Served((whole(ALTER_CONFIGS, CLUSTER),), Runs.WAITING),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Served(_CLUSTER_DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Served(_CLUSTER_ALTER, Runs.WAITING),
    ApiKey.DESCRIBE_QUORUM: Served(_CLUSTER_DESCRIBE),
    ApiKey.UPDATE_FEATURES: Served(_CLUSTER_ALTER, Runs.WAITING),
    ApiKey.DESCRIBE_CLUSTER: Served(_NOTHING),
    ApiKey.DESCRIBE_PRODUCERS: Served((entry(READ, TOPIC),), Runs.IN_SLICES),
    ApiKey.DESCRIBE_TRANSACTIONS: Served(
        (entry(DESCRIBE, TRANSACTIONAL_ID), detail(DESCRIBE, TOPIC)), Runs.IN_SLICES
    ),
    ApiKey.LIST_TRANSACTIONS: Served((entry(DESCRIBE, TRANSACTIONAL_ID),), Runs.IN_SLICES),
    # As Kafka, whose broker offers them if a plug-in takes what clients push.
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Served(_NOTHING, needs_receiver=True),
    ApiKey.PUSH_TELEMETRY: Served(_NOTHING, Runs.WAITING, needs_receiver=True),
    ApiKey.LIST_CONFIG_RESOURCES: Served((whole(DESCRIBE_CONFIGS, CLUSTER),)),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Served(
        (
            whole(READ, GROUP, "group_id"),
            whole(DESCRIBE, TOPIC, "subscribed_topic_names"),
            detail(DESCRIBE, TOPIC),
        )
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Served(
        (entry(DESCRIBE, GROUP), detail(DESCRIBE, TOPIC)), Runs.IN_SLICES
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Served((entry(DESCRIBE, TOPIC),)),
}

TWO_PHASE_COMMITS: Final = SERVED[ApiKey.INIT_PRODUCER_ID]._replace(max_version=6)
"""In place of the row above where ``transactions.two_phase_commit`` is on: Kafka keeps this version
to itself as long as half of KIP-939 is missing there, and so do we unless somebody asks for it."""


def served(key: int, *, two_phase_commit: bool) -> Served | None:
    """The row of an API in a broker with these settings."""
    if two_phase_commit and key == ApiKey.INIT_PRODUCER_ID:
        return TWO_PHASE_COMMITS
    return SERVED.get(key)
