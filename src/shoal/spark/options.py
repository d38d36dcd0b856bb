"""Options of ``format("shoal")``: Spark's own Kafka option names, and ours.

Rule: every option is known here by name or it is an error with the nearest name. Spark hands
options over with lower-cased names, so lookups are lower-case and messages use the written form.

An option that holds a secret must have a name that Spark masks in plans and user interfaces
(``secret``, ``password``, ``token``, ``access key``): the JAAS line of Java clients does not, and
is refused with the names to use instead.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar

from shoal.errors import ConfigError
from shoal.records.batch import LIMIT_BYTES
from shoal.spark.java_settings import from_java
from shoal.types import TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
"""In offset JSON these numbers mean the ends of the log, as in Spark's own source."""
_ISOLATION: Final = "isolation.level"

Mode = Literal["batch", "stream"]
ValueFormat = Literal["binary", "utf8", "json"]
ParseMode = Literal["permissive", "failfast"]
T = TypeVar("T")

_SOURCE_NAMES: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxTasks",
    "maxBatchBytes",
    "failOnDataLoss",
    "includeHeaders",
    "groupId",
    "allowLiveGroup",
    "logDir",
    "valueFormat",
    "valueSchema",
    "mode",
    "timeZone",
    "deadLetterTopic",
    "keyEquals",
    "valueContains",
    "headerEquals",
    # Known to Spark's own source and without meaning here; accepted so that a job moves over
    # by its format name alone.
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
_SINK_NAMES: Final = ("topic", "includeHeaders", "checkpointLocation", "idempotent", "exactlyOnce")
# A table or view is read and written with one set of options: each side leaves the other's alone.
_NAMES: Final = (*_SOURCE_NAMES, *(name for name in _SINK_NAMES if name not in _SOURCE_NAMES))
# Set by Spark itself: declarative pipelines hand the name of a query to its sink, tables theirs.
_SPARKS_OWN: Final = (
    "path",
    "checkpointlocation",
    "queryname",
    "provider",
    "owner",
    "location",
    "comment",
    "external",
    "collation",
    "is_managed_location",
)


@dataclass(frozen=True, slots=True)
class Bound:
    """Where a range starts or ends.

    ``kind`` is "earliest", "latest", "group", "offsets" (``offsets`` per partition, EARLIEST
    and LATEST allowed) or "timestamp" (``timestamp_ms`` for all, or ``offsets`` holding
    timestamps per partition).
    """

    kind: Literal["earliest", "latest", "group", "offsets", "timestamp"]
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What to read, from where to where, in which portions."""

    properties: Mapping[str, str]
    topics: tuple[str, ...] | None
    pattern: str | None
    assign: tuple[TopicPartition, ...] | None
    starting: Bound
    ending: Bound
    missing_timestamp: Literal["error", "latest"]
    rows_max: int | None
    rows_min: int | None
    trigger_delay_ms: int
    bytes_max: int | None
    tasks_min: int
    tasks_max: int | None
    task_rows_max: int | None
    batch_bytes_max: int
    fail_on_data_loss: bool
    include_headers: bool
    group_id: str | None
    allow_live_group: bool
    log_dir: str | None
    value_format: ValueFormat
    value_schema: str | None
    mode: ParseMode
    time_zone: str | None
    dead_letter_topic: str | None
    key_equals: str | None
    value_contains: str | None
    header_equals: tuple[str, str] | None
    is_written_to: bool

    @property
    def committed_only(self) -> bool:
        """Whether records of aborted and of open transactions are left out."""
        return self.properties.get(_ISOLATION) == "read_committed"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where to write."""

    properties: Mapping[str, str]
    topic: str | None
    include_headers: bool
    idempotent: bool
    exactly_once: bool


class _Options:
    """One user's options: typed access, and errors that name the option as it is written."""

    def __init__(self, options: Mapping[str, str], names: tuple[str, ...]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        self._written = {name.lower(): name for name in names}
        for name in self._values:
            self._check_known(name)

    def _check_known(self, name: str) -> None:
        if name in self._written or name in _SPARKS_OWN:
            return
        if name.startswith("kafka."):
            if "jaas" in name:
                raise ConfigError(
                    f"option {name} would show its password in Spark's plans; use "
                    "kafka.sasl.mechanism, kafka.sasl.username and kafka.sasl.password instead "
                    "(kafka.sasl.oauthbearer.client.id and .client.secret for OAUTHBEARER)"
                )
            return
        near = difflib.get_close_matches(name, [*self._written, "kafka.bootstrap.servers"], n=1)
        known = self._written.get(near[0], near[0]) if near else ""
        advice = f"did you mean {known}?" if known else "see the list of options in the docs"
        raise ConfigError(f"unknown option {name}; {advice}")

    def written(self, name: str) -> str:
        return self._written.get(name.lower(), name)

    def text(self, name: str) -> str | None:
        value = self._values.get(name.lower())
        if value is not None and not value.strip():
            raise ConfigError(f"option {self.written(name)} is empty")
        return value

    def number(self, name: str, *, least: int = 1) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            raise ConfigError(
                f"option {self.written(name)} must be a whole number, not {value!r}"
            ) from None
        if number < least:
            raise ConfigError(f"option {self.written(name)} must be at least {least}, not {number}")
        return number

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise ConfigError(f"option {self.written(name)} must be true or false, not {value!r}")
        return value.lower() == "true"

    def choice(self, name: str, choices: tuple[T, ...], default: T) -> T:
        value = self.text(name)
        if value is None:
            return default
        for choice in choices:
            if value.lower() == choice:
                return choice
        allowed = ", ".join(map(str, choices))
        raise ConfigError(f"option {self.written(name)} must be one of {allowed}, not {value!r}")

    def exclusive(self, *names: str) -> str | None:
        """The one of these options that is given; two of them contradict each other."""
        given = [name for name in names if name.lower() in self._values]
        if len(given) > 1:
            raise ConfigError(f"options {' and '.join(given)} contradict each other; give one")
        return given[0] if given else None

    def first(self, *names: str) -> str | None:
        """The first of these options that is given."""
        return next((name for name in names if name.lower() in self._values), None)

    def properties(self) -> dict[str, str]:
        return from_java(
            {
                name.removeprefix("kafka."): value
                for name, value in self._values.items()
                if name.startswith("kafka.")
            }
        )


def parse_source(options: Mapping[str, str], mode: Mode) -> SourceOptions:
    """The options of a read, checked.

    Raises:
        ConfigError: an option is unknown, wrong, missing or contradicts another; it is named.
    """
    given = _Options(options, _NAMES)
    log_dir = given.text("logDir")
    properties = given.properties()
    if log_dir is None and "bootstrap.servers" not in properties:
        raise ConfigError(
            "option kafka.bootstrap.servers is missing (or logDir, to read files)"
            f"{_of_tables(options)}"
        )
    if log_dir is not None:
        _check_files(properties)
    topics, pattern, assign = _what(given)
    _check_mode(given, mode, log_dir)
    group_id = given.text("groupId")
    starting = _bound(given, "starting", "latest" if mode == "stream" else "earliest", mode)
    if starting.kind == "group" and group_id is None:
        raise ConfigError("option startingOffsets=group needs option groupId")
    value_format: ValueFormat = given.choice("valueFormat", ("binary", "utf8", "json"), "binary")
    value_schema = given.text("valueSchema")
    if (value_format == "json") != (value_schema is not None):
        raise ConfigError("options valueFormat=json and valueSchema go together")
    dead_letter_topic = given.text("deadLetterTopic")
    if dead_letter_topic is not None and value_format == "binary":
        raise ConfigError("option deadLetterTopic needs option valueFormat=json or utf8")
    for name in ("mode", "timeZone"):
        if given.text(name) is not None and value_format != "json":
            raise ConfigError(f"option {name} needs option valueFormat=json")
    given.exclusive("mode", "deadLetterTopic")
    return SourceOptions(
        properties=properties,
        topics=topics,
        pattern=pattern,
        assign=assign,
        starting=starting,
        ending=_bound(given, "ending", "latest", mode),
        missing_timestamp=given.choice(
            "startingOffsetsByTimestampStrategy", ("error", "latest"), "error"
        ),
        rows_max=given.number("maxOffsetsPerTrigger"),
        rows_min=given.number("minOffsetsPerTrigger"),
        trigger_delay_ms=_duration_ms(given, "maxTriggerDelay", "15m"),
        bytes_max=given.number("maxBytesPerTrigger"),
        tasks_min=given.number("minPartitions") or 1,
        tasks_max=given.number("maxTasks"),
        task_rows_max=given.number("maxRecordsPerPartition"),
        batch_bytes_max=given.number("maxBatchBytes") or LIMIT_BYTES,
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        include_headers=given.flag("includeHeaders", default=False),
        group_id=group_id,
        allow_live_group=given.flag("allowLiveGroup", default=False),
        log_dir=log_dir,
        value_format=value_format,
        value_schema=value_schema,
        mode=given.choice("mode", ("permissive", "failfast"), "failfast"),
        time_zone=given.text("timeZone"),
        dead_letter_topic=dead_letter_topic,
        key_equals=given.text("keyEquals"),
        value_contains=given.text("valueContains"),
        header_equals=_header(given),
        is_written_to=given.text("topic") is not None,
    )


def _of_tables(options: Mapping[str, str]) -> str:
    if options:
        return ""
    return (
        ". A table whose columns CREATE TABLE lists, and df.writeTo or insertInto, tell a source "
        "no options in Spark 4.3: leave the columns out of CREATE TABLE and use SQL, or give them "
        "in the query: INSERT INTO t WITH ('kafka.bootstrap.servers' = '…', 'topic' = '…') …"
    )


def parse_sink(options: Mapping[str, str]) -> SinkOptions:
    """The options of a write, checked."""
    given = _Options(options, _NAMES)
    properties = given.properties()
    if "bootstrap.servers" not in properties:
        raise ConfigError(f"option kafka.bootstrap.servers is missing{_of_tables(options)}")
    exactly_once = given.flag("exactlyOnce", default=False)
    if exactly_once and "transactional.id" in properties:
        raise ConfigError(
            "options exactlyOnce and kafka.transactional.id contradict each other: each task has "
            "an id of its own, which begins with shoal-sink."
        )
    return SinkOptions(
        properties=properties,
        topic=given.text("topic"),
        include_headers=given.flag("includeHeaders", default=False),
        idempotent=given.flag("idempotent", default=True),
        exactly_once=exactly_once,
    )


def _header(given: _Options) -> tuple[str, str] | None:
    value = given.text("headerEquals")
    if value is None:
        return None
    name, is_pair, wanted = value.partition("=")
    if not is_pair:
        raise ConfigError(f"option headerEquals must look like name=value, not {value!r}")
    return name, wanted


def _what(
    given: _Options,
) -> tuple[tuple[str, ...] | None, str | None, tuple[TopicPartition, ...] | None]:
    which = given.exclusive("subscribe", "subscribePattern", "assign")
    if which is None:
        raise ConfigError("one of the options subscribe, subscribePattern and assign is needed")
    value = given.text(which)
    assert value is not None
    if which == "subscribe":
        topics = tuple(sorted({topic.strip() for topic in value.split(",") if topic.strip()}))
        if not topics:
            raise ConfigError(f"option subscribe names no topic: {value!r}")
        return topics, None, None
    if which == "subscribePattern":
        try:
            re.compile(value)
        except re.error as error:
            raise ConfigError(f"option subscribePattern is not a pattern: {error}") from None
        return None, value, None
    parsed = _json(given, which)
    partitions: set[TopicPartition] = set()
    for topic, numbers in parsed.items():
        if not isinstance(numbers, list) or not all(isinstance(n, int) and n >= 0 for n in numbers):
            raise ConfigError(f'option assign must look like {{"topic":[0,1]}}, not {value!r}')
        partitions |= {TopicPartition(topic, number) for number in numbers}
    return None, None, tuple(sorted(partitions))


def _check_files(properties: Mapping[str, str]) -> None:
    """Files need no connection; whose records are shown can be chosen all the same."""
    if properties.keys() - {_ISOLATION}:
        raise ConfigError(
            "options logDir and kafka.* contradict each other (but for kafka.isolation.level); "
            "give one"
        )
    level = properties.get(_ISOLATION, "read_uncommitted")
    if level not in ("read_uncommitted", "read_committed"):
        raise ConfigError(
            f"option kafka.isolation.level={level} is neither read_committed nor read_uncommitted"
        )


def _check_mode(given: _Options, mode: Mode, log_dir: str | None) -> None:
    only_batch = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
    only_stream = (
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "maxBytesPerTrigger",
    )
    for name in only_batch if mode == "stream" else only_stream:
        if given.text(name) is not None:
            other = "a batch read" if mode == "stream" else "a stream"
            raise ConfigError(f"option {name} is for {other} only")
    if log_dir is not None and given.text("groupId") is not None:
        raise ConfigError("options logDir and groupId contradict each other: files have no groups")
    given.exclusive("maxOffsetsPerTrigger", "maxBytesPerTrigger")
    rows_min, rows_max = given.number("minOffsetsPerTrigger"), given.number("maxOffsetsPerTrigger")
    if rows_min is not None and rows_max is not None and rows_min > rows_max:
        raise ConfigError("option minOffsetsPerTrigger is larger than maxOffsetsPerTrigger")


def _bound(given: _Options, side: str, default: Literal["earliest", "latest"], mode: Mode) -> Bound:
    plain, timestamp, by_timestamp = (
        f"{side}Offsets",
        f"{side}Timestamp",
        f"{side}OffsetsByTimestamp",
    )
    # The first of them that is given counts, as in Spark's own source.
    which = given.first(timestamp, by_timestamp, plain)
    if which is None:
        return Bound(default)
    if which == timestamp:
        return Bound("timestamp", timestamp_ms=given.number(timestamp, least=0))
    if which == by_timestamp:
        return Bound("timestamp", offsets=_per_partition(given, which, least=0))
    value = given.text(plain)
    assert value is not None
    if value.lower() in ("earliest", "latest", "group"):
        kind = value.lower()
        if side == "ending" and kind != "latest":
            raise ConfigError(f"option endingOffsets cannot be {kind}")
        if side == "starting" and kind == "latest" and mode == "batch":
            raise ConfigError("option startingOffsets cannot be latest in a batch read")
        return Bound(kind)  # type: ignore[arg-type]  # narrowed by the check above
    offsets = _per_partition(given, plain, least=EARLIEST)
    refused = {"ending": EARLIEST, "starting": LATEST if mode == "batch" else None}[side]
    for tp, offset in offsets.items():
        if offset == refused:
            name = "earliest (-2)" if refused == EARLIEST else "latest (-1)"
            raise ConfigError(f"option {plain} cannot be {name} for {tp}")
    return Bound("offsets", offsets=offsets)


def _per_partition(given: _Options, name: str, *, least: int) -> dict[TopicPartition, int]:
    example = '{"topic":{"0":23,"1":-2}}'
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in _json(given, name).items():
        if not isinstance(partitions, dict):
            raise ConfigError(f"option {name} must look like {example}")
        for partition, offset in partitions.items():
            if not partition.isdigit() or not isinstance(offset, int) or isinstance(offset, bool):
                raise ConfigError(f"option {name} must look like {example}, at {topic}")
            if offset < least:
                raise ConfigError(f"option {name} has {offset} for {topic}-{partition}")
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def _json(given: _Options, name: str) -> dict[str, object]:
    value = given.text(name)
    assert value is not None
    try:
        parsed = json.loads(value)
    except json.JSONDecodeError as error:
        raise ConfigError(f"option {name} is not JSON: {error}") from None
    if not isinstance(parsed, dict) or not parsed:
        raise ConfigError(f"option {name} must be a JSON object, not {value!r}")
    return parsed


_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def _duration_ms(given: _Options, name: str, default: str) -> int:
    value = given.text(name) or default
    match = re.fullmatch(r"\s*(\d+)\s*(ms|s|min|m|h|d)\s*", value)
    if match is None:
        raise ConfigError(f"option {name} must be a duration such as 30s or 15m, not {value!r}")
    return int(match[1]) * _UNITS_MS[match[2]]
