"""Every setting of every client, with its default and its unit, as frozen dataclasses.

Rule: Kafka's dotted names exist in ``from_properties`` and nowhere else. A name that is not a
field here is refused with the nearest one that is; a setting is never silently ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self, TypeVar

from shoal.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    import ssl

    from shoal.assign.loading import AssignorLike
    from shoal.client.partitioner import Partitioner

Deserializer = Callable[[bytes], Any]
Serializer = Callable[[Any], bytes]

_MIB = 1024 * 1024
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_LEVELS = {"gzip": (-1, 9), "lz4": (-65_537, 17), "zstd": (-131_072, 22)}

# Numbers that requests carry, in 32 bits.
_SENT = (
    "request_timeout_ms",
    "session_timeout_ms",
    "max_poll_interval_ms",
    "fetch_min_bytes",
    "fetch_max_wait_ms",
    "fetch_max_bytes",
    "max_partition_fetch_bytes",
)
_SENT_MAX = 2**31 - 1

# Kafka's name on the left where it is not our field with dots for underscores.
_OTHER_NAMES = {
    "partition.assignment.strategy": "assignors",
    "interceptor.classes": "interceptors",
    "partitioner.class": "partitioner",
    "ssl.ca.location": "ssl_cafile",
    "ssl.truststore.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "sasl.mechanisms": "sasl_mechanism",
    "metadata.broker.list": "bootstrap_servers",
}


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
    """PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; used with a SASL_ protocol."""
    sasl_username: str | None = None
    """Who we are."""
    sasl_password: str | None = None
    """The secret; never logged, never part of a repr."""
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
        if self.uses_sasl and (self.sasl_username is None or self.sasl_password is None):
            raise ConfigError(
                f"security_protocol={self.security_protocol!r} needs sasl_username and "
                "sasl_password"
            )

    def __repr__(self) -> str:
        shown = (
            f"{field.name}={'***' if 'password' in field.name else getattr(self, field.name)!r}"
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
        return cls(**settings)

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Self:
        """A config from Kafka's dotted names; values may be strings, as in a properties file."""
        if not isinstance(properties, Mapping):
            raise TypeError(f"properties must be a dict, not {type(properties).__name__}")
        types = {field.name: str(field.type) for field in fields(cls)}
        dotted = {name.replace("_", "."): name for name in types}
        dotted |= {name: ours for name, ours in _OTHER_NAMES.items() if ours in types}
        settings: dict[str, Any] = {}
        for name, value in properties.items():
            if not isinstance(name, str):
                raise ConfigError(f"the name of a setting must be a string, not {name!r}")
            if name == "sasl.jaas.config":
                settings |= _from_jaas(value)
            elif name in dotted:
                settings[dotted[name]] = _converted(name, value, types[dotted[name]])
            else:
                raise ConfigError(_unknown(name, list(dotted), cls.__name__))
        return cls(**settings)


@dataclass(frozen=True, kw_only=True, repr=False)
class ConsumerConfig(ConnectionConfig):
    """Settings of ``Consumer`` and ``AsyncConsumer``."""

    group_id: str | None = None
    """The group to join with ``subscribe`` and to commit for; ``None``: neither is possible."""
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
    """Only read_uncommitted for now."""
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
        one_of("isolation_level", self.isolation_level, ("read_uncommitted",))
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
        if self.group_instance_id is not None and self.group_id is None:
            raise ConfigError("group_instance_id needs a group_id")
        for one in self.interceptors:
            if not any(hasattr(one, call) for call in ("on_consume", "on_commit", "close")):
                raise ConfigError(
                    f"interceptors has {one!r}, which is no object with on_consume(records), "
                    "on_commit(offsets) or close()"
                )
        if not self.assignors:
            raise ConfigError('assignors is empty; the default is ("range", "cooperative-sticky")')


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
    """How long ``send`` may block, for memory or for metadata."""
    max_request_size: int = 1 * _MIB
    """The largest batch, and the most bytes sent in one request; see ``max.message.bytes``."""
    max_in_flight_requests_per_connection: int = 5
    """Requests under way to one broker; order is kept all the same."""
    delivery_timeout_ms: int = 120_000
    """From ``send`` to success or failure at most so long, retries included."""
    retries: int = 2_147_483_647
    """How often a batch is tried again, within ``delivery_timeout_ms``."""
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
        if self.enable_idempotence and self.required_acks != -1:
            raise ConfigError('enable_idempotence needs acks="all"')
        if self.enable_idempotence and self.max_in_flight_requests_per_connection > 5:
            raise ConfigError(
                "enable_idempotence needs max_in_flight_requests_per_connection <= 5: "
                "a broker remembers the last five batches of a producer"
            )

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
        shown = "***" if "password" in name else repr(value)
        # A properties file of a Java program names Java's classes.
        is_class = "serializer" in name and isinstance(value, str)
        hint = "; take one of shoal.client.serializers, or your own" if is_class else ""
        raise ConfigError(f"{name}={shown} must be {wanted}, not {type(value).__name__}{hint}")
    if annotation == "int" and value < 0:
        raise ConfigError(f"{name}={value!r} must be a whole number of at least 0")


def _address(entry: str) -> tuple[str, int]:
    # Some write the protocol before it, as brokers' listeners do; Java leaves it out as well.
    host, colon, port = re.sub(r"^\w*://", "", entry).rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    wrong = not colon or not host or re.search(r"[\s/]", host) or not port.isdecimal()
    if wrong or not 0 < int(port) < 65536:
        raise ConfigError(f"bootstrap_servers has {entry!r}, which is not host:port")
    return host, int(port)


# Of Kafka's, so nobody has mistyped them.
_NOT_YET = {
    "group.protocol": "groups are classic ones; leave it out",
    "transactional.id": "there are no transactions yet",
}


def _unknown(name: str, known: list[str], owner: str) -> str:
    if (why := _NOT_YET.get(name.replace("_", "."))) is not None:
        return f"setting {name!r} is not there: {why}"
    advice = did_you_mean(name, known, f"; {owner} lists the settings there are")
    return f"unknown setting {name!r}{advice}"


def _converted(name: str, value: Any, annotation: str) -> Any:
    """A string from a properties file in the type the field has; other values as they are."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if annotation.startswith("bool"):
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{name}={value!r} is not true or false")
        return text.lower() == "true"
    if annotation in ("int", "int | None"):
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"{name}={value!r} is not a whole number") from None
    if annotation.startswith("Sequence"):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return value if "password" in name else text  # a space may belong to a secret


# Java takes both kinds of quotes, and what is to be pasted from some clouds has single ones.
_JAAS = r"""\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')"""


def _from_jaas(text: Any) -> dict[str, str]:
    """User and password of a Java ``sasl.jaas.config`` line."""
    parts = re.findall(_JAAS, text) if isinstance(text, str) else []
    found = {name: double or single for name, double, single in parts}
    if found.keys() != {"username", "password"}:
        raise ConfigError('sasl.jaas.config must hold username="..." and password="..."')
    return {f"sasl_{name}": re.sub(r"\\(.)", r"\1", value) for name, value in found.items()}
