"""Settings of other Kafka clients: which of ours each one is, or why it is none.

Rule: a setting that a program could miss is never dropped. It is one of three: it is ours under
another name or with other words for its values (``TAKEN``); it is about the other client's insides
or says what happens here anyway (``LEFT_OUT``, and ``UNLESS`` for the values that ask for nothing
else); or it is refused with what to do instead (``REFUSED``, and ``UNLESS`` for all other values).

Names have dots; kafka-python and aiokafka write underscores for them. A test reads the settings of
confluent-kafka (librdkafka's own list), kafka-python and aiokafka from the installed packages and
looks for each of them here or among our own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from shoal.client.foreign_names import PROPERTIES
from shoal.client.partitioner import HashedKeys

FOREVER_MS: Final = 2**31 - 1

Convert = Callable[[Any], Any]


class UnusableValueError(ValueError):
    """A value of a setting that means nothing here; the text says what to do."""


class ForeignSetting(NamedTuple):
    """Ours, and how its value is read where that is more than its text."""

    ours: str
    convert: Convert | None = None


class OneWay(NamedTuple):
    """Fine with these values (as text, in lower case) and then without effect; else refused."""

    fine: tuple[str, ...]
    why: str
    instead: str


@dataclass(frozen=True)
class SettingOutcome:
    """What became of one setting."""

    name: str
    """As it was given."""
    outcome: str
    """``taken``, ``left out`` or ``refused``."""
    ours: str | None
    """The setting here, where it was taken as one."""
    shown: str
    """The value in force, or what was given; secrets as ``***``."""
    why: str
    """Why it was left out or refused, and what to do instead."""


def dotted(name: str) -> str:
    """``group_id`` and ``group.id`` are one name."""
    return name.replace("_", ".")


_SECRET: Final = re.compile(
    r"passw|passphrase|secret|\.pem$|jaas|proxy|oauth\.cb|ssl\.key$|oauthbearer\.config"
    r"|token(?!\.(endpoint|file))"
)


def shown_value(name: str, value: Any) -> str:
    """A value as people may see it: secrets never, long ones shortened."""
    if value not in (None, "") and _SECRET.search(dotted(name).lower()):
        return "***"
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


# --- values ---------------------------------------------------------------------------------------


def number(value: Any) -> Any:
    """Whole numbers may come as floats; without end is the largest there is. Else as it is."""
    if isinstance(value, float):
        if math.isinf(value) and value > 0:
            return FOREVER_MS
        return int(value) if value.is_integer() else value
    return value


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise UnusableValueError("give a number") from None


def _kilobytes(value: Any) -> int:
    return int(_float(value) * 1024)


def _rounded_up(value: Any) -> int:
    return math.ceil(_float(value))


def _zero_is_forever(value: Any) -> int:
    found = _float(value)
    return FOREVER_MS if found == 0 or math.isinf(found) else int(found)


def _none_is_forever(value: Any) -> Any:
    return FOREVER_MS if value is None else number(value)


def _upper(value: Any) -> Any:
    return value.strip().upper() if isinstance(value, str) else value


_RESETS: Final = {
    "smallest": "earliest",
    "beginning": "earliest",
    "largest": "latest",
    "end": "latest",
    "error": "none",
}


def _reset(value: Any) -> Any:
    return _RESETS.get(value.strip(), value) if isinstance(value, str) else value


def _codec(value: Any) -> Any:
    return "none" if value is None else value


def _level(value: Any) -> Any:
    return None if str(value).strip() == "-1" else value


def _checks_hostname(value: Any) -> bool:
    text = str(value or "").strip().lower()
    if text not in ("", "none", "https"):
        raise UnusableValueError("give https, or none for no check of the broker's name")
    return text == "https"


def _refresh(value: Any) -> int:
    found = int(_float(value))
    return FOREVER_MS if found < 0 else found


def _pem(value: Any) -> Any:
    if str(value).lower().endswith((".p12", ".pfx", ".pkcs12", ".jks")):
        raise UnusableValueError(
            "key stores are not read; convert it to PEM once (openssl pkcs12 -in FILE -nodes -out "
            "FILE.pem) and name that"
        )
    return value


def _with_ports(value: Any) -> Any:
    """The others take a host alone, too, and then Kafka's usual port."""
    if isinstance(value, str):
        return ",".join(_with_port(one.strip()) for one in value.split(",") if one.strip())
    return [_with_port(one) for one in value] if isinstance(value, list | tuple) else value


def _with_port(server: Any) -> Any:
    is_host = isinstance(server, str) and re.fullmatch(r"(\w+://)?([^:\s]+|\[[^]]*\])", server)
    return f"{server}:9092" if is_host else server


def _assignors(value: Any) -> Any:
    """kafka-python and aiokafka name classes; what they are called in a group is in ``name``."""
    if isinstance(value, list | tuple) and value:
        return tuple(_assignor(one) for one in value)
    return value


def _assignor(one: Any) -> Any:
    is_theirs = isinstance(one, type) and one.__module__.split(".")[0] in _THEIR_PACKAGES
    return one.name if is_theirs and isinstance(getattr(one, "name", None), str) else one


_THEIR_PACKAGES: Final = ("kafka", "aiokafka")


def is_their_own(value: Any) -> bool:
    """An object that kafka-python or aiokafka brings, which is a default there."""
    kind = value if isinstance(value, type) or callable(value) else type(value)
    module = getattr(kind, "__module__", None) or type(value).__module__
    return module.split(".")[0] in _THEIR_PACKAGES


_HASHES: Final = (
    "consistent",
    "consistent_random",
    "fnv1a",
    "fnv1a_random",
    "murmur2",
    "random",
)


def _partitioner(value: Any) -> Any:
    if isinstance(value, str) and value.strip() == "murmur2_random":
        return "sticky"  # the same hash, and without a key any partition
    if isinstance(value, str) and value.strip() in _HASHES:
        return HashedKeys(value.strip())
    return "sticky" if is_their_own(value) else value  # murmur2 by default in both


def token_callback(call: Any, settings: str) -> Any:
    """confluent-kafka's ``oauth_cb``: called with a text, returns token, expiry and maybe more."""
    if not callable(call):
        return call

    def token() -> Any:
        found = call(settings)
        return tuple(found[:2]) if isinstance(found, tuple) else found

    return token


# --- names ----------------------------------------------------------------------------------------

# Ours, with values that other clients put in other words.
VALUES: Final[dict[str, Convert]] = {
    "assignors": _assignors,
    "auto_offset_reset": _reset,
    "bootstrap_servers": _with_ports,
    "compression_level": _level,
    "compression_type": _codec,
    "connections_max_idle_ms": _zero_is_forever,
    "delivery_timeout_ms": _zero_is_forever,
    "linger_ms": _rounded_up,
    "max_poll_records": _none_is_forever,
    "partitioner": _partitioner,
    "security_protocol": _upper,
    "sasl_mechanism": _upper,
    "ssl_cafile": _pem,
    "ssl_certfile": _pem,
}

TAKEN: Final[dict[str, ForeignSetting]] = {
    **{name: ForeignSetting(ours) for name, ours in PROPERTIES.items()},
    # librdkafka
    "compression.codec": ForeignSetting("compression_type"),
    "fetch.message.max.bytes": ForeignSetting("max_partition_fetch_bytes"),
    "fetch.wait.max.ms": ForeignSetting("fetch_max_wait_ms"),
    "max.in.flight": ForeignSetting("max_in_flight_requests_per_connection"),
    "message.max.bytes": ForeignSetting("max_request_size"),
    "message.send.max.retries": ForeignSetting("retries"),
    "message.timeout.ms": ForeignSetting("delivery_timeout_ms"),
    "oauth.cb": ForeignSetting("sasl_oauthbearer_token"),
    "queue.buffering.max.kbytes": ForeignSetting("buffer_memory", _kilobytes),
    "queue.buffering.max.ms": ForeignSetting("linger_ms"),
    "queued.max.messages.kbytes": ForeignSetting("fetch_buffer_bytes", _kilobytes),
    "request.required.acks": ForeignSetting("acks"),
    "socket.timeout.ms": ForeignSetting("request_timeout_ms"),
    "ssl.endpoint.identification.algorithm": ForeignSetting("ssl_check_hostname", _checks_hostname),
    "ssl.keystore.password": ForeignSetting("ssl_key_password"),
    "topic.metadata.refresh.interval.ms": ForeignSetting("metadata_max_age_ms", _refresh),
    # kafka-python and aiokafka
    "max.batch.size": ForeignSetting("batch_size"),
    "sasl.oauth.token.provider": ForeignSetting("sasl_oauthbearer_token"),
    "sasl.plain.password": ForeignSetting("sasl_password"),
    "sasl.plain.username": ForeignSetting("sasl_username"),
    "ssl.password": ForeignSetting("ssl_key_password"),
}

_VERSIONS: Final = "brokers are always asked for their versions"
_SOCKETS: Final = "sockets are as the system makes them, without delay (TCP_NODELAY)"
_OWN_LOG: Final = "logs go to Python's logger `shoal`; set its level"
_METRICS: Final = "a client always counts: ask `metrics()`, or give it to Prometheus"
_ERRORS: Final = "errors are raised by the call they belong to"
_UNUSED: Final = "without effect there, too"
_QUEUES: Final = "limits are in bytes: `fetch_buffer_bytes`, `buffer_memory`, `batch_size`"
_KERBEROS: Final = "for GSSAPI only, which is not supported; see `sasl_mechanism`"
_SOURCE: Final = "where tokens come from is said by the settings of that source"
_C_ONLY: Final = "for programs in C only"
_FOR_PEOPLE: Final = "what is asked for again when a broker goes away is decided here"

LEFT_OUT: Final[dict[str, str]] = {
    # librdkafka
    "api.version.fallback.ms": _VERSIONS,
    "api.version.request": _VERSIONS,
    "api.version.request.timeout.ms": _VERSIONS,
    "auto.commit.enable": "of an older consumer; `enable_auto_commit` is meant",
    "background.event.cb": _C_ONLY,
    "batch.num.messages": _QUEUES,
    "broker.address.family": "every address of a name is tried",
    "broker.address.ttl": "names are looked up at each connect",
    "broker.version.fallback": _VERSIONS,
    "builtin.features": "says what that library can do",
    "client.dns.lookup": "every address of a name is tried",
    "closesocket.cb": _C_ONLY,
    "connect.cb": _C_ONLY,
    "consume.callback.max.messages": _C_ONLY,
    "consume.cb": _C_ONLY,
    "coordinator.query.interval.ms": "the coordinator is looked for when it does not answer",
    "debug": _OWN_LOG,
    "enable.metrics.push": _METRICS,
    "enable.random.seed": _C_ONLY,
    "enabled.events": _C_ONLY,
    "error.cb": _ERRORS,
    "fetch.error.backoff.ms": "as `retry_backoff_ms`",
    "fetch.queue.backoff.ms": "fetching goes on as soon as there is room",
    "group.protocol.type": "it is always `consumer`",
    "internal.termination.signal": _C_ONLY,
    "log.cb": _OWN_LOG,
    "log.connection.close": _OWN_LOG,
    "log.level": _OWN_LOG,
    "log.queue": _OWN_LOG,
    "log.thread.name": _OWN_LOG,
    "logger": _OWN_LOG,
    "message.copy.max.bytes": "values are copied once, into their batch",
    "metadata.recovery.rebootstrap.trigger.ms": _FOR_PEOPLE,
    "metadata.recovery.strategy": _FOR_PEOPLE,
    "msg.order.cmp": _C_ONLY,
    "offset.store.path": _UNUSED,
    "offset.store.sync.interval.ms": _UNUSED,
    "opaque": _C_ONLY,
    "open.cb": _C_ONLY,
    "produce.offset.report": _UNUSED,
    "queue.buffering.backpressure.threshold": _QUEUES,
    "queue.buffering.max.messages": _QUEUES,
    "queued.min.messages": _QUEUES,
    "reconnect.backoff.jitter.ms": _UNUSED,
    "resolve.cb": _C_ONLY,
    "sasl.kerberos.keytab": _KERBEROS,
    "sasl.kerberos.kinit.cmd": _KERBEROS,
    "sasl.kerberos.min.time.before.relogin": _KERBEROS,
    "sasl.kerberos.principal": _KERBEROS,
    "sasl.kerberos.service.name": _KERBEROS,
    "sasl.oauthbearer.config": "handed to `oauth_cb`",
    "sasl.oauthbearer.sub.claim.name": "tokens are not looked into here; the broker does",
    "share.acknowledgement.mode": "share groups are not supported, and only they have it",
    "socket.blocking.max.ms": _UNUSED,
    "socket.cb": _C_ONLY,
    "socket.keepalive.enable": _SOCKETS,
    "socket.max.fails": "one request without an answer ends its connection",
    "socket.nagle.disable": _SOCKETS,
    "socket.receive.buffer.bytes": _SOCKETS,
    "socket.send.buffer.bytes": _SOCKETS,
    "ssl.ca.certificate.stores": "without `ssl_cafile` the system's authorities are trusted",
    "statistics.interval.ms": _METRICS,
    "stats.cb": _METRICS,
    "sticky.partitioning.linger.ms": "without a key a partition is kept until its batch is full",
    "throttle.cb": "a client that is throttled waits by itself",
    "topic.metadata.propagation.max.ms": "a topic that is not there yet is asked for again, "
    "`max_block_ms` long",
    "topic.metadata.refresh.fast.cnt": _UNUSED,
    "topic.metadata.refresh.fast.interval.ms": "as `retry_backoff_ms`",
    "topic.metadata.refresh.sparse": "only topics in use are asked for",
    # kafka-python and aiokafka
    "api.version": _VERSIONS,
    "bootstrap.timeout.ms": "connecting is tried until a call's own timeout ends",
    "enable.incremental.fetch.sessions": "fetch sessions are used where the broker has them",
    "loop": "awaitable clients use the running loop",
    "metric.group.prefix": _METRICS,
    "metric.reporters": _METRICS,
    "metrics.enabled": _METRICS,
    "metrics.num.samples": _METRICS,
    "metrics.sample.window.ms": _METRICS,
    "rebalance.timeout.ms": "it is `max_poll_interval_ms`",
    "receive.buffer.bytes": _SOCKETS,
    "sasl.kerberos.domain.name": _KERBEROS,
    "sasl.kerberos.name": _KERBEROS,
    "selector": "the event loop's own",
    "send.buffer.bytes": _SOCKETS,
    "socket.options": _SOCKETS,
    # Java
    "auto.include.jmx.reporter": _METRICS,
    "metrics.recording.level": _METRICS,
    "metadata.max.idle.ms": "topics that are no longer used are not asked for",
    "partitioner.adaptive.partitioning.enable": "without a key every partition with a leader gets "
    "as many bytes",
    "partitioner.availability.timeout.ms": "partitions without a leader are passed over",
    "socket.connection.setup.timeout.max.ms": "`socket_connection_setup_timeout_ms` is for all",
}

_CONTEXT: Final = "make an ssl.SSLContext that does it, and give it as ssl_context"
_TO_FILE: Final = "write it to a PEM file and name that in "
_CALLBACK: Final = "give a callable as sasl_oauthbearer_token that returns the token"

UNLESS: Final[dict[str, OneWay]] = {
    # librdkafka
    "delivery.report.only.error": OneWay(
        ("false",), "each record has its future", "the future of send() tells of both"
    ),
    "enable.auto.offset.store": OneWay(
        ("true",),
        "what `poll` has returned counts as read",
        "say enable_auto_commit=False and commit_sync(offsets) what is done, or use process()",
    ),
    "enable.gapless.guarantee": OneWay(
        ("false",), "it is off", "records of a key may have a gap after a failed one; see errors"
    ),
    "enable.partition.eof": OneWay(
        ("false",), "it is off", "compare position() with end_offsets(), or see lag()"
    ),
    "enable.sasl.oauthbearer.unsecure.jwt": OneWay(("false",), "it is off", _CALLBACK),
    "enable.ssl.certificate.verification": OneWay(
        ("true",), "certificates are always verified", f"not verified: {_CONTEXT}"
    ),
    "offset.store.method": OneWay(
        ("broker",), "offsets are with the broker", "store them yourself and seek()"
    ),
    "plugin.library.paths": OneWay(("",), "none are loaded", "there is no place for libraries"),
    "queuing.strategy": OneWay(("fifo",), "order is kept", "records are sent in their order"),
    "sasl.login.callback.handler.class": OneWay(
        ("*oauthbearerlogincallbackhandler",), _SOURCE, _CALLBACK
    ),
    "sasl.oauthbearer.grant.type": OneWay(("client_credentials",), _SOURCE, _CALLBACK),
    "sasl.oauthbearer.metadata.authentication.type": OneWay(("none",), _SOURCE, _CALLBACK),
    "sasl.oauthbearer.method": OneWay(("default", "oidc"), _SOURCE, _CALLBACK),
    "ssl.cipher.suites": OneWay(("",), "the system's", _CONTEXT),
    "ssl.crl.location": OneWay(("",), "none is given", _CONTEXT),
    "ssl.curves.list": OneWay(("",), "the system's", _CONTEXT),
    "ssl.engine.id": OneWay(("", "dynamic"), "none is used", _CONTEXT),
    "ssl.engine.location": OneWay(("",), "none is used", _CONTEXT),
    "ssl.providers": OneWay(("",), "the system's", _CONTEXT),
    "ssl.sigalgs.list": OneWay(("",), "the system's", _CONTEXT),
    "topic.blacklist": OneWay(("",), "none are left out", "subscribe() to a pattern without them"),
    # kafka-python and aiokafka
    "consumer.timeout.ms": OneWay(
        ("inf",), "iterating never ends by itself", "here it is the timeout of poll()"
    ),
    "proxy.url": OneWay(("",), "none is given", "proxies are not supported; tunnel the port"),
    "socks5.proxy": OneWay(("",), "none is given", "proxies are not supported; tunnel the port"),
    "ssl.ciphers": OneWay(("",), "the system's", _CONTEXT),
    "ssl.crlfile": OneWay(("",), "none is given", _CONTEXT),
    # Java
    "ssl.keystore.type": OneWay(("pem",), "it is PEM", "convert the store to a PEM file"),
    "ssl.truststore.type": OneWay(("pem",), "it is PEM", "convert the store to a PEM file"),
}

REFUSED: Final[dict[str, str]] = {
    # librdkafka
    "default.topic.conf": "write its settings beside the others",
    "default.topic.config": "write its settings beside the others",
    "dr.cb": "give send(on_delivery=...), or use the future it returns",
    "dr.msg.cb": "give send(on_delivery=...), or use the future it returns",
    "https.ca.pem": f"{_TO_FILE}sasl_oauthbearer_cafile",
    "oauthbearer.token.refresh.cb": _CALLBACK,
    "offset.commit.cb": "give commit_async(callback), or an interceptor with on_commit()",
    "on.commit": "give commit_async(callback), or an interceptor with on_commit()",
    "on.delivery": "give send(on_delivery=...), or use the future it returns",
    "partitioner.cb": "here it is partitioner, a callable",
    "rebalance.cb": "give subscribe(listener=...)",
    **{
        f"sasl.oauthbearer.assertion.{part}": _CALLBACK
        for part in (
            "algorithm",
            "claim.aud",
            "claim.exp.seconds",
            "claim.iss",
            "claim.jti.include",
            "claim.nbf.seconds",
            "claim.sub",
            "file",
            "jwt.template.file",
            "private.key.file",
            "private.key.passphrase",
            "private.key.pem",
        )
    },
    "ssl.ca": f"{_TO_FILE}ssl_cafile",
    "ssl.ca.pem": f"{_TO_FILE}ssl_cafile",
    "ssl.certificate": f"{_TO_FILE}ssl_certfile",
    "ssl.certificate.pem": f"{_TO_FILE}ssl_certfile",
    "ssl.certificate.verify.cb": _CONTEXT,
    "ssl.engine.callback.data": _CONTEXT,
    "ssl.key": f"{_TO_FILE}ssl_keyfile",
    "ssl.key.pem": f"{_TO_FILE}ssl_keyfile",
    # kafka-python and aiokafka
    "default.offset.commit.callback": "give commit_async(callback), or an interceptor",
    "kafka.client": "a client's parts cannot be replaced",
    "topics": "not a setting: call subscribe(topics)",
}

# librdkafka states these although nobody asked for them; then they ask for nothing.
ASSERTION_DEFAULTS: Final[Mapping[str, str]] = {
    "sasl.oauthbearer.assertion.algorithm": "rs256",
    "sasl.oauthbearer.assertion.claim.exp.seconds": "300",
    "sasl.oauthbearer.assertion.claim.jti.include": "false",
    "sasl.oauthbearer.assertion.claim.nbf.seconds": "60",
}


def reason_to_leave_out(name: str, value: Any) -> str | None:
    """Why a foreign setting with this value may be left out; ``None`` if it may not."""
    if name in LEFT_OUT:
        return LEFT_OUT[name]
    text = "" if value is None else str(value).strip().lower()
    if name in UNLESS and any(_fits(text, fine) for fine in (*UNLESS[name].fine, "")):
        return UNLESS[name].why
    if name in REFUSED and (value is None or is_their_own(value)):
        return "that client's own, and its default"
    if name in ASSERTION_DEFAULTS and text == ASSERTION_DEFAULTS[name]:
        return _SOURCE
    return None


def _fits(text: str, fine: str) -> bool:
    return text.endswith(fine[1:]) if fine.startswith("*") else text == fine


def advice(name: str) -> str | None:
    """What to do instead of a foreign setting that is refused; ``None`` if nobody knows it."""
    if name in UNLESS:
        return UNLESS[name].instead
    return REFUSED.get(name)
