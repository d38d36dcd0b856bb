"""The catalogue: which topics exist, how many partitions they have, how they are configured.

Settings of the broker and of groups, access rules and quotas are in it, too.

Rule: ``decide_*`` only looks and returns a journal entry or an error; ``replay`` is the only
place that changes the catalogue. Loading after a restart is replaying.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from shoal.broker.journal import Entry
from shoal.broker.topic_configs import CLUSTER_CONFIGS, TOPIC_CONFIGS, check_value, segment_fault
from shoal.errors import ConfigError, ErrorCode

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
NAME_MAX: Final = 249
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")

Refusal = tuple[ErrorCode, str]


@dataclass(slots=True)
class Topic:
    """One topic. ``configs`` holds only what differs from the defaults."""

    name: str
    id: bytes
    partition_count: int
    configs: dict[str, str] = field(default_factory=dict)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


def name_problem(name: str | None) -> str:
    """Why a topic must not be called that, or an empty string."""
    if not name:
        return "the name is empty"
    if name in (".", ".."):
        return "the name must not be '.' or '..'"
    if len(name) > NAME_MAX:
        return f"the name is longer than {NAME_MAX} characters"
    if not _NAME.fullmatch(name):
        return "only letters, digits, '.', '_' and '-' are allowed in a topic name"
    return ""


class Catalogue:
    """All topics, broker-wide configurations and group configurations."""

    def __init__(
        self,
        defaults: Mapping[str, str],
        *,
        topics_max: int,
        partitions_max: int,
        segment_bytes_min: int = 0,
    ) -> None:
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        # Names with every dot an underscore: two that agree would have the same metrics.
        self._flat: dict[str, str] = {}
        self._defaults = dict(defaults)
        self._topics_max = topics_max
        self._partitions_max = partitions_max
        self._segment_bytes_min = segment_bytes_min
        self._partition_total = 0
        # Set through AlterConfigs on the broker, on all brokers (""), and on groups.
        # Set while running: on this broker, and on all brokers, which gives way to the former.
        self.broker_configs: dict[str, str] = {}
        self.cluster_configs: dict[str, str] = dict(CLUSTER_CONFIGS)
        self.group_configs: dict[str, dict[str, str]] = {}
        # Which metrics clients are to push, by the name of the subscription.
        self.client_metrics: dict[str, dict[str, str]] = {}
        # The fields of each access rule (``acls.py``), whether or not they are in force.
        self.acls: set[tuple[Any, ...]] = set()
        self.quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {}
        self.next_producer_id = 0
        # Levels of features that somebody has set, and how often that was done.
        self.feature_levels: dict[str, int] = {}
        self.features_epoch = 0

    # --- looking ----------------------------------------------------------------------------

    def __contains__(self, name: str) -> bool:
        return name in self._topics

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    def __len__(self) -> int:
        return len(self._topics)

    def get(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def default(self, name: str) -> str:
        """The value of a topic configuration that the topic itself does not set."""
        entry = TOPIC_CONFIGS[name]
        for configs in (self.broker_configs, self.cluster_configs):
            if entry.broker_name is not None and entry.broker_name in configs:
                return configs[entry.broker_name]
        return self._defaults.get(name, entry.default)

    def set_number(self, name: str, otherwise: int) -> int:
        """A setting of the broker that was changed while running, or what counts without it."""
        for configs in (self.broker_configs, self.cluster_configs):
            if name in configs:
                return int(configs[name])
        return otherwise

    def config(self, topic: Topic, name: str) -> str:
        value = topic.configs.get(name)
        return value if value is not None else self.default(name)

    @property
    def file_defaults(self) -> Mapping[str, str]:
        """Defaults that the configuration file or the flags set."""
        return self._defaults

    # --- deciding -----------------------------------------------------------------------------

    def decide_create(
        self,
        name: str,
        topic_id: bytes,
        partition_count: int,
        configs: Mapping[str, str],
        *,
        internal: bool = False,
        beside: tuple[int, int] = (0, 0),
    ) -> Entry | Refusal:
        """A new topic. ``beside`` are topics and partitions that the same request also makes.

        Topics that make themselves are not limited: there are few, and groups cannot do without.
        """
        problem = name_problem(name)
        if problem:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, problem
        if name in self._topics:
            return ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists."
        if twin := self._collision(name):
            return (
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {twin}",
            )
        if partition_count < 1:
            return ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."
        topics, partitions = 1 + beside[0], partition_count + beside[1]
        if not internal and (refusal := self._too_many(partitions, new_topics=topics)):
            return refusal
        if conflict := self._config_problem(configs):
            return ErrorCode.INVALID_CONFIG, conflict
        return {
            "kind": "topic",
            "name": name,
            "id": topic_id.hex(),
            "partitions": partition_count,
            "configs": dict(configs),
        }

    def _config_problem(self, configs: Mapping[str, str]) -> str | None:
        """Why a topic cannot have these configurations beside the defaults."""
        try:
            for key, value in configs.items():
                check_value(key, value)
                if fault := segment_fault(key, value, self._segment_bytes_min):
                    return fault
        except ConfigError as error:
            return str(error)
        low, high = "min.compaction.lag.ms", "max.compaction.lag.ms"
        lowest, highest = (int(configs.get(key) or self.default(key)) for key in (low, high))
        if (low in configs or high in configs) and lowest > highest:
            return f"conflict topic config setting {low} ({lowest}) > {high} ({highest})"
        return None

    def _collision(self, name: str) -> str | None:
        """Kafka refuses 'a.b' beside 'a_b': metric names would be the same."""
        if "." not in name and "_" not in name:
            return None
        return self._flat.get(name.replace(".", "_"))

    def _too_many(self, partitions: int, *, new_topics: int) -> Refusal | None:
        if len(self._topics) + new_topics > self._topics_max:
            return ErrorCode.POLICY_VIOLATION, f"the limit of {self._topics_max} topics is reached"
        if self._partition_total + partitions > self._partitions_max:
            return (
                ErrorCode.POLICY_VIOLATION,
                f"the limit of {self._partitions_max} partitions is reached",
            )
        return None

    def decide_delete(self, name: str) -> Entry | Refusal:
        if name not in self._topics:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist."
        if name in INTERNAL_TOPICS:
            return ErrorCode.INVALID_REQUEST, f"Topic '{name}' is internal."
        return {"kind": "delete", "name": name}

    def decide_partitions(self, name: str, count: int, *, beside: int = 0) -> Entry | Refusal:
        """More partitions. ``beside`` are those that the same request adds to other topics."""
        topic = self._topics.get(name)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist."
        if topic.is_internal:
            return ErrorCode.INVALID_REQUEST, f"Topic '{name}' is internal."
        if count == topic.partition_count:
            return (
                ErrorCode.INVALID_PARTITIONS,
                f"Topic already has {count} partition(s).",
            )
        if count < topic.partition_count:
            return (
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {name} currently has {topic.partition_count} partition(s); "
                f"{count} would not be an increase.",
            )
        if refusal := self._too_many(count - topic.partition_count + beside, new_topics=0):
            return refusal
        return {"kind": "partitions", "name": name, "partitions": count}

    def decide_configs(self, name: str, configs: Mapping[str, str]) -> Entry | Refusal:
        """Replace all of a topic's own configurations.

        The faults come in Kafka's order: what is said of the settings counts before whether there
        is such a topic.
        """
        if not name:
            return ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."
        if fault := name_problem(name):
            return ErrorCode.INVALID_TOPIC_EXCEPTION, fault
        if conflict := self._config_problem(configs):
            return ErrorCode.INVALID_CONFIG, conflict
        if name not in self._topics:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist."
        return {"kind": "configs", "name": name, "configs": dict(configs)}

    # --- replaying ------------------------------------------------------------------------------

    def replay(self, entry: Entry) -> None:
        getattr(self, f"_replay_{entry['kind']}")(entry)

    def _replay_topic(self, entry: Entry) -> None:
        topic = Topic(
            entry["name"], bytes.fromhex(entry["id"]), entry["partitions"], entry["configs"]
        )
        self._topics[topic.name] = topic
        self._by_id[topic.id] = topic
        self._flat[topic.name.replace(".", "_")] = topic.name
        self._partition_total += topic.partition_count

    def _replay_delete(self, entry: Entry) -> None:
        topic = self._topics.pop(entry["name"])
        del self._by_id[topic.id]
        self._flat.pop(topic.name.replace(".", "_"), None)
        self._partition_total -= topic.partition_count

    def _replay_partitions(self, entry: Entry) -> None:
        topic = self._topics[entry["name"]]
        self._partition_total += entry["partitions"] - topic.partition_count
        topic.partition_count = entry["partitions"]

    def _replay_configs(self, entry: Entry) -> None:
        self._topics[entry["name"]].configs = dict(entry["configs"])

    def _replay_broker_configs(self, entry: Entry) -> None:
        self.broker_configs = dict(entry["configs"])

    def _replay_cluster_configs(self, entry: Entry) -> None:
        self.cluster_configs = dict(entry["configs"])

    def _replay_group_configs(self, entry: Entry) -> None:
        if entry["configs"]:
            self.group_configs[entry["group"]] = dict(entry["configs"])
        else:
            self.group_configs.pop(entry["group"], None)

    def _replay_client_metrics(self, entry: Entry) -> None:
        if entry["configs"]:
            self.client_metrics[entry["name"]] = dict(entry["configs"])
        else:
            self.client_metrics.pop(entry["name"], None)

    def _replay_acls(self, entry: Entry) -> None:
        self.acls.difference_update(map(tuple, entry["removed"]))
        self.acls.update(map(tuple, entry["added"]))

    def _replay_quotas(self, entry: Entry) -> None:
        entity = tuple((kind, name) for kind, name in entry["entity"])
        if entry["values"]:
            self.quotas[entity] = dict(entry["values"])
        else:
            self.quotas.pop(entity, None)

    def _replay_producer_ids(self, entry: Entry) -> None:
        self.next_producer_id = max(self.next_producer_id, entry["next"])

    def _replay_features(self, entry: Entry) -> None:
        self.feature_levels = dict(entry["levels"])
        self.features_epoch = entry.get("epoch", self.features_epoch + 1)

    def entries(self) -> Iterable[dict[str, Any]]:
        """The shortest journal that gives this catalogue."""
        yield {"kind": "producer_ids", "next": self.next_producer_id}
        yield {"kind": "broker_configs", "configs": self.broker_configs}
        if self.cluster_configs != CLUSTER_CONFIGS:
            yield {"kind": "cluster_configs", "configs": self.cluster_configs}
        for group, configs in self.group_configs.items():
            yield {"kind": "group_configs", "group": group, "configs": configs}
        for name, configs in self.client_metrics.items():
            yield {"kind": "client_metrics", "name": name, "configs": configs}
        if self.features_epoch:
            yield {
                "kind": "features",
                "levels": self.feature_levels,
                "epoch": self.features_epoch,
            }
        if self.acls:
            yield {"kind": "acls", "added": sorted(self.acls), "removed": []}
        for entity, values in self.quotas.items():
            yield {"kind": "quotas", "entity": entity, "values": values}
        for topic in self._topics.values():
            yield {
                "kind": "topic",
                "name": topic.name,
                "id": topic.id.hex(),
                "partitions": topic.partition_count,
                "configs": topic.configs,
            }
