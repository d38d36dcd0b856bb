"""``shoal consume``: records to standard output, in a group or from partitions."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from string import Formatter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli.connecting import Target, for_cluster
from shoal.cli.output import progress, text_of
from shoal.errors import (
    BrokerError,
    CommitFailedError,
    ConfigError,
    ErrorCode,
    RebalanceInProgressError,
)
from shoal.types import Record, TopicPartition

if TYPE_CHECKING:
    from shoal.client.consumer import Consumer

app = typer.Typer(rich_markup_mode=None)

POLL_S = 0.5
Write = Callable[[Record[Any, Any]], None]


@app.command()
@for_cluster
def consume(
    target: Target,
    topics: Annotated[list[str], typer.Argument(help="Topics, or one pattern with --pattern.")],
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Read as a member of this group.")
    ] = None,
    pattern: Annotated[bool, typer.Option("--pattern", help="The topic is a pattern.")] = False,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only these partitions.")
    ] = None,
    start: Annotated[
        str,
        typer.Option("--from", help="earliest, latest, an offset, -N (the last N), or a time."),
    ] = "earliest",
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Then stop.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for new records.")] = False,
    output: Annotated[
        str,
        typer.Option(
            "--format",
            help="value, key, full, json, raw, or a template such as '{offset}: {value}'.",
        ),
    ] = "value",
    commit: Annotated[bool, typer.Option(help="Commit in the group what was printed.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Read records.

    Without a group: from --from to the end of each partition as it is now, then stop (--follow goes
    on). With a group: what the group has not seen yet, until interrupted or --count.
    """
    write = _writer("json" if as_json else output)
    if group is not None and partition:
        raise ConfigError("--partition reads without a group; leave out --group or --partition")
    if pattern and group is None:
        raise ConfigError("--pattern subscribes; give the group to read as with --group")
    if group is None:
        _read_partitions(target, topics, partition, start, count, write, follow=follow)
    else:
        _read_as_member(target, topics, group, start, count, write, pattern=pattern, commit=commit)


def _absent(target: Target, topics: list[str]) -> list[str]:
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
    target: Target,
    topics: list[str],
    group: str,
    start: str,
    count: int | None,
    write: Write,
    *,
    pattern: bool,
    commit: bool,
) -> None:
    if start not in ("earliest", "latest"):
        raise ConfigError(
            f"--from {start}: a group goes on where it is, new ones from earliest or latest; move "
            f"it with: shoal group reset {group}"
        )
    wanted = _pattern(topics) if pattern else topics
    for topic in _absent(target, [] if pattern else topics):
        print(f"shoal: there is no topic {topic!r} yet; waiting for it", file=sys.stderr)
    with target.consumer(
        group_id=group, auto_offset_reset=start, enable_auto_commit=False
    ) as consumer:
        consumer.subscribe(wanted)
        printed = 0
        while count is None or printed < count:
            records = consumer.poll(POLL_S, max_records=None if count is None else count - printed)
            for record in records:
                write(record)
            printed += len(records)
            sys.stdout.flush()
            if commit and len(records):
                _commit(consumer)


def _commit(consumer: Consumer) -> None:
    """Commit, unless the partitions are somebody else's by now: whoever has them prints again."""
    try:
        consumer.commit_sync()
    except (CommitFailedError, RebalanceInProgressError) as error:
        print(f"shoal: not committed, so it may be printed again: {error}", file=sys.stderr)


def _read_partitions(
    target: Target,
    topics: list[str],
    partitions: list[int] | None,
    start: str,
    count: int | None,
    write: Write,
    *,
    follow: bool,
) -> None:
    if absent := _absent(target, topics):
        raise ConfigError(f"there is no topic {absent[0]!r}; `shoal topic list` shows them")
    with target.consumer(auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        tps = [tp for topic in topics for tp in _chosen(consumer, topic, partitions)]
        consumer.assign(tps)
        _go_to(consumer, tps, start)
        ends = consumer.end_offsets(tps)
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


_AGO = re.compile(r"(\d+)(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


_OTHERS = "earliest, latest, an offset, -N, "
"""What else may stand where a position is asked for."""


def time_ms(text: str, others: str = "") -> int:
    """A moment as milliseconds: ``2026-01-31T12:00``, or ``15m`` for fifteen minutes ago.

    Args:
        others: what the caller would have taken instead of a time, for the error.
    """
    if match := _AGO.fullmatch(text):
        # No record is older than 1970: before that is the beginning.
        return max(0, int(time.time() * 1000) - int(match[1]) * _SECONDS[match[2]] * 1000)
    try:
        moment = datetime.fromisoformat(text)
        if moment.year < 1970:
            return 0
        moment = moment if moment.tzinfo else moment.astimezone()
        return max(0, int(moment.timestamp() * 1000))
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{text!r} is no {'position' if others else 'time'}: give {others}a time such as "
            "2026-01-31T12:00, or 15m for fifteen minutes ago"
        ) from None


def _pattern(topics: list[str]) -> re.Pattern[str]:
    if len(topics) != 1:
        raise ConfigError("--pattern takes one pattern")
    try:
        return re.compile(topics[0])
    except re.error as error:
        raise ConfigError(f"{topics[0]!r} is no pattern: {error}") from None


def _writer(output: str) -> Write:
    if output == "json":
        return lambda record: print(json.dumps(_as_json(record), ensure_ascii=False))
    if output == "raw":
        return _write_raw
    templates = {
        "value": "{value}",
        "key": "{key}\t{value}",
        "full": "{topic}-{partition}@{offset} {time} {key}\t{value}",
    }
    template = templates.get(output, output)
    if "{" not in template:
        raise ConfigError(f"{output!r} is no format: value, key, full, json, raw, or a template")
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
    return lambda record: print(template.format(**_fields(record)))


def _write_raw(record: Record[Any, Any]) -> None:
    sys.stdout.buffer.write((record.value or b"") + b"\n")


def _fields(record: Record[Any, Any]) -> dict[str, object]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "time": _moment(record.timestamp_ms),
        "key": text_of(record.key),
        "value": text_of(record.value),
        "headers": " ".join(f"{name}={text_of(value)}" for name, value in record.headers),
    }


def _moment(timestamp_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms}ms"  # any number may stand in a record
    return moment.isoformat(timespec="milliseconds")


def _as_json(record: Record[Any, Any]) -> dict[str, object]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _json_text(record.key),
        "value": _json_text(record.value),
        "headers": [[name, _json_text(value)] for name, value in record.headers],
    }


def _json_text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")
