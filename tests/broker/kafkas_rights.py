"""What Apache Kafka asks of who sends a request, and where it says no: one line per right.

Written from Kafka's documentation of its authorizer and from its handlers, not from our table,
which ``test_door.py`` holds against it. APIs that are not served yet are here, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from shoal.access.resources import Operation as Op
from shoal.access.resources import ResourceType as Kind
from shoal.wire.apis.registry import ApiKey

CONFIG_TOPIC, CONFIG_BROKER, CONFIG_GROUP = 2, 4, 32


class Right(NamedTuple):
    """Any of these operations is enough; without all of them a code stands at ``place``."""

    any_of: tuple[tuple[Op, Kind], ...]
    # "topics.0.error_code"; empty if the answer has no room for a code.
    place: str | Callable[[int], str]
    prepare: Callable[[Any], None] = lambda _: None
    versions: range = range(100)

    def place_in(self, version: int) -> str:
        return self.place if isinstance(self.place, str) else self.place(version)

    @property
    def resource(self) -> Kind:
        return self.any_of[0][1]


def put(**values: Any) -> Callable[[Any], None]:
    """Set fields of a request: ``put(**{"topics.0.name": "y"})``."""

    def prepare(request: Any) -> None:
        for path, value in values.items():
            *steps, last = path.replace("__", ".").split(".")
            place = request
            for step in steps:
                place = place[int(step)] if step.isdigit() else getattr(place, step)
            setattr(place, last, value)

    return prepare


def topic(operation: Op, place: str | Callable[[int], str], *others: Any, **more: Any) -> Right:
    return Right(((operation, Kind.TOPIC), *others), place, **more)


def group(operation: Op, place: str | Callable[[int], str], *others: Any, **more: Any) -> Right:
    return Right(((operation, Kind.GROUP), *others), place, **more)


def cluster(operation: Op, place: str | Callable[[int], str], *others: Any, **more: Any) -> Right:
    return Right(((operation, Kind.CLUSTER), *others), place, **more)


def transaction(operation: Op, place: str | Callable[[int], str], **more: Any) -> Right:
    return Right(((operation, Kind.TRANSACTIONAL_ID),), place, **more)


def configs(operation: Op, place: str) -> list[Right]:
    def of(kind: int) -> Callable[[Any], None]:
        return put(resources__0__resource_type=kind)

    return [
        Right(((operation, Kind.TOPIC),), place, of(CONFIG_TOPIC)),
        Right(((operation, Kind.GROUP),), place, of(CONFIG_GROUP)),
        Right(((operation, Kind.CLUSTER),), place, of(CONFIG_BROKER)),
    ]


def offsets_place(version: int) -> str:
    if version >= 8:
        return "groups.0.error_code"
    return "error_code" if version >= 2 else "topics.0.partitions.0.error_code"


def offsets_topic_place(version: int) -> str:
    prefix = "groups.0." if version >= 8 else ""
    return f"{prefix}topics.0.partitions.0.error_code"


def coordinator_place(version: int) -> str:
    return "coordinators.0.error_code" if version >= 4 else "error_code"


def deleted(request: Any) -> None:
    for each in request.topics:
        each.name = None


EACH_PARTITION = "topics.0.partitions.0.error_code"

RIGHTS: dict[ApiKey, list[Right]] = {
    ApiKey.PRODUCE: [
        topic(
            Op.WRITE,
            "responses.0.partition_responses.0.error_code",
            prepare=put(acks=-1, transactional_id=None),
        ),
        transaction(Op.WRITE, "responses.0.partition_responses.0.error_code", prepare=put(acks=-1)),
    ],
    ApiKey.FETCH: [
        topic(Op.READ, "responses.0.partitions.0.error_code", prepare=put(replica_id=-1))
    ],
    ApiKey.LIST_OFFSETS: [topic(Op.DESCRIBE, EACH_PARTITION)],
    ApiKey.METADATA: [topic(Op.DESCRIBE, "topics.0.error_code")],
    ApiKey.OFFSET_COMMIT: [group(Op.READ, EACH_PARTITION), topic(Op.READ, EACH_PARTITION)],
    ApiKey.OFFSET_FETCH: [
        group(Op.DESCRIBE, offsets_place),
        topic(Op.DESCRIBE, offsets_topic_place),
    ],
    ApiKey.FIND_COORDINATOR: [
        group(Op.DESCRIBE, coordinator_place),
        transaction(
            Op.DESCRIBE, coordinator_place, prepare=put(key_type=1), versions=range(1, 100)
        ),
    ],
    ApiKey.JOIN_GROUP: [group(Op.READ, "error_code")],
    ApiKey.HEARTBEAT: [group(Op.READ, "error_code")],
    ApiKey.LEAVE_GROUP: [group(Op.READ, "error_code")],
    ApiKey.SYNC_GROUP: [group(Op.READ, "error_code")],
    ApiKey.DESCRIBE_GROUPS: [group(Op.DESCRIBE, "groups.0.error_code")],
    ApiKey.LIST_GROUPS: [
        group(
            Op.DESCRIBE,
            "",
            (Op.DESCRIBE, Kind.CLUSTER),
            prepare=put(states_filter=[], types_filter=[]),
        )
    ],
    ApiKey.SASL_HANDSHAKE: [],
    ApiKey.API_VERSIONS: [],
    ApiKey.CREATE_TOPICS: [
        topic(
            Op.CREATE,
            "topics.0.error_code",
            (Op.CREATE, Kind.CLUSTER),
            prepare=put(topics__0__name="new", topics__0__assignments=[], topics__0__configs=[]),
        )
    ],
    ApiKey.DELETE_TOPICS: [
        topic(Op.DELETE, "responses.0.error_code", (Op.DELETE, Kind.CLUSTER), prepare=deleted)
    ],
    ApiKey.DELETE_RECORDS: [
        topic(Op.DELETE, EACH_PARTITION, prepare=put(topics__0__partitions__0__offset=-1))
    ],
    ApiKey.INIT_PRODUCER_ID: [
        transaction(Op.WRITE, "error_code"),
        cluster(
            Op.IDEMPOTENT_WRITE,
            "error_code",
            (Op.WRITE, Kind.TOPIC),
            prepare=put(transactional_id=None, producer_id=-1, producer_epoch=-1),
        ),
    ],
    ApiKey.OFFSET_FOR_LEADER_EPOCH: [
        topic(Op.DESCRIBE, EACH_PARTITION, (Op.CLUSTER_ACTION, Kind.CLUSTER))
    ],
    ApiKey.ADD_PARTITIONS_TO_TXN: [
        transaction(
            Op.WRITE,
            "results_by_topic_v3_and_below.0.results_by_partition.0.partition_error_code",
            versions=range(4),
        ),
        topic(
            Op.WRITE,
            "results_by_topic_v3_and_below.0.results_by_partition.0.partition_error_code",
            versions=range(4),
        ),
        cluster(Op.CLUSTER_ACTION, "error_code", versions=range(4, 100)),
    ],
    ApiKey.ADD_OFFSETS_TO_TXN: [transaction(Op.WRITE, "error_code"), group(Op.READ, "error_code")],
    ApiKey.END_TXN: [transaction(Op.WRITE, "error_code")],
    ApiKey.WRITE_TXN_MARKERS: [
        cluster(
            Op.ALTER,
            "markers.0.topics.0.partitions.0.error_code",
            (Op.CLUSTER_ACTION, Kind.CLUSTER),
        )
    ],
    ApiKey.TXN_OFFSET_COMMIT: [
        transaction(Op.WRITE, EACH_PARTITION),
        group(Op.READ, EACH_PARTITION),
        topic(Op.READ, EACH_PARTITION),
    ],
    ApiKey.DESCRIBE_ACLS: [cluster(Op.DESCRIBE, "error_code")],
    ApiKey.CREATE_ACLS: [cluster(Op.ALTER, "results.0.error_code")],
    ApiKey.DELETE_ACLS: [cluster(Op.ALTER, "filter_results.0.error_code")],
    ApiKey.DESCRIBE_CONFIGS: configs(Op.DESCRIBE_CONFIGS, "results.0.error_code"),
    ApiKey.ALTER_CONFIGS: configs(Op.ALTER_CONFIGS, "responses.0.error_code"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: [cluster(Op.ALTER, "results.0.partitions.0.error_code")],
    ApiKey.DESCRIBE_LOG_DIRS: [
        cluster(Op.DESCRIBE, lambda version: "error_code" if version >= 3 else "")
    ],
    ApiKey.SASL_AUTHENTICATE: [],
    ApiKey.CREATE_PARTITIONS: [
        topic(
            Op.ALTER,
            "results.0.error_code",
            prepare=put(topics__0__count=9, topics__0__assignments=None),
        )
    ],
    ApiKey.DELETE_GROUPS: [group(Op.DELETE, "results.0.error_code")],
    ApiKey.ELECT_LEADERS: [
        cluster(
            Op.ALTER,
            lambda version: (
                "error_code"
                if version >= 1
                else "replica_election_results.0.partition_result.0.error_code"
            ),
        )
    ],
    ApiKey.INCREMENTAL_ALTER_CONFIGS: configs(Op.ALTER_CONFIGS, "responses.0.error_code"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: [cluster(Op.ALTER, "error_code")],
    ApiKey.LIST_PARTITION_REASSIGNMENTS: [cluster(Op.DESCRIBE, "error_code")],
    ApiKey.OFFSET_DELETE: [group(Op.DELETE, "error_code"), topic(Op.READ, EACH_PARTITION)],
    ApiKey.DESCRIBE_CLIENT_QUOTAS: [cluster(Op.DESCRIBE_CONFIGS, "error_code")],
    ApiKey.ALTER_CLIENT_QUOTAS: [cluster(Op.ALTER_CONFIGS, "entries.0.error_code")],
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: [cluster(Op.DESCRIBE, "error_code")],
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: [cluster(Op.ALTER, "results.0.error_code")],
    ApiKey.DESCRIBE_QUORUM: [cluster(Op.DESCRIBE, "error_code")],
    ApiKey.UPDATE_FEATURES: [cluster(Op.ALTER, "error_code")],
    ApiKey.DESCRIBE_CLUSTER: [],
    ApiKey.DESCRIBE_PRODUCERS: [topic(Op.READ, EACH_PARTITION)],
    ApiKey.DESCRIBE_TRANSACTIONS: [transaction(Op.DESCRIBE, "transaction_states.0.error_code")],
    ApiKey.LIST_TRANSACTIONS: [transaction(Op.DESCRIBE, "")],
    ApiKey.CONSUMER_GROUP_HEARTBEAT: [
        group(Op.READ, "error_code"),
        topic(Op.DESCRIBE, "error_code"),
    ],
    ApiKey.CONSUMER_GROUP_DESCRIBE: [group(Op.DESCRIBE, "groups.0.error_code")],
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: [],
    ApiKey.PUSH_TELEMETRY: [],
    ApiKey.LIST_CONFIG_RESOURCES: [cluster(Op.DESCRIBE_CONFIGS, "error_code")],
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: [
        topic(Op.DESCRIBE, "topics.0.error_code", prepare=put(cursor=None))
    ],
}
