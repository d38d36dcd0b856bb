"""``Admin``: the public face of administration.

Rule: every method is one coroutine of ``topic_admin.py``, ``group_admin.py`` and the like, given a
deadline and run on the engine. ``async_admin.py`` has the same methods with ``await``, made from
these by ``python -m docs.generate_async_admin``.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from shoal.access.quotas import IP, QuotaEntity, value_problem
from shoal.access.rules import Acl, AclFilter, acl_problem, filter_problem
from shoal.client import (
    acl_admin,
    feature_admin,
    group_admin,
    quota_admin,
    topic_admin,
    transaction_admin,
)
from shoal.client.arguments import check_offset, checks_arguments
from shoal.client.broker_links import Links
from shoal.client.cluster import Cluster
from shoal.client.config import AdminConfig, config_of, one_of
from shoal.client.deadlines import Deadline
from shoal.client.engine import Engine
from shoal.client.feature_admin import ClusterFeatures
from shoal.client.foreign_names import answers_foreign_names
from shoal.client.group_admin import GroupDescription, GroupListing, PartitionLag
from shoal.client.metrics import ClientMetrics, MetricListing
from shoal.client.offsets import (
    EARLIEST,
    ISOLATION_LEVELS,
    LATEST,
    MAX_TIMESTAMP,
    fetch_committed,
    list_offsets,
    pending_commits,
)
from shoal.client.security import tls_context
from shoal.client.settings import ConnectionSettings
from shoal.client.survey import ClusterSurvey, survey
from shoal.client.topic_admin import ClusterDescription, ConfigEntry, TopicDescription
from shoal.client.transaction_admin import (
    HangingTransaction,
    PartitionProducer,
    TransactionDescription,
    TransactionListing,
)
from shoal.errors import ConfigError
from shoal.types import (
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PreparedTransaction,
    TopicPartition,
)

T = TypeVar("T")

_ENDS = {"earliest": EARLIEST, "latest": LATEST, "max_timestamp": MAX_TIMESTAMP}


@answers_foreign_names
@checks_arguments()
class Admin:
    """Looks after topics, groups, settings, records, transactions, users and access rules.

    Safe to use from several threads.

    Settings are those of ``ConnectionConfig``. Every call takes ``timeout`` in seconds,
    ``default_api_timeout_ms`` if not given, retries what may pass until then, and raises
    ``BrokerError`` for what is final::

        with Admin(bootstrap_servers="localhost:9092") as admin:
            admin.create_topic("orders", partitions=12)
            print(admin.group_lag("billing"))
    """

    def __init__(
        self, config: AdminConfig | None = None, **settings: Unpack[ConnectionSettings]
    ) -> None:
        self.config = config_of("Admin", AdminConfig, config, settings)
        self._engine = Engine("shoal-admin")
        try:
            self._cluster = self._engine.call(self._start())
        except BaseException:
            self._engine.stop()
            raise

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Self:
        """An admin from Kafka's dotted names, as in a properties file."""
        return cls(AdminConfig.from_properties(properties))

    async def _start(self) -> Cluster:
        return Cluster(self.config, Links(self.config, tls_context(self.config)))

    def _call(self, work: Callable[[Cluster, Deadline], Awaitable[T]], timeout: float | None) -> T:
        return self._engine.call(self._work(work, timeout))

    async def _work(
        self, work: Callable[[Cluster, Deadline], Awaitable[T]], timeout: float | None
    ) -> T:
        default_s = self.config.default_api_timeout_ms / 1000
        deadline = Deadline(default_s if timeout is None else timeout)
        return await work(self._cluster, deadline)

    def metrics(self) -> ClientMetrics:
        """What this client has counted of its connections, under the names of Kafka's Java client,
        such as ``request-total`` or ``connection-count``. Any thread may ask, at any time.
        """
        self._engine.need_own_process()
        listing = MetricListing(self.config.client_id, self._engine.loop.time())
        self._cluster.tell(listing, "admin-client-metrics")
        return listing.metrics

    # --- cluster and topics ---

    def describe_cluster(self, *, timeout: float | None = None) -> ClusterDescription:
        """Cluster id, controller and brokers."""
        return self._call(topic_admin.describe_cluster, timeout)

    def describe_features(self, *, timeout: float | None = None) -> ClusterFeatures:
        """Features with their levels, and APIs with the versions all brokers have in common."""
        return self._call(feature_admin.describe_features, timeout)

    def list_topics(self, *, timeout: float | None = None) -> list[str]:
        """The names of all topics, internal ones too."""
        return self._call(topic_admin.list_topics, timeout)

    def describe_topics(
        self, *names: str, timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """Partitions, leaders and replicas of topics."""
        return self._call(lambda c, d: topic_admin.describe_topics(c, names, d), timeout)

    def partition_sizes(
        self, *topics: str, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """How many bytes each partition of these topics takes on disk."""
        return self._call(lambda c, d: topic_admin.partition_sizes(c, topics, d), timeout)

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Create a topic; what is not given is the broker's default. Waits for its leaders."""
        self._call(
            lambda c, d: topic_admin.create_topic(
                c, name, partitions, replication_factor, configs or {}, d
            ),
            timeout,
        )

    def delete_topics(self, *names: str, timeout: float | None = None) -> None:
        """Delete topics with all their records. Waits until brokers no longer know them."""
        self._call(lambda c, d: topic_admin.delete_topics(c, names, d), timeout)

    def create_partitions(self, totals: Mapping[str, int], *, timeout: float | None = None) -> None:
        """Grow topics to these totals of partitions. Waits for their leaders."""
        self._call(lambda c, d: topic_admin.create_partitions(c, totals, d), timeout)

    # --- settings ---

    def describe_configs(
        self,
        *,
        topic: str | None = None,
        broker: int | None = None,
        group: str | None = None,
        client_metrics: str | None = None,
        timeout: float | None = None,
    ) -> dict[str, ConfigEntry]:
        """The settings of one topic, broker or group, or of one subscription to metrics of
        clients."""
        kind, name = named_resource(topic, broker, group, client_metrics)
        return self._call(lambda c, d: topic_admin.describe_configs(c, kind, name, d), timeout)

    def alter_configs(
        self,
        changes: Mapping[str, str | None],
        *,
        topic: str | None = None,
        broker: int | None = None,
        group: str | None = None,
        client_metrics: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Change single settings of what ``describe_configs`` shows; ``None`` restores the default.

        A subscription to metrics of clients (KIP-714) is there as long as anything is set on it.
        """
        kind, name = named_resource(topic, broker, group, client_metrics)
        self._call(lambda c, d: topic_admin.alter_configs(c, kind, name, changes, d), timeout)

    def list_client_metrics(self, *, timeout: float | None = None) -> list[str]:
        """The names of all subscriptions to metrics of clients."""
        return self._call(lambda c, d: topic_admin.list_client_metrics(c, d), timeout)

    # --- offsets and records ---

    def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int | str],
        *,
        isolation_level: str = "read_uncommitted",
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Per partition the offset at "earliest", "latest", "max_timestamp", or at or after a
        time in milliseconds; ``None`` if there is no such record. With ``read_committed`` a log
        ends where the first open transaction begins."""
        specs = {tp: time_spec(one) for tp, one in wanted.items()}
        one_of("isolation_level", isolation_level, ISOLATION_LEVELS)

        async def ask(
            cluster: Cluster, deadline: Deadline
        ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
            await topic_admin.need_partitions(cluster, specs, deadline)
            return await list_offsets(cluster, specs, deadline, isolation_level)

        return self._call(ask, timeout)

    def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before these offsets (-1: all); the first offsets that are left."""
        return self._call(lambda c, d: topic_admin.delete_records(c, before, d), timeout)

    # --- groups ---

    def list_groups(
        self,
        *,
        states: Collection[str] = (),
        kinds: Collection[str] = (),
        timeout: float | None = None,
    ) -> list[GroupListing]:
        """The groups of all brokers; of these states and kinds only, if given."""
        return self._call(lambda c, d: group_admin.list_groups(c, states, kinds, d), timeout)

    def describe_group(self, group_id: str, *, timeout: float | None = None) -> GroupDescription:
        """State, assignor and members of a group."""
        return self._call(lambda c, d: group_admin.describe_group(c, group_id, d), timeout)

    def offers_new_protocol(self, group_id: str, *, timeout: float | None = None) -> bool:
        """Whether the group's coordinator speaks the consumer protocol (KIP-848)."""
        return self._call(lambda c, d: group_admin.has_new_protocol(c, group_id, d), timeout)

    def group_offsets(
        self,
        group_id: str,
        partitions: Collection[TopicPartition] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What a group has committed, for these partitions or for all it has.

        Offsets of a transaction count when it is committed, and are not waited for.
        """
        return self._call(
            lambda c, d: fetch_committed(c, group_id, partitions, d, require_stable=False), timeout
        )

    def pending_commits(
        self,
        group_id: str,
        partitions: Collection[TopicPartition],
        *,
        timeout: float | None = None,
    ) -> list[TopicPartition]:
        """Those of the partitions whose offset an open transaction is about to commit; a new
        member of the group waits for its end."""
        return self._call(lambda c, d: pending_commits(c, group_id, partitions, d), timeout)

    def group_lag(
        self, group_id: str, *, timeout: float | None = None
    ) -> dict[TopicPartition, PartitionLag]:
        """How far a group is behind, per partition, and who reads it."""
        return self._call(lambda c, d: group_admin.group_lag(c, group_id, d), timeout)

    def survey(
        self,
        *,
        groups: Collection[str] = ("*",),
        isolation_level: str = "read_uncommitted",
        timeout: float | None = None,
    ) -> ClusterSurvey:
        """Every topic and every group at once, in few requests, to watch a whole cluster.

        ``groups`` are names; ``*`` and ``?`` are patterns. What has no answer now is left out, or
        says why. With ``read_committed`` a log ends where the first open transaction begins.
        """
        one_of("isolation_level", isolation_level, ISOLATION_LEVELS)
        return self._call(lambda c, d: survey(c, groups, isolation_level, d), timeout)

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit these offsets for a group without members (or without membership)."""
        commit = {
            tp: OffsetAndMetadata(one) if isinstance(one, int) else one
            for tp, one in offsets.items()
        }
        for tp, one in commit.items():
            check_offset(tp, one.offset)

        async def alter(cluster: Cluster, deadline: Deadline) -> None:
            await topic_admin.need_partitions(cluster, commit, deadline)
            await group_admin.alter_group_offsets(cluster, group_id, commit, deadline)

        self._call(alter, timeout)

    def reset_group_offsets(
        self,
        group_id: str,
        partitions: Collection[TopicPartition],
        to: str | int,
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, int]:
        """Move a group without members to "earliest", "latest", "time:<ms>" or an offset."""
        return self._call(
            lambda c, d: group_admin.reset_group_offsets(c, group_id, partitions, to, d), timeout
        )

    def delete_groups(self, *group_ids: str, timeout: float | None = None) -> None:
        """Delete groups without members, and what they committed."""
        self._call(lambda c, d: group_admin.delete_groups(c, group_ids, d), timeout)

    def delete_group_offsets(
        self,
        group_id: str,
        partitions: Collection[TopicPartition],
        *,
        timeout: float | None = None,
    ) -> None:
        """Forget what a group committed for partitions it does not read."""
        self._call(
            lambda c, d: group_admin.delete_group_offsets(c, group_id, partitions, d), timeout
        )

    def remove_members(
        self, group_id: str, *group_instance_ids: str, timeout: float | None = None
    ) -> None:
        """Throw static members out of a group."""
        self._call(
            lambda c, d: group_admin.remove_members(c, group_id, group_instance_ids, d), timeout
        )

    # --- transactions ---

    def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        longer_than_ms: int | None = None,
        pattern: str | None = None,
        timeout: float | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids of all brokers; of these states and producers only, open for
        longer than this, or with ids that match a regular expression, if given."""
        return self._call(
            lambda c, d: transaction_admin.list_transactions(
                c, states, producer_ids, longer_than_ms, pattern, d
            ),
            timeout,
        )

    def describe_transactions(
        self, *transactional_ids: str, timeout: float | None = None
    ) -> dict[str, TransactionDescription]:
        """State, producer and partitions of transactional ids, and since when one is open."""
        return self._call(
            lambda c, d: transaction_admin.describe_transactions(c, transactional_ids, d), timeout
        )

    def describe_producers(
        self, partitions: Collection[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, list[PartitionProducer]]:
        """Who writes to partitions, and with which open transaction."""
        return self._call(
            lambda c, d: transaction_admin.describe_producers(c, partitions, d), timeout
        )

    def fence_producers(self, *transactional_ids: str, timeout: float | None = None) -> None:
        """Shut out the producers with these ids, and abort what they have open."""
        self._call(lambda c, d: transaction_admin.fence_producers(c, transactional_ids, d), timeout)

    def end_transaction(
        self, prepared: PreparedTransaction, *, commit: bool, timeout: float | None = None
    ) -> None:
        """End a transaction that its producer has prepared (``Producer.prepare_transaction``).

        It may be repeated until there is an answer: what has ended as wanted is a success.

        Raises:
            BrokerError: it has ended otherwise, as a rule because its time was over
                (INVALID_TXN_STATE, PRODUCER_FENCED, INVALID_PRODUCER_EPOCH), or its coordinator
                does not know it any more (INVALID_PRODUCER_ID_MAPPING).
        """
        self._call(
            lambda c, d: transaction_admin.end_transaction(c, prepared, d, commit=commit), timeout
        )

    def abort_transaction(
        self, partition: TopicPartition, start_offset: int, *, timeout: float | None = None
    ) -> None:
        """Abort, in one partition, the transaction that is open there since ``start_offset``.

        For a hanging one: its coordinator is not told, and if it has one, may still commit the
        rest. ``fence_producers`` aborts a whole transaction.
        """
        self._call(
            lambda c, d: transaction_admin.abort_transaction(c, partition, start_offset, d), timeout
        )

    def find_hanging_transactions(
        self, *topics: str, idle_ms: int = 900_000, timeout: float | None = None
    ) -> list[HangingTransaction]:
        """Transactions that hold readers of committed records back and that nobody will end.

        Args:
            topics: where to look; everywhere, if none is named.
            idle_ms: only where nothing was written for so long; less than the longest timeout the
                brokers allow (``transaction.max.timeout.ms``) may name one that goes on.
        """
        now_ms = time.time_ns() // 1_000_000
        return self._call(
            lambda c, d: transaction_admin.find_hanging_transactions(c, topics, idle_ms, now_ms, d),
            timeout,
        )

    # --- users ---

    def describe_users(self, *names: str, timeout: float | None = None) -> dict[str, list[str]]:
        """Users (all, or these) with the SCRAM mechanisms they have a password for."""
        return self._call(lambda c, d: topic_admin.describe_users(c, names, d), timeout)

    def set_password(
        self,
        user: str,
        password: str,
        *,
        mechanism: str = "SCRAM-SHA-512",
        timeout: float | None = None,
    ) -> None:
        """Create a SCRAM user, or change its password; only a salted hash is sent."""
        check_mechanism(mechanism)
        if not password:
            raise ValueError("the password is empty")
        self._call(lambda c, d: topic_admin.set_password(c, user, password, mechanism, d), timeout)

    def delete_password(
        self, user: str, *, mechanism: str = "SCRAM-SHA-512", timeout: float | None = None
    ) -> None:
        """Take a SCRAM user's password away."""
        check_mechanism(mechanism)
        self._call(lambda c, d: topic_admin.delete_password(c, user, mechanism, d), timeout)

    # --- access rules ---

    def describe_acls(
        self, asked: AclFilter | None = None, *, timeout: float | None = None
    ) -> list[Acl]:
        """The access rules that a filter names; all of them without one."""
        return self._call(lambda c, d: acl_admin.describe_acls(c, asked or AclFilter(), d), timeout)

    def create_acls(self, *acls: Acl, timeout: float | None = None) -> None:
        """Add access rules. One that exists already is not an error."""
        for acl in acls:
            if problem := acl_problem(acl):
                raise ValueError(f"{tuple(acl)}: {problem}")
        self._call(lambda c, d: acl_admin.create_acls(c, acls, d), timeout)

    def delete_acls(self, *filters: AclFilter | Acl, timeout: float | None = None) -> list[Acl]:
        """Remove the access rules that filters name, or these very rules. What is gone is returned.

        ``AclFilter()`` names every rule there is.
        """
        named = [AclFilter(*one) if isinstance(one, Acl) else one for one in filters]
        for one in named:
            if problem := filter_problem(one):
                raise ValueError(f"{tuple(one)}: {problem}")
        return self._call(lambda c, d: acl_admin.delete_acls(c, named, d), timeout)

    # --- quotas ---

    def describe_quotas(
        self, *, timeout: float | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Every quota: by whom it is for, such as ``(("user", "ann"),)``; None is the default."""
        return self._call(quota_admin.describe_quotas, timeout)

    def alter_quotas(
        self,
        quotas: Mapping[str, float | None],
        *,
        user: str | None = None,
        client_id: str | None = None,
        default_user: bool = False,
        default_client_id: bool = False,
        ip: str | None = None,
        default_ip: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Set quotas of a user, a client id or both, or of the default; None removes one::

        admin.alter_quotas({"producer_byte_rate": 1_000_000}, user="ann")
        admin.alter_quotas({"connection_creation_rate": 10}, ip="10.0.0.5")
        """
        if ip is not None or default_ip:
            if user or client_id or default_user or default_client_id or (ip and default_ip):
                raise ValueError(
                    "a quota of an ip cannot name a user, a client id or a default as well"
                )
            entity: QuotaEntity = ((IP, ip),)
        else:
            entity = quota_admin.entity_of(
                user, client_id, default_user=default_user, default_client_id=default_client_id
            )
        if not quotas:
            raise ValueError("no quota is named: give one, such as producer_byte_rate=1e6")
        for key, value in quotas.items():
            if problem := value_problem(key, value, of_ip=entity[0][0] == IP):
                raise ValueError(problem)
        self._call(lambda c, d: quota_admin.alter_quotas(c, entity, quotas, d), timeout)

    # --- the end ---

    def close(self) -> None:
        """Close the connections. May be repeated."""
        if self._engine.is_running:
            try:
                self._engine.call(self._cluster.close())
            finally:
                self._engine.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def named_resource(
    topic: str | None, broker: int | None, group: str | None, client_metrics: str | None = None
) -> tuple[str, str]:
    """Kind and name of the one resource that is named."""
    given = [
        (kind, str(name))
        for kind, name in (
            ("topic", topic),
            ("broker", broker),
            ("group", group),
            ("client metrics", client_metrics),
        )
        if name is not None
    ]
    if len(given) != 1:
        raise ValueError("name exactly one of topic=, broker=, group=, client_metrics=")
    return given[0]


def time_spec(one: int | str) -> int:
    """A time, or an end by name, as ListOffsets has it."""
    if isinstance(one, int):
        if one < 0:
            raise ValueError(f"the time {one} is negative; times are milliseconds since 1970")
        return one
    if one not in _ENDS:
        raise ValueError(f"{one!r} is not one of {', '.join(_ENDS)} or a time in milliseconds")
    return _ENDS[one]


def check_mechanism(mechanism: str) -> None:
    """Raises ConfigError for what is not a SCRAM mechanism."""
    if mechanism not in topic_admin.MECHANISMS:
        raise ConfigError(
            f"mechanism={mechanism!r} is not one of {', '.join(topic_admin.MECHANISMS)}"
        )
