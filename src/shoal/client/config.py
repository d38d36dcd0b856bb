"""Every setting of every client, with its default and its unit, as frozen dataclasses.

Rule: Kafka's dotted names exist in ``from_properties`` and nowhere else, and there every setting of
the other clients has its row (``foreign_settings``). A name that nobody knows is refused with the
nearest one that is; a setting is never silently ignored.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from shoal.client.foreign_names import JAVA_CLASSES, JAVA_PARTITIONERS, our_setting
from shoal.client.foreign_settings import (
    TAKEN,
    VALUES,
    SettingOutcome,
    UnusableValueError,
    advice,
    dotted,
    number,
    reason_to_leave_out,
    shown_value,
    token_callback,
)
from shoal.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    import ssl

    from shoal.assign.loading import AssignorLike
    from shoal.client.partitioner import Partitioner

logger = logging.getLogger(__name__)

Deserializer = Callable[[bytes], Any]
Serializer = Callable[[Any], bytes]
TokenProvider = Callable[[], Any]
"""Returns a token, or a token and its expiry; an object with ``token()`` will do as well."""

_MIB = 1024 * 1024
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_LOOPBACK = re.compile(r"127(\.\d{1,3}){3}|::1|localhost", re.IGNORECASE)
_LEVELS = {"gzip": (-1, 9), "lz4": (-65_537, 17), "zstd": (-131_072, 22)}

# Where a token comes from: one of these.
_TOKEN_SOURCES = (
    "sasl_oauthbearer_token",
    "sasl_oauthbearer_token_file",
    "sasl_oauthbearer_token_endpoint_url",
)
_OF_ENDPOINT = (
    "sasl_oauthbearer_client_id",
    "sasl_oauthbearer_client_secret",
    "sasl_oauthbearer_scope",
    "sasl_oauthbearer_cafile",
)
# Numbers that requests carry, in 32 bits.
_SENT = (
    "request_timeout_ms",
    "session_timeout_ms",
    "max_poll_interval_ms",
    "fetch_min_bytes",
    "fetch_max_wait_ms",
    "fetch_max_bytes",
    "max_partition_fetch_bytes",
    "transaction_timeout_ms",
)
_SENT_MAX = 2**31 - 1

C = TypeVar("C", bound="ConnectionConfig")


@dataclass(frozen=True, kw_only=True)
class ConnectionConfig:
    """How to reach a cluster: the settings all clients share."""

    bootstrap_servers: str | Sequence[str] = "localhost:9092"
    """Addresses to start from, ``"host:port,host:port"`` or a list; the rest is discovered."""
    client_id: str = "shoal"
    """A name for the broker's logs and quotas."""
    security_protocol: str = "PLAINTEXT"
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    ssl_cafile: str | None = None
    """PEM file with the authorities to trust; ``None``: the system's."""
    ssl_certfile: str | None = None
    """PEM file with our own certificate, where the broker asks for one (mTLS)."""
    ssl_keyfile: str | None = None
    """PEM file with the key of ``ssl_certfile``, if it is not in the same file."""
    ssl_key_password: str | None = None
    """Opens ``ssl_keyfile``."""
    ssl_check_hostname: bool = True
    """Whether the broker's certificate must name the host we connected to."""
    ssl_context: ssl.SSLContext | None = None
    """A context made by you, instead of the five settings above."""
    sasl_mechanism: str = "PLAIN"
    """PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER; used with a SASL_ protocol."""
    sasl_username: str | None = None
    """SASL user name."""
    sasl_password: str | None = None
    """The secret; never logged, never part of a repr."""
    sasl_plain_without_tls: bool = False
    """Whether PLAIN and OAUTHBEARER may send the secret readably to another machine."""
    sasl_oauthbearer_token: TokenProvider | None = None
    """Called for a token: returns it, or it and its expiry in seconds since 1970; may be async.
    Providers of kafka-python and aiokafka (``token()``, ``extensions()``) work as they are."""
    sasl_oauthbearer_token_file: str | None = None
    """A file with the token, read at each login."""
    sasl_oauthbearer_token_endpoint_url: str | None = None
    """Where tokens are granted for the next two (client credentials); https, or this machine."""
    sasl_oauthbearer_client_id: str | None = None
    """Who we are at the endpoint."""
    sasl_oauthbearer_client_secret: str | None = None
    """The secret for the endpoint; never logged, never part of a repr."""
    sasl_oauthbearer_scope: str | None = None
    """What to ask the endpoint for."""
    sasl_oauthbearer_cafile: str | None = None
    """PEM file with the authorities to trust for the endpoint; ``None``: the system's."""
    sasl_oauthbearer_extensions: str | None = None
    """What else to tell the broker beside the token, ``name=value,name=value`` (KIP-342)."""
    request_timeout_ms: int = 30_000
    """How long one request may stay without an answer before its connection is given up."""
    default_api_timeout_ms: int = 60_000
    """How long a blocking call without a timeout of its own may take."""
    retry_backoff_ms: int = 100
    """Pause before the first retry of a failed request; doubles up to the next setting."""
    retry_backoff_max_ms: int = 1_000
    """Longest pause between retries."""
    reconnect_backoff_ms: int = 50
    """Pause before the first reconnect to a broker; doubles up to the next setting."""
    reconnect_backoff_max_ms: int = 1_000
    """Longest pause between connection attempts to one broker."""
    socket_connection_setup_timeout_ms: int = 10_000
    """How long a connection may take to open, TLS and SASL included."""
    connections_max_idle_ms: int = 540_000
    """A connection unused for so long is closed."""
    metadata_max_age_ms: int = 300_000
    """Metadata is refreshed at least so often, to see new topics and partitions."""
    receive_message_max_bytes: int = 512 * _MIB
    """A larger answer is refused as not being Kafka's."""

    def __post_init__(self) -> None:
        for field in fields(self):
            _check_type(field.name, getattr(self, field.name), str(field.type))
        one_of("security_protocol", self.security_protocol, _PROTOCOLS)
        one_of("sasl_mechanism", self.sasl_mechanism, _MECHANISMS)
        for name in ("request_timeout_ms", "default_api_timeout_ms", "receive_message_max_bytes"):
            at_least(self, name, 1)
        for name in _SENT:
            if getattr(self, name, 0) > _SENT_MAX:
                raise ConfigError(f"{name}={getattr(self, name)} must be at most {_SENT_MAX}")
        self.addresses()
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise ConfigError("ssl_keyfile needs ssl_certfile, the certificate it belongs to")
        if self.uses_tokens:
            self._check_tokens()
        elif self.uses_sasl and (self.sasl_username is None or self.sasl_password is None):
            raise ConfigError(
                f"security_protocol={self.security_protocol!r} needs sasl_username and "
                "sasl_password"
            )
        if self.sasl_mechanism != "OAUTHBEARER":
            for name in (*_TOKEN_SOURCES, *_OF_ENDPOINT):
                if getattr(self, name) is not None:
                    raise ConfigError(f'{name} needs sasl_mechanism="OAUTHBEARER"')
        for host, _ in self.addresses():
            self.check_readable_secret(host)

    def _check_tokens(self) -> None:
        given = [name for name in _TOKEN_SOURCES if getattr(self, name) is not None]
        if len(given) != 1:
            raise ConfigError(
                f"OAUTHBEARER needs one of {', '.join(_TOKEN_SOURCES)}, "
                + (f"not {' and '.join(given)}" if given else "and none is given")
            )
        url = self.sasl_oauthbearer_token_endpoint_url
        if url is None:
            for name in _OF_ENDPOINT:
                if getattr(self, name) is not None:
                    raise ConfigError(f"{name} needs sasl_oauthbearer_token_endpoint_url")
        else:
            found = re.match(r"(https?)://(?:\[([^\]]*)\]|([^/:?#@]+))(?=[:/?#]|$)", url)
            if found is None or "@" in url:
                raise ConfigError(
                    f"sasl_oauthbearer_token_endpoint_url {url.rpartition('@')[2]!r} is not "
                    "https://host/path"
                )
            if found[1] == "http" and not _LOOPBACK.fullmatch(found[2] or found[3]):
                raise ConfigError(
                    f"sasl_oauthbearer_token_endpoint_url {url} would send the secret readably: "
                    "use https"
                )
            if self.sasl_oauthbearer_client_id is None or (
                self.sasl_oauthbearer_client_secret is None
            ):
                raise ConfigError(
                    "sasl_oauthbearer_token_endpoint_url needs sasl_oauthbearer_client_id and "
                    "sasl_oauthbearer_client_secret"
                )
        token_extensions(self.sasl_oauthbearer_extensions)

    def check_readable_secret(self, host: str) -> None:
        """Raises ConfigError if password or token would go to this host for everybody to read."""
        secret = {"PLAIN": "password", "OAUTHBEARER": "token"}.get(self.sasl_mechanism)
        is_readable = self.security_protocol == "SASL_PLAINTEXT" and secret is not None
        if is_readable and not self.sasl_plain_without_tls and not _LOOPBACK.fullmatch(host):
            raise ConfigError(
                f"SASL {self.sasl_mechanism} would send the {secret} readably to {host}: use "
                "SASL_SSL or a SCRAM mechanism, or say sasl_plain_without_tls=True"
            )

    def __repr__(self) -> str:
        shown = (
            f"{field.name}={'***' if is_secret(field.name) else getattr(self, field.name)!r}"
            for field in fields(self)
            if getattr(self, field.name) != field.default
        )
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL_")

    @property
    def uses_tokens(self) -> bool:
        return self.uses_sasl and self.sasl_mechanism == "OAUTHBEARER"

    def addresses(self) -> list[tuple[str, int]]:
        """``bootstrap_servers`` taken apart.

        Raises:
            ConfigError: an entry is not ``host:port``.
        """
        given = self.bootstrap_servers
        entries = given.split(",") if isinstance(given, str) else list(given)
        parsed = [_address(entry.strip()) for entry in entries if entry.strip()]
        if not parsed:
            raise ConfigError("bootstrap_servers is empty; give at least one host:port")
        return parsed

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """A config from keyword arguments; an unknown one is refused with a suggestion."""
        known = [field.name for field in fields(cls)]
        for name in settings:
            if name not in known:
                raise ConfigError(_unknown(name, known, cls.__name__))
        config = cls(**settings)
        config._check_given(settings)
        return config

    def _check_given(self, names: Collection[str]) -> None:
        """Whether settings that were given, even if with their defaults, go together."""

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Self:
        """A config from the settings of any Kafka client: Java's properties, confluent-kafka's
        dict, the keywords of kafka-python and aiokafka; values may be strings, as in a file.

        What has no effect here is left out with a warning in the log, what cannot be had is
        refused; ``explain_properties`` tells of each.
        """
        explained = cls.explain_properties(properties)
        for one in explained.outcomes:
            if one.outcome == "refused":
                raise ConfigError(f"{one.why}")
        if explained.config is None:
            raise ConfigError(explained.problem)
        if left_out := [one.name for one in explained.outcomes if one.outcome == "left out"]:
            logger.warning(
                "settings without effect in %s: %s", cls.__name__, ", ".join(sorted(left_out))
            )
        return explained.config

    @classmethod
    def explain_properties(cls, properties: Mapping[str, Any]) -> ExplainedProperties[Self]:
        """What ``from_properties`` makes of each setting, without raising for any of them."""
        if not isinstance(properties, Mapping):
            raise TypeError(f"properties must be a dict, not {type(properties).__name__}")
        types = {field.name: str(field.type) for field in fields(cls)}
        reading = _Reading(cls.__name__, types, properties)
        for name, value in properties.items():
            reading.read(name, value)
        config, problem = None, ""
        if not any(one.outcome == "refused" for one in reading.outcomes):
            try:
                config = cls.from_settings(reading.settings)
            except ConfigError as error:
                problem = str(error)
        return ExplainedProperties(tuple(reading.outcomes), config, problem)


@dataclass(frozen=True)
class ExplainedProperties(Generic[C]):
    """What became of each setting, in the order given."""

    outcomes: tuple[SettingOutcome, ...]
    config: C | None
    """``None`` if a setting is refused or they do not go together."""
    problem: str
    """Why there is no config although no setting is refused by itself; else empty."""


@dataclass(frozen=True, kw_only=True, repr=False)
class ConsumerConfig(ConnectionConfig):
    """Settings of ``Consumer`` and ``AsyncConsumer``."""

    group_id: str | None = None
    """The group to join with ``subscribe`` and to commit for; ``None``: neither is possible."""
    group_protocol: str = "classic"
    """classic; consumer (KIP-848, the broker assigns); or auto: consumer where it is offered."""
    group_remote_assignor: str | None = None
    """Which of the broker's assignors to ask for in a consumer group; ``None``: its default."""
    group_instance_id: str | None = None
    """Makes this a static member: a restart within the session timeout moves no partition."""
    client_rack: str | None = None
    """Where this client runs; brokers may then point it to a replica nearby."""
    assignors: Sequence[AssignorLike] = ("range", "cooperative-sticky")
    """Names or objects, most wanted first; the group takes one that every member has."""
    enable_auto_commit: bool = True
    """Whether ``poll`` and ``close`` commit what earlier polls returned."""
    auto_commit_interval_ms: int = 5_000
    """The least time between two automatic commits."""
    auto_offset_reset: str = "latest"
    """Where to start without a committed offset: earliest, latest, or none (an error)."""
    session_timeout_ms: int = 45_000
    """After so long without a heartbeat the group gives our partitions to others."""
    heartbeat_interval_ms: int = 3_000
    """Time between heartbeats; less than a third of the session timeout is wise."""
    max_poll_interval_ms: int = 300_000
    """Longest time between polls before this member leaves; also the rebalance timeout."""
    max_poll_records: int = 500
    """The most records one ``poll`` returns."""
    max_poll_arrow_records: int = 1_000_000
    """The most rows one ``poll_arrow`` returns."""
    fetch_min_bytes: int = 1
    """The broker waits until it has so much for us, or ``fetch_max_wait_ms`` passed."""
    fetch_max_wait_ms: int = 500
    """How long a broker may hold a fetch without enough data."""
    fetch_max_bytes: int = 50 * _MIB
    """The most one answer may hold; a single larger batch still comes."""
    max_partition_fetch_bytes: int = 1 * _MIB
    """The most one answer may hold per partition; a single larger batch still comes."""
    fetch_buffer_bytes: int = 64 * _MIB
    """Fetching ahead stops when so much is waiting for ``poll``; what is paused does not count."""
    check_crcs: bool = True
    """Whether each batch's checksum is verified."""
    isolation_level: str = "read_uncommitted"
    """read_uncommitted, or read_committed: no records of open and aborted transactions."""
    exclude_internal_topics: bool = True
    """Whether a pattern leaves out topics such as ``__consumer_offsets``."""
    allow_auto_create_topics: bool = True
    """Whether asking for a topic may create it, where the broker allows that."""
    key_deserializer: Deserializer | None = None
    """Called with a key's bytes (never with ``None``); ``None``: keys stay bytes."""
    value_deserializer: Deserializer | None = None
    """Called with a value's bytes (never with ``None``); ``None``: values stay bytes."""
    interceptors: Sequence[Any] = ()
    """Objects with any of ``on_consume(records)``, ``on_commit(offsets)``, ``close()``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("auto_offset_reset", self.auto_offset_reset, ("earliest", "latest", "none"))
        one_of("isolation_level", self.isolation_level, ("read_uncommitted", "read_committed"))
        for name in ("max_poll_records", "max_poll_arrow_records", "fetch_max_bytes"):
            at_least(self, name, 1)
        for name in ("max_partition_fetch_bytes", "fetch_buffer_bytes", "max_poll_interval_ms"):
            at_least(self, name, 1)
        at_least(self, "heartbeat_interval_ms", 1)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms} must be less than "
                f"session_timeout_ms={self.session_timeout_ms}"
            )
        if self.group_id == "":
            raise ConfigError("group_id is empty; name a group, or leave it out")
        one_of("group_protocol", self.group_protocol, ("classic", "consumer", "auto"))
        self._check_protocol(
            field.name for field in fields(self) if getattr(self, field.name) != field.default
        )
        if self.group_instance_id is not None and self.group_id is None:
            raise ConfigError("group_instance_id needs a group_id")
        for one in self.interceptors:
            if isinstance(one, type):
                raise ConfigError(
                    f"interceptors has the class {one.__name__}; give an object, {one.__name__}()"
                )
            if not any(hasattr(one, call) for call in ("on_consume", "on_commit", "close")):
                raise ConfigError(
                    f"interceptors has {one!r}, which is not an object with on_consume(records), "
                    "on_commit(offsets) or close()"
                )
        if not self.assignors:
            raise ConfigError('assignors is empty; the default is ("range", "cooperative-sticky")')

    def _check_given(self, names: Collection[str]) -> None:
        self._check_protocol(names)

    def _check_protocol(self, names: Iterable[str]) -> None:
        """What a group's protocol leaves to the broker, or does not know, cannot be set."""
        is_classic = self.group_protocol == "classic"
        refused = {"group_remote_assignor": "brokers assign in consumer groups only"}
        if not is_classic:
            refused = _OF_CLASSIC_GROUPS
        for name in names:
            if name in refused:
                advice = 'use group_protocol="consumer"' if is_classic else "leave it out"
                raise ConfigError(
                    f"{name} is not for group_protocol={self.group_protocol!r}: {refused[name]}; "
                    f"{advice}"
                )


_OF_CLASSIC_GROUPS = {
    "assignors": "the broker assigns, see group_remote_assignor",
    "session_timeout_ms": "the group has one, consumer.session.timeout.ms at the broker",
    "heartbeat_interval_ms": "the group has one, consumer.heartbeat.interval.ms at the broker",
}


@dataclass(frozen=True, kw_only=True, repr=False)
class ProducerConfig(ConnectionConfig):
    """Settings of ``Producer``."""

    acks: int | str = "all"
    """Who must have a record before it counts as sent: 0 nobody, 1 the leader, "all"."""
    enable_idempotence: bool | None = None
    """No duplicates from retries; ``None``: yes if ``acks`` is "all"."""
    compression_type: str = "none"
    """none, gzip, snappy, lz4 or zstd."""
    compression_level: int | None = None
    """The codec's own scale; ``None``: its default."""
    batch_size: int = 256 * 1024
    """A batch is sent when it holds so many bytes."""
    linger_ms: int = 5
    """How long a batch waits for company before it is sent all the same."""
    buffer_memory: int = 32 * _MIB
    """``send`` blocks while so much is unsent."""
    max_block_ms: int = 60_000
    """How long ``send`` may block, for memory or for metadata, and each call of a transaction."""
    max_request_size: int = 1 * _MIB
    """The largest batch, and the most bytes sent in one request; see ``max.message.bytes``."""
    max_in_flight_requests_per_connection: int = 5
    """Requests under way to one broker; order is kept all the same."""
    delivery_timeout_ms: int = 120_000
    """From ``send`` to success or failure at most so long, retries included."""
    retries: int = 2_147_483_647
    """How often a batch is tried again, within ``delivery_timeout_ms``."""
    transactional_id: str | None = None
    """Makes transactions possible: the name that outlives this process, one per producer."""
    transaction_timeout_ms: int = 60_000
    """The coordinator aborts a transaction that lasts longer; its own limit may be lower."""
    partitioner: str | Partitioner = "sticky"
    """sticky, round-robin, or a callable ``(topic, key_bytes, partition_count) -> int``."""
    key_serializer: Serializer | None = None
    """Called with a key that is not ``None``; ``None``: keys are bytes or str."""
    value_serializer: Serializer | None = None
    """Called with a value that is not ``None``; ``None``: values are bytes or str."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if str(self.acks) not in ("0", "1", "-1", "all"):
            raise ConfigError(f'acks={self.acks!r} is not 0, 1 or "all"')
        one_of("compression_type", self.compression_type, ("none", "gzip", "snappy", "lz4", "zstd"))
        level, levels = self.compression_level, _LEVELS.get(self.compression_type)
        if level is not None and levels is not None and not levels[0] <= level <= levels[1]:
            raise ConfigError(
                f"compression_level={level} is not between {levels[0]} and {levels[1]}, the levels "
                f"of {self.compression_type}"
            )
        if not callable(self.partitioner):
            one_of("partitioner", self.partitioner, ("sticky", "round-robin"))
        for name in ("batch_size", "buffer_memory", "max_request_size", "delivery_timeout_ms"):
            at_least(self, name, 1)
        at_least(self, "max_in_flight_requests_per_connection", 1)
        if self.delivery_timeout_ms <= self.linger_ms:
            raise ConfigError(
                f"delivery_timeout_ms={self.delivery_timeout_ms} must be more than linger_ms="
                f"{self.linger_ms}, or records would be given up before they are sent"
            )
        if self.transactional_id is not None:
            self._check_transactional()
        if self.enable_idempotence and self.required_acks != -1:
            raise ConfigError('enable_idempotence needs acks="all"')
        if self.enable_idempotence and self.max_in_flight_requests_per_connection > 5:
            raise ConfigError(
                "enable_idempotence needs max_in_flight_requests_per_connection <= 5: "
                "a broker remembers the last five batches of a producer"
            )

    def _check_transactional(self) -> None:
        at_least(self, "transaction_timeout_ms", 1)
        if self.transactional_id == "":
            raise ConfigError("transactional_id is empty; name one, or leave it out")
        if self.required_acks != -1:
            raise ConfigError('transactional_id needs acks="all"')
        if self.enable_idempotence is False:
            raise ConfigError("transactional_id needs enable_idempotence; leave that out")
        if self.max_in_flight_requests_per_connection > 5:
            raise ConfigError("transactional_id needs max_in_flight_requests_per_connection <= 5")

    @property
    def required_acks(self) -> int:
        return -1 if str(self.acks) in ("all", "-1") else int(self.acks)

    @property
    def is_idempotent(self) -> bool:
        if self.enable_idempotence is None:
            return self.required_acks == -1 and self.max_in_flight_requests_per_connection <= 5
        return self.enable_idempotence


@dataclass(frozen=True, kw_only=True, repr=False)
class AdminConfig(ConnectionConfig):
    """Settings of ``Admin``: only how to reach the cluster."""


def one_of(name: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name}={value!r} is not one of {', '.join(allowed)}")


def is_secret(name: str) -> bool:
    """Whether the value of a setting is for nobody's eyes."""
    return "password" in name or "secret" in name or name == "sasl_oauthbearer_token"


def token_extensions(text: str | None) -> dict[str, str]:
    """``name=value,name=value`` taken apart. Raises ConfigError if it is not that."""
    found: dict[str, str] = {}
    for part in (text or "").split(","):
        name, equals, value = part.strip().partition("=")
        if not part.strip():
            continue
        if not equals or not (name.isascii() and name.isalpha()) or name == "auth":
            raise ConfigError(
                f"sasl_oauthbearer_extensions has {part.strip()!r}; write name=value, the name in "
                "letters"
            )
        found[name] = value
    return found


def at_least(config: Any, name: str, least: int) -> None:
    value = getattr(config, name)
    if value < least:
        raise ConfigError(f"{name}={value!r} must be a whole number of at least {least}")


def config_of(owner: str, kind: type[C], config: object, settings: Mapping[str, Any]) -> C:
    """The config a client was constructed with: one made before, or keyword arguments."""
    if config is None:
        return kind.from_settings(settings)
    if settings:
        raise TypeError(f"give {owner} a {kind.__name__} or settings, not both")
    if isinstance(config, kind):
        return config
    advice = "settings go by keyword"
    if isinstance(config, Mapping):
        advice = f"{owner}.from_properties takes Kafka's names, {owner}(**settings) ours"
    elif isinstance(config, str):
        advice += f", {owner}(bootstrap_servers={config!r})" if ":" in config else ", topics later"
    raise TypeError(f"{owner} takes a {kind.__name__}, not {type(config).__name__}: {advice}")


class _Reading:
    """Settings of any client on their way to ours, one at a time."""

    def __init__(self, owner: str, types: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        self._owner = owner
        self._types = types
        self._own = {dotted(name): name for name in types}
        self._names = self._own | {n: s.ours for n, s in TAKEN.items() if s.ours in types}
        texts = [name for name in properties if isinstance(name, str)]
        self._said = {self._own[dotted(name)]: name for name in texts if dotted(name) in self._own}
        self._token_settings = next(
            (str(properties[n]) for n in texts if dotted(n) == "sasl.oauthbearer.config"), ""
        )
        self.settings: dict[str, Any] = {}
        self.outcomes: list[SettingOutcome] = []

    def read(self, name: Any, value: Any) -> None:
        try:
            self.outcomes.append(self._outcome(name, value))
        except ConfigError as error:
            shown = shown_value(str(name), value)
            self.outcomes.append(SettingOutcome(str(name), "refused", None, shown, str(error)))

    def _outcome(self, name: Any, value: Any) -> SettingOutcome:
        if not isinstance(name, str):
            raise ConfigError(f"the name of a setting must be a string, not {name!r}")
        key = dotted(name)
        if key == "sasl.jaas.config":
            found = _from_jaas(value)
            self.settings |= found
            return SettingOutcome(name, "taken", ", ".join(found), "***", "")
        if key in self._names:
            return self._taken(name, key, value)
        if (why := reason_to_leave_out(key, value)) is not None:
            return self._left_out(name, value, why)
        if (instead := advice(key)) is not None:
            raise ConfigError(f"{name}={shown_value(name, value)} is not supported: {instead}")
        if (owners := _owners(key)) is not None:
            return self._left_out(name, value, f"a setting of {owners}")
        raise ConfigError(_unknown(name, list(self._names), self._owner))

    def _taken(self, name: str, key: str, value: Any) -> SettingOutcome:
        ours = self._names[key]
        if key not in self._own and ours in self._said:
            return self._left_out(name, value, f"{self._said[ours]} says it")
        annotation = self._types[ours]
        convert = (TAKEN[key].convert if key in TAKEN else None) or VALUES.get(ours)
        try:
            given = convert(value) if convert is not None else number(value)
        except UnusableValueError as error:
            shown = shown_value(name, value)
            raise ConfigError(f"{name}={shown} is not supported: {error}") from None
        if given is None and not annotation.endswith("| None"):
            return self._left_out(name, value, "None: the default here")
        if key == "oauth.cb":
            given = token_callback(given, self._token_settings)
        made = _converted(name, given, annotation)
        _check_type(ours, made, annotation)
        self.settings[ours] = made
        return SettingOutcome(name, "taken", ours, shown_value(ours, made), "")

    def _left_out(self, name: str, value: Any, why: str) -> SettingOutcome:
        return SettingOutcome(name, "left out", None, shown_value(name, value), why)


def _owners(key: str) -> str | None:
    """Whose setting it is, if only other clients of ours have it."""
    for kind, owners in ((ConsumerConfig, "consumers"), (ProducerConfig, "producers")):
        own = {dotted(field.name): field.name for field in fields(kind)}
        ours = own.get(key) or (TAKEN[key].ours if key in TAKEN else None)
        if ours in own.values():
            return owners
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_list(value: Any) -> bool:
    # A string is a sequence too, of letters, which nobody means.
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


# What the annotations of the fields above mean at run time; "| None" is taken off before.
_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "str": ("a string", lambda value: isinstance(value, str)),
    "bool": ("True or False", lambda value: isinstance(value, bool)),
    "int": ("a whole number", _is_number),
    "int | str": ("a whole number or a string", lambda v: _is_number(v) or isinstance(v, str)),
    "str | Sequence[str]": (
        "a string or a list of strings",
        lambda v: isinstance(v, str) or (_is_list(v) and all(isinstance(one, str) for one in v)),
    ),
    "Sequence[AssignorLike]": ("a list of names and assignors", _is_list),
    "Sequence[Any]": ("a list", _is_list),
    "TokenProvider": (
        "callable or an object with token()",
        lambda value: callable(value) or callable(getattr(value, "token", None)),
    ),
    "Deserializer": ("callable", callable),
    "Serializer": ("callable", callable),
    "str | Partitioner": ("a name or callable", lambda v: isinstance(v, str) or callable(v)),
    "ssl.SSLContext": ("an ssl.SSLContext", lambda value: hasattr(value, "wrap_bio")),
}


def _check_type(name: str, value: Any, annotation: str) -> None:
    kind = annotation.removesuffix(" | None")
    if value is None and kind != annotation:
        return
    wanted, fits = _TYPES[kind]
    if not fits(value):
        shown = "***" if is_secret(name) else repr(value)
        # A properties file of a Java program names Java's classes.
        is_class = "serializer" in name and isinstance(value, str)
        hint = "; take one of shoal.client.serializers, or your own" if is_class else ""
        raise ConfigError(f"{name}={shown} must be {wanted}, not {type(value).__name__}{hint}")
    if annotation == "int" and isinstance(value, int) and value < 0:
        raise ConfigError(f"{name}={value!r} must be a whole number of at least 0")


def _address(entry: str) -> tuple[str, int]:
    # Some write the protocol before it, as brokers' listeners do; Java leaves it out as well.
    host, colon, port = re.sub(r"^\w*://", "", entry).rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    wrong = not colon or not host or re.search(r"[\s/]", host) or not port.isdecimal()
    if wrong or not 0 < int(port) < 65536:
        raise ConfigError(f"bootstrap_servers has {entry!r}, which is not host:port")
    return host, int(port)


def _unknown(name: str, known: list[str], owner: str) -> str:
    if (ours := our_setting(name, known)) is not None:
        return f"unknown setting {name!r}; here it is {ours}"
    advice = did_you_mean(name, known, f"; {owner} lists the settings there are")
    return f"unknown setting {name!r}{advice}"


def _converted(name: str, value: Any, annotation: str) -> Any:
    """A string from a properties file in the type the field has; other values as they are."""
    if annotation == "Sequence[Any]" and isinstance(value, str | list | tuple):
        # Java names classes here; what is an object already stays it.
        given = value.split(",") if isinstance(value, str) else value
        return tuple(_found(name, one) for one in given if one != "")
    if not isinstance(value, str):
        return value
    text = value.strip()
    if "erializer" in annotation or "Partitioner" in annotation or "Provider" in annotation:
        return _found(name, text)
    if annotation.startswith("bool"):
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{name}={value!r}: set true or false")
        return text.lower() == "true"
    if annotation in ("int", "int | None"):
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"{name}={value!r} is not a whole number") from None
    if annotation.startswith("Sequence"):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return value if is_secret(name) else text  # a space may belong to a secret


def _found(name: str, value: Any) -> Any:
    """What a path in a properties file leads to; of a class an object, as Java makes one."""
    if not isinstance(value, str):
        return value
    path = value.strip()
    if path in JAVA_PARTITIONERS:
        return JAVA_PARTITIONERS[path]
    if path in JAVA_CLASSES:
        path = f"shoal.client.serializers:{JAVA_CLASSES[path]}"
    elif not re.search(r"[.:]", path):
        return path  # a plain name, for whoever knows it to judge
    from shoal.assign.loading import object_at

    try:
        found = object_at(path)
        return found() if isinstance(found, type) else found
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{name}: {error}") from None


# Java takes both kinds of quotes, and what is to be pasted from some clouds has single ones.
_JAAS_NAMES = r"\b(username|password|clientId|clientSecret|scope|extension_\w+)"
_JAAS = _JAAS_NAMES + r"""\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')"""


def _from_jaas(text: Any) -> dict[str, str]:
    """User and password of a Java ``sasl.jaas.config`` line."""
    parts = re.findall(_JAAS, text) if isinstance(text, str) else []
    found = {name: re.sub(r"\\(.)", r"\1", double or single) for name, double, single in parts}
    if isinstance(text, str) and "OAuthBearerLoginModule" in text:
        settings = {ours: found[name] for name, ours in _JAAS_OF_TOKENS.items() if name in found}
        extensions = [
            f"{name.removeprefix('extension_')}={value}"
            for name, value in found.items()
            if name.startswith("extension_")
        ]
        if extensions:
            settings["sasl_oauthbearer_extensions"] = ",".join(extensions)
        return settings
    if found.keys() != {"username", "password"}:
        raise ConfigError('sasl.jaas.config must hold username="..." and password="..."')
    return {f"sasl_{name}": value for name, value in found.items()}


_JAAS_OF_TOKENS = {
    "clientId": "sasl_oauthbearer_client_id",
    "clientSecret": "sasl_oauthbearer_client_secret",
    "scope": "sasl_oauthbearer_scope",
}
