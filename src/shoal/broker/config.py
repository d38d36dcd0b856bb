"""What a broker is told: a TOML file, then flags, into one frozen value.

Rule: an unknown key is an error that suggests the nearest known one; nothing is guessed and
nothing is ignored. Durations and sizes carry their unit in their name.

The values are named tuples: a start makes these classes, and data classes take five times as long.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from shoal.errors import ConfigError, did_you_mean

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
DURABILITIES: Final = ("group", "each", "interval", "os")
_LOOPBACK: Final = re.compile(r"^(127(\.\d{1,3}){3}|::1|localhost)$")


class Listener(NamedTuple):
    """One address clients connect to, and how they prove who they are."""

    host: str = "127.0.0.1"
    """In a file: ``address = "host:port"``."""
    port: int = 9092
    """0 picks a free one."""
    advertised: tuple[str, int] | None = None
    """What clients are told to connect to; the address itself unless given."""
    certificate_file: str | None = None
    """PEM; with it the listener speaks TLS. Read again at SIGHUP."""
    key_file: str | None = None
    """PEM, the key of the certificate."""
    client_ca_file: str | None = None
    """PEM; clients are asked for a certificate that one of these signed."""
    client_certificate: str = "required"
    """``required`` refuses clients without one, ``optional`` lets SASL decide."""
    sasl: tuple[str, ...] = ()
    """Mechanisms: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512."""

    @property
    def is_tls(self) -> bool:
        return self.certificate_file is not None

    @property
    def is_loopback(self) -> bool:
        return _LOOPBACK.match(self.host) is not None

    @property
    def authenticates(self) -> bool:
        by_certificate = self.client_ca_file is not None and self.client_certificate == "required"
        return bool(self.sasl) or by_certificate

    @property
    def protocol(self) -> str:
        """Kafka's name for this combination."""
        return ("SASL_" if self.sasl else "") + ("SSL" if self.is_tls else "PLAINTEXT")


class Limits(NamedTuple):
    """Everything has a limit. These are the defaults; each can be raised by name."""

    frame_bytes: int = 100 << 20
    """Largest request."""
    frame_bytes_before_authentication: int = 512 << 10
    """Largest request of a client that has not proved who it is."""
    elements_per_request: int = 100_000
    """Array elements in one request."""
    connections: int = 5_000
    """Open at a time; each takes a file descriptor."""
    connections_per_address: int = 2_500
    """Open at a time from one address."""
    connections_per_second: int = 1_000
    """New ones; more are refused."""
    unauthenticated_connections: int = 200
    """Open at a time before authentication, on listeners with SASL."""
    in_flight_bytes: int = 256 << 20
    """Requests being handled, of all clients; beyond it, reading pauses."""
    in_flight_requests_per_connection: int = 100
    """Beyond it, reading from the connection pauses."""
    out_pending_bytes_per_connection: int = 64 << 20
    """Replies not yet sent; beyond it, reading from it pauses."""
    authentication_seconds: float = 30.0
    """Time to authenticate."""
    failed_authentication_delay_seconds: float = 0.1
    """Before a wrong password is answered."""
    frame_seconds: float = 60.0
    """Time for a request to arrive whole."""
    slow_reader_seconds: float = 60.0
    """Time for a client to take any byte of its replies."""
    idle_seconds: float = 600.0
    """Time without a request before a connection is closed."""
    waiting_fetches: int = 20_000
    """Fetches waiting for data at a time; more are answered at once."""
    fetch_sessions: int = 1_000
    """Incremental fetch sessions kept; the oldest gives way."""
    fetch_bytes: int = 55 << 20
    """Largest fetch response, whatever a client asks for."""
    partitions_per_request: int = 2_000
    """Partitions in one DescribeTopicPartitions page."""
    topics: int = 10_000
    """Topics of this broker."""
    partitions: int = 20_000
    """Partitions of this broker."""


class GroupSettings(NamedTuple):
    """Consumer groups. The initial delay is 0 here (Kafka: 3000): groups of tests start at once."""

    initial_rebalance_delay_ms: int = 0
    """How long an empty group waits for more members."""
    min_session_timeout_ms: int = 6_000
    """Smallest session timeout a member may ask for."""
    max_session_timeout_ms: int = 1_800_000
    """Largest one."""
    max_size: int = 4_000
    """Members of one group. So many are rebalanced in 50 ms, while others wait."""
    offsets_partitions: int = 50
    """Partitions of ``__consumer_offsets``; fixed once it exists."""
    offsets_retention_minutes: int = 10_080
    """How long offsets of an empty group are kept."""
    offset_metadata_max_bytes: int = 4_096
    """Largest note beside a committed offset."""


class TopicDefaults(NamedTuple):
    """What a new topic gets when its creator does not say. ``configs`` has Kafka's dotted names."""

    partitions: int = 1
    """Of topics whose creator does not say."""
    auto_create: bool = True
    """Create a topic when a client first asks for it."""
    configs: Mapping[str, str] = MappingProxyType({})
    """Defaults of topic settings; in a file with underscores (``retention_ms``)."""


class BrokerConfig(NamedTuple):
    """The whole configuration of a broker."""

    listeners: tuple[Listener, ...] = (Listener(),)
    """In a file: one ``[[listener]]`` each."""
    data_dir: str | None = None
    """Where the log lives; ``shoal serve`` takes ``shoal-data``."""
    durability: str = "group"
    """When a record counts as stored: ``group``, ``each``, ``interval`` or ``os``."""
    sync_interval_ms: int = 50
    """Between syncs with durability ``interval``."""
    disk_reserve_bytes: int = 64 << 20
    """Left free: appends stop before the disk is full."""
    node_id: int = 1
    """This broker among Kafka nodes; stored in the data directory."""
    cluster_id: str | None = None
    """Made up at the first start unless given; stored in the data directory."""
    rack: str | None = None
    """Told to clients in metadata."""
    insecure_public: bool = False
    """Serve other machines without asking who they are."""
    retention_check_seconds: float = 30.0
    """Between two rounds of retention and compaction."""
    shutdown_seconds: float = 10.0
    """How long a stop waits for requests in flight."""
    limits: Limits = Limits()
    """In a file: ``[limits]``."""
    groups: GroupSettings = GroupSettings()
    """In a file: ``[groups]``."""
    topics: TopicDefaults = TopicDefaults()
    """In a file: ``[topics]``."""

    def checked(self) -> BrokerConfig:
        """This configuration, or a ConfigError that names what is wrong with it."""
        if self.durability not in DURABILITIES:
            raise ConfigError(
                f"durability {self.durability!r} is not one of {', '.join(DURABILITIES)}"
                + did_you_mean(self.durability, DURABILITIES)
            )
        if not self.listeners:
            raise ConfigError("no listener: give at least one address with --listen")
        for listener in self.listeners:
            _check_listener(listener, insecure_public=self.insecure_public)
        for part in (self.limits, self.groups):
            for name, value in part._asdict().items():
                if value < 0:
                    raise ConfigError(f"{name} must not be negative")
        if self.topics.partitions < 1:
            raise ConfigError("topics.partitions must be at least 1")
        if self.topics.partitions > self.limits.partitions:
            raise ConfigError(
                f"topics.partitions is {self.topics.partitions}, more than limits.partitions "
                f"({self.limits.partitions}): no topic could be made"
            )
        from shoal.broker.topic_configs import check_value

        for name, value in self.topics.configs.items():
            check_value(name, value)
        return self


def _check_listener(listener: Listener, *, insecure_public: bool) -> None:
    where = f"{listener.host}:{listener.port}"
    if not 0 <= listener.port <= 65_535:
        raise ConfigError(f"listener {where}: the port must be between 0 and 65535")
    for mechanism in listener.sasl:
        if mechanism not in MECHANISMS:
            raise ConfigError(
                f"listener {where}: SASL mechanism {mechanism!r} is not one of "
                f"{', '.join(MECHANISMS)}" + did_you_mean(mechanism, MECHANISMS)
            )
    if (listener.certificate_file is None) != (listener.key_file is None):
        raise ConfigError(f"listener {where}: certificate_file and key_file belong together")
    if listener.client_ca_file is not None and not listener.is_tls:
        raise ConfigError(f"listener {where}: client_ca_file needs certificate_file and key_file")
    if listener.client_certificate not in ("required", "optional"):
        raise ConfigError(f'listener {where}: client_certificate is "required" or "optional"')
    if "PLAIN" in listener.sasl and not (listener.is_tls or listener.is_loopback):
        raise ConfigError(
            f"listener {where}: SASL PLAIN sends passwords readably; use TLS or a SCRAM mechanism"
        )
    if not (listener.is_loopback or listener.authenticates or insecure_public):
        raise ConfigError(
            f"listener {where} is reachable from other machines and asks nobody who they are; "
            "add SASL users or client certificates, or say --insecure-public"
        )


def parse_address(text: str, *, default_port: int | None = None) -> tuple[str, int]:
    """``host:port``, ``[v6]:port`` or ``:port`` (loopback)."""
    match = re.fullmatch(r"(?:\[([^\]]+)\]|([^:\[\]]*))(?::(\d{1,5}))?", text.strip())
    if match is None or (match[3] is None and default_port is None):
        raise ConfigError(f"{text!r} is not an address: write host:port, as in 127.0.0.1:9092")
    port = int(match[3]) if match[3] is not None else default_port
    assert port is not None
    return match[1] or match[2] or "127.0.0.1", port


_RENAMED: Final[dict[str, str]] = {"listener": "listeners"}


def from_toml(text: str, *, source: str = "the configuration") -> BrokerConfig:
    """Read a configuration file's text."""
    import tomllib

    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not valid TOML: {error}") from None
    config = BrokerConfig()
    top = BrokerConfig._fields
    changes: dict[str, Any] = {}
    for key, value in data.items():
        if key == "listener":
            changes["listeners"] = _listeners(value, source)
        elif key in ("limits", "groups"):
            changes[key] = _section(getattr(config, key), value, f"{source} [{key}]")
        elif key == "topics":
            changes[key] = _topics(value, source)
        elif key in top and key != "listeners":
            changes[key] = _typed(value, getattr(config, key), f"{source}: {key}")
        else:
            known = ["listener", *(name for name in top if name != "listeners")]
            raise ConfigError(f"{source}: unknown key {key!r}{did_you_mean(key, known)}")
    return config._replace(**changes)


def _section(defaults: Any, values: object, where: str) -> Any:
    if not isinstance(values, dict):
        raise ConfigError(f"{where} must be a table")
    known = defaults._fields
    for key in values:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}{did_you_mean(key, known)}")
    return defaults._replace(
        **{k: _typed(v, getattr(defaults, k), f"{where}: {k}") for k, v in values.items()}
    )


def _typed(value: object, default: object, where: str) -> object:
    """``value`` if it has the type of the default; numbers widen, nothing else is converted."""
    if default is None or isinstance(default, str):
        wanted: type = str
    else:
        wanted = type(default)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise ConfigError(f"{where} must be of type {wanted.__name__}, not {value!r}")
    return value


def _topics(values: object, source: str) -> TopicDefaults:
    if not isinstance(values, dict):
        raise ConfigError(f"{source}: [topics] must be a table")
    from shoal.broker.topic_configs import TOPIC_CONFIGS

    plain: dict[str, Any] = {}
    configs: dict[str, str] = {}
    known = ["partitions", "auto_create", *(name.replace(".", "_") for name in TOPIC_CONFIGS)]
    for key, value in values.items():
        dotted = key.replace("_", ".")
        if key in ("partitions", "auto_create"):
            plain[key] = _typed(value, getattr(TopicDefaults(), key), f"{source} [topics]: {key}")
        elif dotted in TOPIC_CONFIGS:
            configs[dotted] = str(value).lower() if isinstance(value, bool) else str(value)
        else:
            raise ConfigError(f"{source} [topics]: unknown key {key!r}{did_you_mean(key, known)}")
    return TopicDefaults(configs=configs, **plain)


def _listeners(values: object, source: str) -> tuple[Listener, ...]:
    if not isinstance(values, list):
        raise ConfigError(f"{source}: write [[listener]] with two brackets")
    known = ["address", "advertised", *(name for name in Listener._fields if name not in _ADDRESS)]
    result = []
    for number, item in enumerate(values, 1):
        where = f"{source} [[listener]] {number}"
        plain: dict[str, Any] = {}
        for key, value in item.items():
            if key == "address":
                plain["host"], plain["port"] = parse_address(str(value))
            elif key == "advertised":
                plain["advertised"] = parse_address(str(value), default_port=0)
            elif key == "sasl":
                if not isinstance(value, list):
                    raise ConfigError(f"{where}: sasl must be a list of mechanisms")
                plain["sasl"] = tuple(str(mechanism) for mechanism in value)
            elif key in known:
                plain[key] = _typed(value, "", f"{where}: {key}")
            else:
                raise ConfigError(f"{where}: unknown key {key!r}{did_you_mean(key, known)}")
        result.append(Listener(**plain))
    return tuple(result)


_ADDRESS: Final = ("host", "port", "advertised")
