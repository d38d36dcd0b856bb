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

from shoal.access.bearer_tokens import ALGORITHMS, DEFAULT_ALGORITHMS
from shoal.access.principal_mapping import read_mapping_rules
from shoal.errors import ConfigError, did_you_mean

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
DURABILITIES: Final = ("group", "each", "interval", "os")
MIGRATION_POLICIES: Final = ("bidirectional", "upgrade", "downgrade", "disabled")
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
    principal_mapping_rules: tuple[str, ...] = ("DEFAULT",)
    """From a certificate's subject to the user's name, the first that fits: ``DEFAULT`` or
    ``RULE:pattern/replacement/[LU]`` (``ssl.principal.mapping.rules``). No name, no entry."""
    sasl: tuple[str, ...] = ()
    """Mechanisms: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER."""
    max_reauth_ms: int = 0
    """Clients prove again who they are at least so often (``connections.max.reauth.ms``); 0: only
    where a token says until when it is good."""

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


class BrokerLimits(NamedTuple):
    """Everything has a limit. These are the defaults; each can be raised by name."""

    frame_bytes: int = 100 << 20
    """Largest request."""
    frame_bytes_before_authentication: int = 512 << 10
    """Largest request of a client that has not proved who it is."""
    elements_per_request: int = 100_000
    """Array elements in one request."""
    elements_per_reply: int = 1_000_000
    """Rows of one reply (topics, partitions, members, offsets, settings); beyond it, refused."""
    connections: int = 5_000
    """Open at a time; each takes a file descriptor."""
    connections_per_address: int = 2_500
    """Open at a time from one address."""
    connections_per_second: int = 1_000
    """New ones; more are refused."""
    unauthenticated_connections: int = 200
    """Open at a time before authentication (SASL, TLS handshake); beyond it, the oldest goes."""
    requests_before_authentication: int = 20
    """Requests of a client that has not proved who it is; it needs about four."""
    in_flight_bytes: int = 256 << 20
    """Memory held for all clients: requests whole and unfinished, replies, fetch sessions."""
    in_flight_requests_per_connection: int = 100
    """Beyond it, reading from the connection pauses."""
    out_pending_bytes_per_connection: int = 64 << 20
    """Replies not yet sent; beyond it, reading from it pauses."""
    authentication_seconds: float = 30.0
    """Time to authenticate, and for the TLS handshake."""
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
    segment_bytes_min: int = 1 << 20
    """Smallest ``segment.bytes`` of a topic: each segment is three files."""


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
    dead_connection_grace_ms: int = 0
    """A dynamic member whose connection broke and that is silent so long is out. 0: only its
    session counts, as in Kafka."""
    consumer_session_timeout_ms: int = 45_000
    """Consumer protocol: a member that is silent so long is out."""
    consumer_min_session_timeout_ms: int = 45_000
    """Smallest session timeout that may be set on a group."""
    consumer_max_session_timeout_ms: int = 60_000
    """Largest one."""
    consumer_heartbeat_interval_ms: int = 0
    """How often members come. 0: it follows the group (Kafka: 5000)."""
    consumer_min_heartbeat_interval_ms: int = 5_000
    """Smallest interval that may be set on a group."""
    consumer_max_heartbeat_interval_ms: int = 15_000
    """Largest one."""
    consumer_assignment_interval_ms: int = 1_000
    """A target is computed at most so often; 0 at every change."""
    consumer_max_size: int = 4_000
    """Members of one consumer group."""
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """Who may assign in consumer groups, the default first: names, or NAME=package.module:attribute
    for one of your own."""
    consumer_assignor_timeout_ms: int = 5_000
    """Such a one is killed if it takes longer."""
    consumer_migration_policy: str = "bidirectional"
    """Which way groups change protocol while they run: also upgrade, downgrade, disabled."""


class TransactionSettings(NamedTuple):
    """Transactions. Kafka's defaults; what timed out is aborted at once, not in rounds."""

    max_timeout_ms: int = 900_000
    """Longest timeout a producer may ask for (``transaction.max.timeout.ms``)."""
    id_expiration_ms: int = 604_800_000
    """How long an unused transactional id is kept (``transactional.id.expiration.ms``)."""
    remove_expired_interval_ms: int = 3_600_000
    """Between two looks for such ids."""
    state_partitions: int = 50
    """Partitions of ``__transaction_state``; fixed once it exists."""
    two_phase_commit: bool = False
    """Whether producers may ask for transactions without a timeout, which somebody else ends
    (``transaction.two.phase.commit.enable``, KIP-939)."""


class TopicDefaults(NamedTuple):
    """What a new topic gets when its creator does not say. ``configs`` has Kafka's dotted names."""

    partitions: int = 1
    """Of topics whose creator does not say."""
    auto_create: bool = True
    """Create a topic when a client first asks for it."""
    configs: Mapping[str, str] = MappingProxyType({})
    """Defaults of topic settings; in a file with underscores (``retention_ms``)."""


class AuthorizationSettings(NamedTuple):
    """Who may do what. In force if the file has ``[authorization]`` or ``--authorize`` is given."""

    super_users: tuple[str, ...] = ()
    """Principals that may do everything, e.g. ``User:admin``; without one nobody could begin."""
    allow_everyone_if_no_acl_found: bool = False
    """Whether what no rule is about is open to everybody."""


class OAuthSettings(NamedTuple):
    """Tokens of OAUTHBEARER listeners: who issues them, and what must be in them."""

    jwks: str = ""
    """Keys of the issuer (a JWK set): a file, read again when it changes, or an https URL."""
    jwks_refresh_seconds: float = 3600.0
    """Between two looks at the URL; a token with an unknown key makes us look at once."""
    jwks_ca_file: str | None = None
    """PEM; who vouches for the URL's host. The system's authorities unless given."""
    issuer: str = ""
    """``iss`` must be exactly this."""
    audience: tuple[str, ...] = ()
    """One of these must be in ``aud``."""
    required_scope: tuple[str, ...] = ()
    """All of these must be in the scope."""
    principal_claim: str = "sub"
    """The claim that names the user."""
    scope_claim: str = "scope"
    """The claim that has the scope, as a text or a list."""
    algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS
    """How tokens may be signed: with RSA, PSS, ECDSA or EdDSA, never with a shared secret."""
    clock_skew_seconds: int = 30
    """How far the clocks of broker and issuer may be apart."""
    unsecured: bool = False
    """Takes unsigned tokens, from this machine only: anyone on it can log in as any user."""


class MetricsSettings(NamedTuple):
    """A port for Prometheus. Open if the file has ``[metrics]`` or ``--metrics`` is given."""

    address: str = "127.0.0.1:9308"
    """``host:port``, or a port of this machine alone; port 0 picks a free one."""
    token_file: str | None = None
    """Scrapes must bring the token in this file; beyond this machine it must be given."""
    jmx_names: bool = False
    """Also ``kafka_server_brokertopicmetrics_*`` and others, as the JMX exporter calls them."""
    series_max: int = 50_000
    """The most time series there may be; the finest are left out first."""


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
    """Allow unauthenticated access from other machines."""
    retention_check_seconds: float = 30.0
    """Between two rounds of retention and compaction."""
    shutdown_seconds: float = 10.0
    """How long a stop waits for requests in flight."""
    limits: BrokerLimits = BrokerLimits()
    """In a file: ``[limits]``."""
    groups: GroupSettings = GroupSettings()
    """In a file: ``[groups]``."""
    transactions: TransactionSettings = TransactionSettings()
    """In a file: ``[transactions]``."""
    topics: TopicDefaults = TopicDefaults()
    """In a file: ``[topics]``."""
    authorization: AuthorizationSettings | None = None
    """In a file: ``[authorization]``. Without it everybody may do everything."""

    oauth: OAuthSettings | None = None
    """In a file: ``[oauth]``. Listeners with OAUTHBEARER need it."""
    metrics: MetricsSettings | None = None
    """In a file: ``[metrics]``. Without it there is no such port."""

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
            if "OAUTHBEARER" in listener.sasl:
                _check_oauth(self.oauth, listener)
        for part in (self.limits, self.groups, self.transactions):
            for name, value in part._asdict().items():
                if not isinstance(value, str | tuple) and value < 0:
                    raise ConfigError(f"{name} must not be negative")
        _check_groups(self.groups)
        for name, value in self.transactions._asdict().items():
            if name != "two_phase_commit" and value < 1:
                raise ConfigError(f"transactions.{name} must be at least 1")
        if self.topics.partitions < 1:
            raise ConfigError("topics.partitions must be at least 1")
        if self.topics.partitions > self.limits.partitions:
            raise ConfigError(
                f"topics.partitions is {self.topics.partitions}, more than limits.partitions "
                f"({self.limits.partitions}): no topic could be made"
            )
        if self.authorization is not None:
            _check_authorization(self.authorization)
        if self.metrics is not None:
            _check_metrics(self.metrics)
        from shoal.broker.topic_configs import check_value, segment_fault

        for name, value in self.topics.configs.items():
            check_value(name, value)
            if fault := segment_fault(name, value, self.limits.segment_bytes_min):
                raise ConfigError(fault)
        return self


def _check_groups(groups: GroupSettings) -> None:
    policy = groups.consumer_migration_policy
    if policy not in MIGRATION_POLICIES:
        raise ConfigError(
            f"groups.consumer_migration_policy {policy!r} is not one of "
            f"{', '.join(MIGRATION_POLICIES)}" + did_you_mean(policy, MIGRATION_POLICIES)
        )
    if not groups.consumer_assignors:
        raise ConfigError("groups.consumer_assignors is empty: name one, such as uniform")
    if groups.consumer_assignor_timeout_ms < 1:
        raise ConfigError("groups.consumer_assignor_timeout_ms must be positive")
    for what in ("session_timeout_ms", "heartbeat_interval_ms"):
        low, high = (getattr(groups, f"consumer_{end}_{what}") for end in ("min", "max"))
        if not 0 < low <= high:
            raise ConfigError(
                f"groups.consumer_min_{what} must be positive and not above consumer_max_{what}"
            )
    if not groups.consumer_heartbeat_interval_ms < groups.consumer_session_timeout_ms:
        raise ConfigError(
            "groups.consumer_heartbeat_interval_ms must be below consumer_session_timeout_ms"
        )


def _check_authorization(settings: AuthorizationSettings) -> None:
    if not settings.super_users:
        raise ConfigError(
            "authorization without a super user: nobody could ever add a rule; "
            "name one with --super-user User:admin or super_users in [authorization]"
        )
    for principal in settings.super_users:
        kind, colon, name = principal.partition(":")
        if not (kind and colon and name):
            raise ConfigError(
                f"super user {principal!r} is not of the form Type:name; write User:{principal}"
            )


def _check_metrics(settings: MetricsSettings) -> None:
    host, port = metrics_address(settings.address)
    if port > 65_535:
        raise ConfigError(f"metrics {settings.address}: the port must be between 0 and 65535")
    if _LOOPBACK.match(host) is None and settings.token_file is None:
        raise ConfigError(
            f"metrics on {host} could be read by anybody who reaches it: give a token with "
            "--metrics-token-file, or listen on 127.0.0.1"
        )
    if settings.series_max < 100:
        raise ConfigError("metrics.series_max must be at least 100")


def _check_oauth(settings: OAuthSettings | None, listener: Listener) -> None:
    """Nothing here is optional that decides who is let in: a gap would let everybody in."""
    where = f"listener {listener.host}:{listener.port} offers OAUTHBEARER"
    if settings is None:
        raise ConfigError(
            f"{where} and nothing says which tokens are good: add [oauth] with jwks, issuer and "
            "audience"
        )
    if settings.clock_skew_seconds < 0 or settings.jwks_refresh_seconds <= 0:
        raise ConfigError("oauth: clock_skew_seconds and jwks_refresh_seconds must be positive")
    if settings.unsecured:
        if settings.jwks:
            raise ConfigError("oauth: unsecured tokens need no jwks; take one of the two away")
        if not listener.is_loopback:
            raise ConfigError(f"{where} to other machines, and oauth.unsecured lets anybody in")
        return
    for name in ("jwks", "issuer", "audience"):
        if not getattr(settings, name):
            raise ConfigError(f"{where}: oauth.{name} is missing, tokens cannot be checked")
    url = re.match(r"(\w+)://(?:\[([^\]]*)\]|([^/:?#]*))", settings.jwks)
    if url is not None and url[1] != "file":
        is_here = _LOOPBACK.match(url[2] or url[3]) is not None
        if url[1] != "https" and not (url[1] == "http" and is_here):
            raise ConfigError(f"oauth.jwks {settings.jwks}: keys come from a file or by https")
    for algorithm in settings.algorithms:
        if algorithm not in ALGORITHMS:
            raise ConfigError(
                f"oauth.algorithms: {algorithm!r} is not one of {', '.join(ALGORITHMS)}"
            )


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
    try:
        if not read_mapping_rules(listener.principal_mapping_rules):
            raise ValueError("there is none; the default is DEFAULT")
    except ValueError as error:
        raise ConfigError(f"listener {where}: principal_mapping_rules: {error}") from None
    if listener.client_certificate not in ("required", "optional"):
        raise ConfigError(f'listener {where}: client_certificate is "required" or "optional"')
    for mechanism, secrets in (("PLAIN", "passwords"), ("OAUTHBEARER", "tokens")):
        if mechanism in listener.sasl and not (listener.is_tls or listener.is_loopback):
            raise ConfigError(
                f"listener {where}: SASL {mechanism} sends {secrets} readably; use TLS or a SCRAM "
                "mechanism"
            )
    if listener.max_reauth_ms < 0:
        raise ConfigError(f"listener {where}: max_reauth_ms must not be negative")
    if not (listener.is_loopback or listener.authenticates or insecure_public):
        raise ConfigError(
            f"listener {where} is reachable from other machines and has no authentication; "
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


def metrics_address(text: str) -> tuple[str, int]:
    """``host:port``, or a port of this machine."""
    text = text.strip()
    return parse_address(f":{text}" if text.isdecimal() and text.isascii() else text)


_OPTIONAL: Final[dict[str, Any]] = {
    "authorization": AuthorizationSettings(),
    "oauth": OAuthSettings(),
    "metrics": MetricsSettings(),
}


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
        elif key in ("limits", "groups", "transactions"):
            changes[key] = _section(getattr(config, key), value, f"{source} [{key}]")
        elif key == "topics":
            changes[key] = _topics(value, source)
        elif key in _OPTIONAL:
            changes[key] = _section(_OPTIONAL[key], value, f"{source} [{key}]")
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
    if wanted is tuple:
        if not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
            raise ConfigError(f"{where} must be a list of texts, not {value!r}")
        return tuple(value)
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
                plain[key] = _typed(value, Listener._field_defaults[key], f"{where}: {key}")
            else:
                raise ConfigError(f"{where}: unknown key {key!r}{did_you_mean(key, known)}")
        result.append(Listener(**plain))
    return tuple(result)


_ADDRESS: Final = ("host", "port", "advertised")
