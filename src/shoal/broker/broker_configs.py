"""Kafka's configurations of a broker and of a group, as far as they mean something here.

Rule: a value shown is the value in force; what cannot be changed while running is read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from shoal.broker.config import BrokerConfig, GroupSettings
from shoal.broker.topic_configs import (
    BROKER_NAMES,
    INT_MAX,
    LONG_MAX,
    TOPIC_CONFIGS,
    ConfigDefinition,
    ConfigSource,
    ConfigType,
    problem,
)
from shoal.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from shoal.broker.broker import Broker

Synonym = tuple[str, str | None, ConfigSource]
_Setting = tuple[ConfigType, str, Callable[[BrokerConfig], object]]


class Shown(NamedTuple):
    """One row of DescribeConfigs."""

    name: str
    value: str | None
    type: ConfigType
    source: ConfigSource
    read_only: bool
    about: str
    # (name, value, source), most specific first.
    synonyms: tuple[Synonym, ...] = ()
    is_sensitive: bool = False


def broker_rows(broker: Broker) -> list[Shown]:
    """The broker's own settings, the defaults it gives to topics, and what else may be set."""
    rows = _static(broker)
    for name, topic_name in BROKER_NAMES.items():
        entry = TOPIC_CONFIGS[topic_name]
        synonyms = default_synonyms(broker, topic_name)
        if synonyms:
            _, value, source = synonyms[0]
        else:
            value, source = None, ConfigSource.DEFAULT_CONFIG
        rows.append(Shown(name, value, entry.type, source, False, entry.about, synonyms))
    shown = {row.name for row in rows}
    catalogue = broker.catalogue
    # Those that nobody set are shown, too: kafka-python refuses to set what it does not see.
    for name in {**CHANGEABLE, **catalogue.broker_configs, **catalogue.cluster_configs}:
        if name not in shown:
            synonyms = _set_synonyms(broker, name)
            if name in CHANGEABLE:
                usual = CHANGEABLE[name].default
                synonyms += ((name, usual, ConfigSource.DEFAULT_CONFIG),)
            rows.append(_set_row(name, synonyms))
    return rows


def cluster_rows(broker: Broker) -> list[Shown]:
    """What was set on all brokers, and nothing else."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    configs = broker.catalogue.cluster_configs
    return [_set_row(name, ((name, value, source),)) for name, value in configs.items()]


def _set_row(name: str, synonyms: tuple[Synonym, ...]) -> Shown:
    """A setting that may be set while the broker runs, or that somebody set."""
    _, value, source = synonyms[0]
    if name in BROKER_NAMES:
        entry = TOPIC_CONFIGS[BROKER_NAMES[name]]
        return Shown(name, value, entry.type, source, False, entry.about, synonyms)
    known = CHANGEABLE.get(name)
    if known is not None:
        return Shown(name, value, known.type, source, False, known.about, synonyms)
    # Nobody knows what it is, so it may be a password: Kafka keeps it and never shows it.
    hidden = tuple((each, None, where) for each, _, where in synonyms)
    return Shown(name, None, ConfigType.UNKNOWN, source, True, "", hidden, is_sensitive=True)


def _set_synonyms(broker: Broker, name: str) -> tuple[Synonym, ...]:
    found: list[Synonym] = []
    for configs, source in (
        (broker.catalogue.broker_configs, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (broker.catalogue.cluster_configs, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
    ):
        if name in configs:
            found.append((name, configs[name], source))
    return tuple(found)


def default_synonyms(broker: Broker, topic_name: str) -> tuple[Synonym, ...]:
    """Where a topic's default comes from: set while running, in the file, or Kafka's own.

    Four of Kafka's broker settings have no value of their own until they are set, and some
    settings of topics have no setting of the broker behind them: then there is nothing to show.
    """
    entry = TOPIC_CONFIGS[topic_name]
    name = entry.broker_name
    if name is None:
        return ()
    found = [*_set_synonyms(broker, name)]
    if topic_name in broker.catalogue.file_defaults:
        value = broker.catalogue.file_defaults[topic_name]
        found.append((name, value, ConfigSource.STATIC_BROKER_CONFIG))
    if entry.fallback is None:
        found.append((name, entry.default, ConfigSource.DEFAULT_CONFIG))
    elif found:
        found.append((*entry.fallback, ConfigSource.DEFAULT_CONFIG))
    return tuple(found)


def default_source(broker: Broker, topic_name: str) -> ConfigSource:
    """Who says what a topic gets that sets nothing itself."""
    synonyms = default_synonyms(broker, topic_name)
    return synonyms[0][2] if synonyms else ConfigSource.DEFAULT_CONFIG


def _static(broker: Broker) -> list[Shown]:
    bound = broker.listeners
    listeners = ",".join(f"{b.config.protocol}://{b.host}:{b.port}" for b in bound)
    advertised = ",".join(
        f"{b.config.protocol}://{b.advertised[0]}:{b.advertised[1]}" for b in bound
    )
    number = str(broker.node_id)
    named = {
        "advertised.listeners": (advertised, "what clients are told to use"),
        "broker.id": (number, "the number of this node"),
        "listeners": (listeners, "addresses served"),
        "log.dirs": (broker.partitions.root, "the data directory"),
        "node.id": (number, "the number of this node"),
    }
    fixed = ConfigSource.STATIC_BROKER_CONFIG
    rows = [
        Shown(
            name,
            value,
            ConfigType.INT if value is number else ConfigType.LIST,
            fixed,
            True,
            about,
            ((name, value, fixed),),
        )
        for name, (value, about) in named.items()
    ]
    plain = BrokerConfig()
    for name, (kind, about, look_up) in _SETTINGS.items():
        value, usual = _text(look_up(broker.config)), _text(look_up(plain))
        synonyms = _set_synonyms(broker, name)
        if value != usual:
            synonyms += ((name, value, fixed),)
        synonyms += ((name, usual, ConfigSource.DEFAULT_CONFIG),)
        _, shown, source = synonyms[0]
        rows.append(Shown(name, shown, kind, source, name not in CHANGEABLE, about, synonyms))
    return sorted(rows)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _int(about: str, value: Callable[[BrokerConfig], object]) -> _Setting:
    return ConfigType.INT, about, value


_FIXED: Final = frozenset({"advertised.listeners", "broker.id", "listeners", "log.dirs", "node.id"})

# What DescribeConfigs shows of our configuration, under Kafka's names.
_SETTINGS: Final[Mapping[str, _Setting]] = {
    "allow.everyone.if.no.acl.found": (
        ConfigType.BOOLEAN,
        "whether what no access rule is about is open to everybody",
        lambda c: c.authorization is not None and c.authorization.allow_everyone_if_no_acl_found,
    ),
    "authorizer.class.name": (
        ConfigType.STRING,
        "who decides what is allowed; empty: everything is",
        lambda c: "" if c.authorization is None else "shoal.access.acl_authorizer.AclAuthorizer",
    ),
    "auto.create.topics.enable": (
        ConfigType.BOOLEAN,
        "create topics on first use",
        lambda c: c.topics.auto_create,
    ),
    "connections.max.idle.ms": (
        ConfigType.LONG,
        "idle connections are closed after this time",
        lambda c: int(c.limits.idle_seconds * 1000),
    ),
    "default.replication.factor": _int("one node, one replica", lambda _: 1),
    "group.consumer.assignment.interval.ms": _int(
        "a target is computed at most so often", lambda c: c.groups.consumer_assignment_interval_ms
    ),
    "group.consumer.assignors": (
        ConfigType.LIST,
        "who assigns in consumer groups; the first unless members vote",
        lambda c: ",".join(each.partition("=")[0] for each in c.groups.consumer_assignors),
    ),
    "group.consumer.heartbeat.interval.ms": _int(
        "how often members come at least; less often only if it is set",
        lambda c: c.groups.consumer_heartbeat_interval_ms or 5_000,
    ),
    "group.consumer.max.heartbeat.interval.ms": _int(
        "longest interval of a group", lambda c: c.groups.consumer_max_heartbeat_interval_ms
    ),
    "group.consumer.max.session.timeout.ms": _int(
        "longest session of a group", lambda c: c.groups.consumer_max_session_timeout_ms
    ),
    "group.consumer.max.size": _int(
        "members of one consumer group", lambda c: c.groups.consumer_max_size
    ),
    "group.consumer.migration.policy": (
        ConfigType.STRING,
        "which way groups change protocol while they run",
        lambda c: c.groups.consumer_migration_policy,
    ),
    "group.consumer.min.heartbeat.interval.ms": _int(
        "shortest interval of a group", lambda c: c.groups.consumer_min_heartbeat_interval_ms
    ),
    "group.consumer.min.session.timeout.ms": _int(
        "shortest session of a group", lambda c: c.groups.consumer_min_session_timeout_ms
    ),
    "group.consumer.session.timeout.ms": _int(
        "silence after which a member is out", lambda c: c.groups.consumer_session_timeout_ms
    ),
    "group.initial.rebalance.delay.ms": _int(
        "how long a new group waits for more members",
        lambda c: c.groups.initial_rebalance_delay_ms,
    ),
    "group.max.session.timeout.ms": _int(
        "longest session timeout a member may ask for", lambda c: c.groups.max_session_timeout_ms
    ),
    "group.max.size": _int("members of one group", lambda c: c.groups.max_size),
    "group.min.session.timeout.ms": _int(
        "shortest session timeout a member may ask for", lambda c: c.groups.min_session_timeout_ms
    ),
    "max.connections": _int("open connections", lambda c: c.limits.connections),
    "max.connections.per.ip": _int(
        "open connections from one address", lambda c: c.limits.connections_per_address
    ),
    "num.partitions": _int(
        "partitions of topics created on first use", lambda c: c.topics.partitions
    ),
    "offset.metadata.max.bytes": _int(
        "largest note with a committed offset", lambda c: c.groups.offset_metadata_max_bytes
    ),
    "offsets.retention.minutes": _int(
        "how long offsets of an empty group are kept", lambda c: c.groups.offsets_retention_minutes
    ),
    "offsets.topic.num.partitions": _int(
        "partitions of the offsets topic", lambda c: c.groups.offsets_partitions
    ),
    "offsets.topic.replication.factor": (
        ConfigType.SHORT,
        "one node, one replica",
        lambda _: 1,
    ),
    "shoal.durability": (
        ConfigType.STRING,
        "when an append counts as stored",
        lambda c: c.durability,
    ),
    "socket.request.max.bytes": _int("largest request", lambda c: c.limits.frame_bytes),
    "super.users": (
        ConfigType.STRING,
        "who may do everything, separated by semicolons",
        lambda c: "" if c.authorization is None else ";".join(c.authorization.super_users),
    ),
    "transaction.max.timeout.ms": _int(
        "longest timeout of a transaction a producer may ask for",
        lambda c: c.transactions.max_timeout_ms,
    ),
    "transaction.remove.expired.transaction.cleanup.interval.ms": _int(
        "between two looks for transactional ids that expired",
        lambda c: c.transactions.remove_expired_interval_ms,
    ),
    "transaction.state.log.num.partitions": _int(
        "partitions of the transactions topic", lambda c: c.transactions.state_partitions
    ),
    "transaction.state.log.replication.factor": (
        ConfigType.SHORT,
        "one node, one replica",
        lambda _: 1,
    ),
    "transaction.two.phase.commit.enable": (
        ConfigType.BOOLEAN,
        "whether transactions without a timeout may be asked for",
        lambda c: c.transactions.two_phase_commit,
    ),
    "transactional.id.expiration.ms": _int(
        "how long an unused transactional id is kept", lambda c: c.transactions.id_expiration_ms
    ),
}


def _changeable(kind: ConfigType, default: str, about: str, low: int = 0) -> ConfigDefinition:
    high = INT_MAX if kind is ConfigType.INT else LONG_MAX
    choices = ("true", "false") if kind is ConfigType.BOOLEAN else ()
    return ConfigDefinition(kind, default, about, low, high, choices)


_IDLE: Final = "kept and shown; nothing here depends on it"
# What Kafka lets one change on a running broker, beside the defaults of topics. The first three
# count here as well; the others are kept, because tools set them and look whether they are there.
CHANGEABLE: Final[Mapping[str, ConfigDefinition]] = {
    "max.connection.creation.rate": _changeable(
        ConfigType.INT, str(INT_MAX), "new connections per second"
    ),
    "max.connections": _changeable(ConfigType.INT, str(INT_MAX), "open connections"),
    "max.connections.per.ip": _changeable(
        ConfigType.INT, str(INT_MAX), "open connections from one address"
    ),
    "background.threads": _changeable(ConfigType.INT, "10", _IDLE, 1),
    "log.cleaner.backoff.ms": _changeable(ConfigType.LONG, "15000", _IDLE),
    "log.cleaner.dedupe.buffer.size": _changeable(ConfigType.LONG, "134217728", _IDLE),
    "log.cleaner.io.buffer.load.factor": _changeable(ConfigType.DOUBLE, "0.9", _IDLE),
    "log.cleaner.io.buffer.size": _changeable(ConfigType.INT, "524288", _IDLE),
    "log.cleaner.io.max.bytes.per.second": _changeable(
        ConfigType.DOUBLE, "1.7976931348623157E308", _IDLE
    ),
    "log.cleaner.threads": _changeable(ConfigType.INT, "1", _IDLE),
    "max.connections.per.ip.overrides": _changeable(ConfigType.STRING, "", _IDLE),
    "num.io.threads": _changeable(ConfigType.INT, "8", _IDLE, 1),
    "num.network.threads": _changeable(ConfigType.INT, "3", _IDLE, 1),
    "num.recovery.threads.per.data.dir": _changeable(ConfigType.INT, "2", _IDLE, 1),
    "num.replica.fetchers": _changeable(ConfigType.INT, "1", _IDLE),
    "producer.id.expiration.ms": _changeable(ConfigType.INT, "86400000", _IDLE, 1),
    "transaction.partition.verification.enable": _changeable(ConfigType.BOOLEAN, "true", _IDLE),
}


ASSIGNOR: Final = "consumer.assignor"
"""Of a group: who assigns, whatever its members vote for. Not in Kafka."""
WEIGHTS: Final = "consumer.member.weights"
"""Of a group: ``name=weight,…`` by instance id or client id. Not in Kafka."""


def weights_of(text: str) -> dict[str, float]:
    """Raises ``ConfigError`` if it is not of the form ``name=weight,…``."""
    weights = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, number = part.rpartition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = -1.0
        if not name or not 0.0 <= weight < float("inf"):
            raise ConfigError(f"{WEIGHTS}: {part!r} is not of the form NAME=WEIGHT, as in a-1=0.5")
        weights[name] = weight
    return weights


class GroupSettingDefinition(NamedTuple):
    """A setting of the protocols of KIP-848, 932 and 1071."""

    default: str
    type: ConfigType = ConfigType.INT
    low: int = 1
    high: int = INT_MAX
    # The broker's setting behind it, if its name is not "group." and the same.
    broker_name: str | None = None


# Group configurations belong to the newer protocols. Those of consumer groups count
# (``groups.py``); the others are kept and shown.
GROUP_CONFIGS: Final[Mapping[str, GroupSettingDefinition]] = {
    "consumer.assignment.interval.ms": GroupSettingDefinition("1000", low=0, high=15_000),
    ASSIGNOR: GroupSettingDefinition("", ConfigType.STRING),
    WEIGHTS: GroupSettingDefinition("", ConfigType.STRING),
    "consumer.heartbeat.interval.ms": GroupSettingDefinition("5000", low=5_000, high=15_000),
    "consumer.session.timeout.ms": GroupSettingDefinition("45000", low=45_000, high=60_000),
    "share.assignment.interval.ms": GroupSettingDefinition("1000", low=0, high=15_000),
    "share.auto.offset.reset": GroupSettingDefinition(
        "latest", ConfigType.STRING, broker_name="share.auto.offset.reset"
    ),
    "share.delivery.count.limit": GroupSettingDefinition("5", low=2, high=10),
    "share.heartbeat.interval.ms": GroupSettingDefinition("5000", low=5_000, high=15_000),
    "share.isolation.level": GroupSettingDefinition(
        "read_uncommitted", ConfigType.STRING, broker_name="share.isolation.level"
    ),
    "share.partition.max.record.locks": GroupSettingDefinition("2000", low=100, high=4_000),
    "share.record.lock.duration.ms": GroupSettingDefinition("30000", low=15_000, high=60_000),
    "share.renew.acknowledge.enable": GroupSettingDefinition(
        "true", ConfigType.BOOLEAN, broker_name="share.renew.acknowledge.enable"
    ),
    "share.session.timeout.ms": GroupSettingDefinition("45000", low=45_000, high=60_000),
    "streams.assignment.interval.ms": GroupSettingDefinition("1000", low=0, high=15_000),
    "streams.heartbeat.interval.ms": GroupSettingDefinition("5000", low=5_000, high=15_000),
    "streams.initial.rebalance.delay.ms": GroupSettingDefinition("3000", low=0),
    "streams.num.standby.replicas": GroupSettingDefinition("0", low=0, high=2),
    "streams.session.timeout.ms": GroupSettingDefinition("45000", low=45_000, high=60_000),
}


def group_rows(broker: Broker, group_id: str) -> list[Shown]:
    own = broker.catalogue.group_configs.get(group_id, {})
    rows = []
    for name, known in GROUP_CONFIGS.items():
        if name in (ASSIGNOR, WEIGHTS) and name not in own:
            continue  # Apache Kafka has none of them
        behind = known.broker_name or f"group.{name}"
        default, source = known.default, ConfigSource.DEFAULT_CONFIG
        if behind in _SETTINGS:
            default = _text(_SETTINGS[behind][2](broker.config))
        if default != known.default:
            source = ConfigSource.STATIC_BROKER_CONFIG
        synonyms: tuple[Synonym, ...] = ((behind, default, source),)
        if name in own:
            synonyms = ((name, own[name], ConfigSource.GROUP_CONFIG), *synonyms)
        _, value, source = synonyms[0]
        about = "of a newer group protocol"
        rows.append(Shown(name, value, known.type, source, False, about, synonyms))
    return rows


def check_group_values(configs: Mapping[str, str], settings: GroupSettings) -> None:
    """Raises ``ConfigError`` if a group may not have these."""
    for name, value in configs.items():
        _check_group_value(name, value, settings)
    session_ms = int(configs.get(_SESSION, settings.consumer_session_timeout_ms))
    interval_ms = int(configs.get(_INTERVAL, settings.consumer_heartbeat_interval_ms))
    if session_ms <= interval_ms:
        raise ConfigError(f"{_SESSION} must be greater than {_INTERVAL}")


_SESSION: Final = "consumer.session.timeout.ms"
_INTERVAL: Final = "consumer.heartbeat.interval.ms"


def _bounds(name: str, known: GroupSettingDefinition, settings: GroupSettings) -> tuple[int, int]:
    """Those of consumer groups may be set."""
    if name == _SESSION:
        return settings.consumer_min_session_timeout_ms, settings.consumer_max_session_timeout_ms
    if name == _INTERVAL:
        return (
            settings.consumer_min_heartbeat_interval_ms,
            settings.consumer_max_heartbeat_interval_ms,
        )
    return known.low, known.high


def _check_group_value(name: str, value: str, settings: GroupSettings) -> None:
    known = GROUP_CONFIGS.get(name)
    if known is None:
        raise ConfigError(
            f"unknown group configuration {name!r}{did_you_mean(name, list(GROUP_CONFIGS))}"
        )
    if name == WEIGHTS:
        weights_of(value)
    if name == ASSIGNOR:
        names = [each.partition("=")[0] for each in settings.consumer_assignors]
        if value not in names:
            raise ConfigError(
                f"{name}: no assignor is called {value!r}; this broker has {', '.join(names)}"
            )
    if known.type is ConfigType.INT:
        try:
            number = int(value)
        except ValueError:
            raise ConfigError(f"invalid value {value!r} for configuration {name}") from None
        low, high = _bounds(name, known, settings)
        if not low <= number <= high:
            raise ConfigError(f"{name} must lie between {low} and {high}")


def broker_fault(name: str, value: str) -> str:
    """Why a setting of a running broker cannot have a value, or an empty string."""
    if name in CHANGEABLE:
        fault = problem(CHANGEABLE[name], value)
    elif name in BROKER_NAMES:
        fault = problem(TOPIC_CONFIGS[BROKER_NAMES[name]], value)
    elif name in _SETTINGS or name in _FIXED:
        return f"Cannot update these configs dynamically: [{name}]"
    else:
        # Kafka keeps what it does not know: a plug-in might.
        return ""
    return fault and f"Invalid value {value} for configuration {name}: {fault}"
