"""``Admin``: the public face of administration.

Rule: every method is one coroutine of ``topic_admin.py``, ``group_admin.py`` or ``offsets.py``,
given a deadline and run on the engine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from shoal.client import group_admin, size_admin, topic_admin
from shoal.client.arguments import checks_arguments
from shoal.client.cluster import Cluster
from shoal.client.config import AdminConfig, config_of
from shoal.client.engine import Engine
from shoal.client.group_admin import GroupDescription, GroupListing, PartitionLag
from shoal.client.links import Links
from shoal.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, fetch_committed, list_offsets
from shoal.client.security import tls_context
from shoal.client.settings import ConnectionSettings
from shoal.client.timing import Deadline
from shoal.client.topic_admin import ClusterDescription, ConfigEntry, TopicDescription
from shoal.errors import ConfigError
from shoal.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

T = TypeVar("T")

_ENDS = {"earliest": EARLIEST, "latest": LATEST, "max_timestamp": MAX_TIMESTAMP}


@checks_arguments()
class Admin:
    """Looks after topics, groups, settings, records and users. Safe to use from several threads.

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
        async def run() -> T:
            default_s = self.config.default_api_timeout_ms / 1000
            deadline = Deadline(default_s if timeout is None else timeout)
            return await work(self._cluster, deadline)

        return self._engine.call(run())

    # --- cluster and topics ---

    def describe_cluster(self, *, timeout: float | None = None) -> ClusterDescription:
        """Cluster id, controller and brokers."""
        return self._call(topic_admin.describe_cluster, timeout)

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
        return self._call(lambda c, d: size_admin.partition_sizes(c, topics, d), timeout)

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
        timeout: float | None = None,
    ) -> dict[str, ConfigEntry]:
        """The settings of one topic, broker or group."""
        kind, name = _resource(topic, broker, group)
        return self._call(lambda c, d: topic_admin.describe_configs(c, kind, name, d), timeout)

    def alter_configs(
        self,
        changes: Mapping[str, str | None],
        *,
        topic: str | None = None,
        broker: int | None = None,
        group: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Change single settings of one topic, broker or group; ``None`` restores the default."""
        kind, name = _resource(topic, broker, group)
        self._call(lambda c, d: topic_admin.alter_configs(c, kind, name, changes, d), timeout)

    # --- offsets and records ---

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int | str], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Per partition the offset at "earliest", "latest", "max_timestamp", or at or after a
        time in milliseconds; ``None`` if there is no such record."""
        specs = {tp: _spec(one) for tp, one in wanted.items()}

        async def ask(
            cluster: Cluster, deadline: Deadline
        ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
            await topic_admin.need_partitions(cluster, specs, deadline)
            return await list_offsets(cluster, specs, deadline)

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

    def group_offsets(
        self,
        group_id: str,
        partitions: Collection[TopicPartition] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What a group has committed, for these partitions or for all it has."""
        return self._call(lambda c, d: fetch_committed(c, group_id, partitions, d), timeout)

    def group_lag(
        self, group_id: str, *, timeout: float | None = None
    ) -> dict[TopicPartition, PartitionLag]:
        """How far a group is behind, per partition, and who reads it."""
        return self._call(lambda c, d: group_admin.group_lag(c, group_id, d), timeout)

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
            if one.offset < 0:
                raise ValueError(f"cannot commit offset {one.offset} for {tp}")

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
        _known_mechanism(mechanism)
        if not password:
            raise ValueError("the password is empty")
        self._call(lambda c, d: topic_admin.set_password(c, user, password, mechanism, d), timeout)

    def delete_password(
        self, user: str, *, mechanism: str = "SCRAM-SHA-512", timeout: float | None = None
    ) -> None:
        """Take a SCRAM user's password away."""
        _known_mechanism(mechanism)
        self._call(lambda c, d: topic_admin.delete_password(c, user, mechanism, d), timeout)

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


def _resource(topic: str | None, broker: int | None, group: str | None) -> tuple[str, str]:
    given = [
        (kind, str(name))
        for kind, name in (("topic", topic), ("broker", broker), ("group", group))
        if name is not None
    ]
    if len(given) != 1:
        raise ValueError("name exactly one of topic=, broker=, group=")
    return given[0]


def _spec(one: int | str) -> int:
    if isinstance(one, int):
        if one < 0:
            raise ValueError(f"the time {one} is negative")
        return one
    if one not in _ENDS:
        raise ValueError(f"{one!r} is not one of {', '.join(_ENDS)} or a time in milliseconds")
    return _ENDS[one]


def _known_mechanism(mechanism: str) -> None:
    if mechanism not in topic_admin.MECHANISMS:
        raise ConfigError(
            f"mechanism={mechanism!r} is not one of {', '.join(topic_admin.MECHANISMS)}"
        )
