"""``shoal consume``: records to standard output, in a group or from partitions."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from string import Formatter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli import completion
from shoal.cli.connecting import ClusterTarget, for_cluster
from shoal.cli.interrupts import interrupts_wake
from shoal.cli.output import json_of, json_text, print_record, printable, progress, text_of, warn
from shoal.client.listeners import RebalanceListener
from shoal.errors import (
    BrokerError,
    CommitFailedError,
    ConfigError,
    ErrorCode,
    RebalanceInProgressError,
)
from shoal.fleet.moments import time_ms as time_ms
from shoal.types import OffsetAndMetadata, Record, TopicPartition

if TYPE_CHECKING:
    from shoal.client.consumer import Consumer

app = typer.Typer(rich_markup_mode=None)

POLL_S = 0.5
WHERE = "Where to begin and where to stop"
SHOWN = "What is shown"
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")
Write = Callable[[Record[Any, Any]], None]


@app.command()
@for_cluster
def consume(
    target: ClusterTarget,
    topics: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC...",
            help="Topics, or one pattern with --pattern.",
            autocompletion=completion.topics,
        ),
    ],
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="Read as a member of this group.",
            autocompletion=completion.groups,
        ),
    ] = None,
    pattern: Annotated[bool, typer.Option("--pattern", help="The topic is a pattern.")] = False,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only these partitions.")
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="earliest, latest, an offset, -N (the last N), a time, or 2h (ago).",
            rich_help_panel=WHERE,
        ),
    ] = "earliest",
    count: Annotated[
        int | None,
        typer.Option(
            "--count", "--max", "-n", min=1, help="Stop after N records.", rich_help_panel=WHERE
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="TIME",
            help="Stop before the first record of this time, or 15m (ago).",
            rich_help_panel=WHERE,
        ),
    ] = None,
    until_end: Annotated[
        bool,
        typer.Option(
            "--until-end",
            help="With --group too: stop at the end as it is now.",
            rich_help_panel=WHERE,
        ),
    ] = False,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="Do not stop at the end: wait for new records.",
            rich_help_panel=WHERE,
        ),
    ] = False,
    output: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="value, key, full, json, raw, or a template such as '{offset}: {value}'.",
            rich_help_panel=SHOWN,
        ),
    ] = "value",
    commit: Annotated[bool, typer.Option(help="Commit in the group what was printed.")] = True,
    isolation: Annotated[
        str,
        typer.Option(
            metavar="LEVEL",
            help="read_uncommitted, or read_committed: no open or aborted records.",
        ),
    ] = "read_uncommitted",
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="The same as --format json: `shoal produce --json` reads it.",
            rich_help_panel=SHOWN,
        ),
    ] = False,
) -> None:
    """Read records.

    Without a group: from --from to the end of each partition as it is now, then stop (--follow goes
    on). With a group: what the group has not read yet, until Ctrl-C, --count, --until or
    --until-end.

    In JSON a key, value or header that is not UTF-8 is {"base64": "..."}; text is a string.
    """
    write = _writer("json" if as_json else output)
    if group is not None and partition:
        raise ConfigError("--partition reads without a group; leave out --group or --partition")
    if pattern and group is None:
        raise ConfigError("--pattern subscribes; give the group to read as with --group")
    if follow and (until is not None or until_end):
        raise ConfigError("--follow never ends; leave it out, or --until and --until-end")
    end_ms = None if until is None else _past_ms(until)
    if isolation not in ISOLATION_LEVELS:
        raise ConfigError(f"--isolation {isolation!r} is not one of {', '.join(ISOLATION_LEVELS)}")
    if group is None:
        _read_partitions(
            target,
            topics,
            partition,
            start,
            count,
            write,
            follow=follow,
            end_ms=end_ms,
            isolation=isolation,
        )
    else:
        _read_as_member(
            target,
            topics,
            group,
            start,
            count,
            write,
            pattern=pattern,
            commit=commit,
            isolation=isolation,
            ends=_Ends(end_ms) if until_end or end_ms is not None else None,
        )


def _past_ms(until: str) -> int:
    moment = time_ms(until)
    if moment > time.time() * 1000:
        raise ConfigError(
            f"--until {until} is in the future; read with --follow, and stop with Ctrl-C"
        )
    return moment


class _Ends:
    """Where a member of a group stops: an offset for each partition it is given."""

    def __init__(self, end_ms: int | None) -> None:
        self._end_ms = end_ms
        self._known: dict[TopicPartition, int] = {}

    def look(self, consumer: Consumer) -> None:
        new = [tp for tp in consumer.assignment() if tp not in self._known]
        if new:
            self._known |= end_offsets(consumer, new, self._end_ms)

    def is_before(self, record: Record[Any, Any]) -> bool:
        return record.offset < self._known.get(record.topic_partition, 0)

    def done(self, consumer: Consumer) -> dict[TopicPartition, OffsetAndMetadata]:
        """What may be committed: not what was read past an end."""
        return {
            tp: OffsetAndMetadata(min(consumer.position(tp), self._known[tp]))
            for tp in consumer.assignment()
            if tp in self._known
        }

    def are_reached(self, consumer: Consumer) -> bool:
        mine = consumer.assignment()
        return all(tp in self._known and consumer.position(tp) >= self._known[tp] for tp in mine)


def end_offsets(
    consumer: Consumer, tps: list[TopicPartition], end_ms: int | None
) -> dict[TopicPartition, int]:
    """Where each partition ends now, or at the first record of a time."""
    ends = consumer.end_offsets(tps)
    if end_ms is None:
        return ends
    found = consumer.offsets_for_times(dict.fromkeys(tps, end_ms))
    return {tp: ends[tp] if (one := found[tp]) is None else one.offset for tp in tps}


class _Joined(RebalanceListener):
    """Whether the group has given this member its share, which may be nothing."""

    def __init__(self) -> None:
        self.has_share = False

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:  # noqa: ARG002
        self.has_share = True


def _absent(target: ClusterTarget, topics: list[str]) -> list[str]:
    """Topics that are not there: a consumer would wait for them without a word.

    Also where a cluster that cannot be reached is told after ``--timeout``, as in every command.
    """
    absent = []
    with target.admin() as admin:
        admin.describe_cluster()
        for topic in topics:
            try:
                admin.describe_topics(topic)
            except BrokerError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                absent.append(topic)
    return absent


def _read_as_member(
    target: ClusterTarget,
    topics: list[str],
    group: str,
    start: str,
    count: int | None,
    write: Write,
    *,
    pattern: bool,
    commit: bool,
    isolation: str,
    ends: _Ends | None,
) -> None:
    if start not in ("earliest", "latest"):
        raise ConfigError(
            f"--from {start}: a group resumes where it committed, a new one at earliest or latest; "
            f"move it with: shoal group reset {group} --to {start}"
        )
    wanted = _pattern(topics) if pattern else topics
    for topic in _absent(target, [] if pattern else topics):
        warn(f"shoal: there is no topic {topic!r} yet; waiting for it")
    with (
        target.consumer(
            group_id=group,
            auto_offset_reset=start,
            enable_auto_commit=False,
            isolation_level=isolation,
        ) as consumer,
        interrupts_wake(consumer),
    ):
        joined = _Joined()
        consumer.subscribe(wanted, joined)
        printed = 0
        while count is None or printed < count:
            records = consumer.poll(POLL_S, max_records=None if count is None else count - printed)
            if ends is not None:
                ends.look(consumer)
            shown = [one for one in records if ends is None or ends.is_before(one)]
            for record in shown:
                write(record)
            printed += len(shown)
            sys.stdout.flush()
            if commit and len(records):
                _commit(consumer, None if ends is None else ends.done(consumer))
            if ends is not None and joined.has_share and ends.are_reached(consumer):
                break


def _commit(
    consumer: Consumer, offsets: dict[TopicPartition, OffsetAndMetadata] | None = None
) -> None:
    """Commit, unless the partitions are somebody else's by now: whoever has them prints again."""
    try:
        consumer.commit_sync(offsets)
    except (CommitFailedError, RebalanceInProgressError) as error:
        warn(f"shoal: not committed, so it may be printed again: {error}")


def _read_partitions(
    target: ClusterTarget,
    topics: list[str],
    partitions: list[int] | None,
    start: str,
    count: int | None,
    write: Write,
    *,
    follow: bool,
    end_ms: int | None,
    isolation: str,
) -> None:
    if absent := _absent(target, topics):
        raise ConfigError(f"there is no topic {absent[0]!r}; `shoal topic list` shows them")
    with (
        target.consumer(
            auto_offset_reset="earliest", enable_auto_commit=False, isolation_level=isolation
        ) as consumer,
        interrupts_wake(consumer),
    ):
        tps = [tp for topic in topics for tp in _chosen(consumer, topic, partitions)]
        consumer.assign(tps)
        _go_to(consumer, tps, start)
        ends = end_offsets(consumer, tps, end_ms)
        printed = 0
        todo = sum(max(0, ends[tp] - consumer.position(tp)) for tp in tps)
        is_shown = not follow and not sys.stdout.isatty()
        with progress("reading", count or todo, unit="records", is_shown=is_shown) as advance:
            while count is None or printed < count:
                if not follow and all(consumer.position(tp) >= ends[tp] for tp in tps):
                    break
                wanted = None if count is None else count - printed
                before = printed
                for record in consumer.poll(POLL_S, max_records=wanted):
                    if follow or record.offset < ends[record.topic_partition]:
                        write(record)
                        printed += 1
                advance(printed - before)
                sys.stdout.flush()


def _chosen(consumer: Consumer, topic: str, partitions: list[int] | None) -> list[TopicPartition]:
    known = [one.partition for one in consumer.partitions_for(topic)]
    wanted = known if partitions is None else partitions
    missing = sorted(set(wanted) - set(known))
    if missing:
        raise ConfigError(f"topic {topic!r} has partitions 0 to {max(known)}, not {missing[0]}")
    return [TopicPartition(topic, number) for number in wanted]


def _go_to(consumer: Consumer, tps: list[TopicPartition], start: str) -> None:
    if start == "earliest":
        consumer.seek_to_beginning(*tps)
    elif start == "latest":
        consumer.seek_to_end(*tps)
    elif re.fullmatch(r"-?\d+", start):
        number = int(start)
        first, end = consumer.beginning_offsets(tps), consumer.end_offsets(tps)
        for tp in tps:
            offset = end[tp] + number if start.startswith("-") else number
            consumer.seek(tp, min(max(offset, first[tp]), end[tp]))
    else:
        found = consumer.offsets_for_times(dict.fromkeys(tps, time_ms(start, _OTHERS)))
        ends = consumer.end_offsets(tps)
        for tp in tps:
            one = found[tp]
            consumer.seek(tp, ends[tp] if one is None else one.offset)


_OTHERS = "earliest, latest, an offset, -N, "
"""What else may stand where a position is asked for."""


def _pattern(topics: list[str]) -> re.Pattern[str]:
    if len(topics) != 1:
        raise ConfigError("--pattern takes one pattern")
    try:
        return re.compile(topics[0])
    except re.error as error:
        raise ConfigError(f"{topics[0]!r} is not a valid pattern: {error}") from None


def _writer(output: str) -> Write:
    if output == "json":
        return lambda record: print_record(json_text(_as_json(record)))
    if output == "raw":
        return _write_raw
    templates = {
        "value": "{value}",
        "key": "{key}\t{value}",
        "full": "{topic}-{partition}@{offset} {time} {key}\t{value}",
    }
    template = templates.get(output, output)
    if "{" not in template:
        raise ConfigError(
            f"{output!r} is not a valid format: use value, key, full, json, raw, or a template"
        )
    nothing = _fields(Record("", 0, 0, 0, 0, None, None))  # type: ignore[arg-type]  # to try the template
    try:
        for _, name, _, _ in Formatter().parse(template):
            if name is not None and name not in nothing:
                raise KeyError(name)  # also value[0] and value.x, which not every value has
        template.format(**nothing)
    except (KeyError, IndexError, ValueError, MemoryError, OverflowError) as error:
        raise ConfigError(
            f"the template {output!r} is wrong ({error}); fields: topic partition offset time "
            "key value headers"
        ) from None
    return lambda record: print_record(template.format(**_fields(record)))


def _write_raw(record: Record[Any, Any]) -> None:
    sys.stdout.buffer.write((record.value or b"") + b"\n")


def _fields(record: Record[Any, Any]) -> dict[str, object]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "time": moment(record.timestamp_ms),
        "key": text_of(record.key),
        "value": text_of(record.value),
        "headers": " ".join(
            f"{printable(name)}={text_of(value)}" for name, value in record.headers
        ),
    }


def moment(timestamp_ms: int) -> str:
    """A time for people, in UTC."""
    try:
        found = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms}ms"  # any number may stand in a record
    return found.isoformat(timespec="milliseconds")


def _as_json(record: Record[Any, Any]) -> dict[str, object]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": json_of(record.key),
        "value": json_of(record.value),
        "headers": [[name, json_of(value)] for name, value in record.headers],
    }
