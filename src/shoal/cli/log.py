"""``shoal log``: look into log directories, ours or Apache Kafka's, and mend ours.

``dump`` and ``verify`` change nothing and work on directories in use. ``repair`` prints its plan
first, needs a directory that nobody uses, and keeps every byte it takes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, Any, Final

import typer

from shoal.cli.consume import moment
from shoal.cli.offsets_story import tell_record
from shoal.cli.output import (
    confirm_or_stop,
    json_of,
    print_json,
    print_table,
    progress,
    tell,
    text_of,
    warn,
)
from shoal.errors import ConfigError, ShoalError, StorageError
from shoal.log import dumping, inspection, repair
from shoal.log.directory import OFFSETS_TOPIC
from shoal.log.disk import OsDisk
from shoal.log.inspection import InspectionTarget, Status
from shoal.wire.offsets_topic import UnknownKey, decode_key, decode_value

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Dump, verify and repair log directories.",
)

EXIT_CODES: Final = {
    Status.OK: 0,
    Status.TORN: 3,
    Status.CORRUPT: 4,
    Status.UNSUPPORTED: 5,
}
_WORST_LAST: Final = [Status.OK, Status.TORN, Status.UNSUPPORTED, Status.CORRUPT]
_ROWS_MAX: Final = 1000

Path = Annotated[
    str, typer.Argument(metavar="PATH", help="A data directory, a partition's, or one file.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON lines instead of a table.")]


@app.command("dump")
def dump(
    path: Path,
    records: Annotated[bool, typer.Option("--records", "-r", help="Records, not batches.")] = False,
    start: Annotated[
        int,
        typer.Option("--from", metavar="OFFSET", min=0, help="The first offset to show."),
    ] = 0,
    end: Annotated[
        int | None,
        typer.Option("--to", metavar="OFFSET", help="The offset to stop before."),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Stop after this many rows.", min=1)] = None,
    skip_corrupt: Annotated[
        bool, typer.Option("--skip-corrupt", help="Skip over bytes that are not a valid batch.")
    ] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Decode as records of __consumer_offsets.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show batches, records, index entries, producers, committed offsets.

    Records of __consumer_offsets are decoded by the name of their directory, or with --offsets.
    A table ends after 1,000 rows unless --limit says otherwise.
    """
    if end is not None and end <= start:
        raise ConfigError(f"--to {end} must be greater than --from {start}")
    target = inspection.look_at(path)
    if (
        target.file is not None
        and target.file.endswith(".log")
        and not target.file[:-4].isdecimal()
    ):
        raise _foreign(path)
    choice = dumping.Choice(start, end, skip_corrupt)
    rows: Iterable[dict[str, Any]]
    if target.file is not None and not target.file.endswith(".log"):
        rows = dumping.side_file(target)
    elif records or offsets:
        rows = _record_rows(target, choice, offsets=offsets, as_json=as_json)
    else:
        rows = (row if as_json else _batch(row) for row, _ in dumping.batches(target, choice))
    if as_json:
        for row in islice(rows, limit):
            print_json(row)
    else:
        _print_rows(rows, limit or _ROWS_MAX)


def _batch(row: dict[str, Any]) -> dict[str, Any]:
    """The row of a batch for a table that fits a terminal."""
    is_idempotent = row["producer_id"] >= 0
    flags = [name for name in ("transactional", "control") if row[name]]
    producer = f"{row['producer_id']}/{row['producer_epoch']} #{row['base_sequence']}"
    return {
        "file": row["file"],
        "position": row["position"],
        "first": row["base_offset"],
        "last": row["last_offset"],
        "records": row["records"],
        "bytes": row["size_bytes"],
        "codec": row["codec"],
        "latest (ms)": row["max_timestamp_ms"],
        "epoch": row["leader_epoch"],
        "producer": producer if is_idempotent else None,
        "flags": ", ".join(flags) or None,
        "horizon (ms)": row["delete_horizon_ms"],
    }


def _print_rows(rows: Iterable[dict[str, Any]], limit: int) -> None:
    shown: list[dict[str, Any]] = []
    failure: ShoalError | None = None
    more = False
    try:
        for row in rows:
            if len(shown) == limit:
                more = True
                break
            shown.append(row)
    except ShoalError as error:
        failure = error  # what was read before it is shown first
    if shown:
        names = dict.fromkeys(name for row in shown for name in row)  # not all have the same
        columns = [name for name in names if any(row.get(name) is not None for row in shown)]
        print_table(columns, [[row.get(name) for name in columns] for row in shown])
    elif failure is None:
        tell("nothing to show")
    if more:
        warn(f"… and more; --limit shows more than {limit} rows")
    if failure is not None:
        raise failure


def _record_rows(
    target: InspectionTarget, choice: dumping.Choice, *, offsets: bool, as_json: bool
) -> Iterator[dict[str, Any]]:
    topics = {
        partition.directory: partition.topic_partition and partition.topic_partition.topic
        for partition in target.partitions
    }
    for row in dumping.records(target, choice):
        topic = topics.get(row["file"].rpartition("/")[0])
        if (offsets or topic == OFFSETS_TOPIC) and not row["control"]:
            if not as_json:
                yield _story(row)
                continue
            row["key"], row["value"] = _decoded(row["key"], row["value"])
        elif as_json:
            row["key"], row["value"] = json_of(row["key"]), json_of(row["value"])
        else:
            row["key"], row["value"] = text_of(row["key"]), text_of(row["value"])
        row["headers"] = [
            (name, json_of(content) if as_json else text_of(content))
            for name, content in row["headers"]
        ]
        if not as_json:
            row["headers"] = ", ".join(f"{name}={content}" for name, content in row["headers"])
            row["headers"] = row["headers"] or None
        yield row


def _decoded(key: bytes | None, value: bytes | None) -> tuple[Any, Any]:
    """A record of ``__consumer_offsets``; as plain bytes where it is something else."""
    if key is None:
        return None, json_of(value)
    try:
        decoded = decode_key(key)
        if isinstance(decoded, UnknownKey):
            return {"type": f"unknown ({decoded.record_type})"}, json_of(value)
        return _fields(decoded), _fields(decode_value(decoded, value))
    except ShoalError as error:
        return {"error": str(error), "data": json_of(key)}, json_of(value)


def _fields(message: Any) -> Any:
    if message is None:
        return None
    if isinstance(message, bytes | memoryview):
        return json_of(bytes(message))
    if isinstance(message, list | tuple):
        return [_fields(one) for one in message]
    names = getattr(type(message), "__slots__", None)
    if not names:
        return message
    found = {name: _fields(getattr(message, name)) for name in names}
    return {"type": type(message).__name__, **found}


def _story(row: dict[str, Any]) -> dict[str, Any]:
    """A record of ``__consumer_offsets`` for people."""
    group, what = tell_record(row["key"], row["value"])
    shown = {name: row[name] for name in ("file", "offset")}
    return shown | {"time": moment(row["timestamp_ms"]), "group": group, "what": what}


def _foreign(path: Path) -> StorageError:
    return StorageError(
        f"{path} is not a partition file; give a data directory, a partition's, or one of its files"
    )


@app.command("verify")
def verify(
    path: Path,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only what is not ok.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check every file: ok, torn at, corrupt at, unsupported. Changes nothing.

    Exit code: 0 all ok, 3 a torn tail, 4 corruption, 5 something unsupported, 1 cannot be read.
    """
    worst, rows = Status.OK, []
    with progress("checking", None, unit="files", is_shown=not as_json) as advance:
        target = inspection.look_at(path)
        for verdict in inspection.verify(target):
            advance(1)
            if target.file is not None and verdict.detail == inspection.FOREIGN:
                raise _foreign(path)
            worst = max(worst, verdict.status, key=_WORST_LAST.index)
            if quiet and verdict.status is Status.OK:
                continue
            row = verdict._asdict() | {"status": verdict.status.value}
            row["damages"] = [damage._asdict() for damage in verdict.damages]
            if as_json:
                print_json(row)
            else:
                rows.append(row)
    if not as_json and rows:
        columns = ["path", "status", "position", "batches", "records", "detail"]
        table = [[row[name] if row[name] != 0 else None for name in columns] for row in rows]
        print_table(["file", "status", "at", "batches", "records", "detail"], table)
    if not as_json and worst is Status.OK:
        tell("ok")
    raise typer.Exit(EXIT_CODES[worst])


@app.command("repair")
def mend(
    path: Annotated[str, typer.Argument(metavar="DIRECTORY", help="A data directory.")],
    drop_corrupt: Annotated[
        bool,
        typer.Option("--drop-corrupt", help="Take corrupt bytes out; readers pass over them."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Cut torn tails, remove wrong indexes and, if asked, take out corrupt bytes.

    Prints its plan first. What is taken out of a segment is kept beside it (*.quarantine).
    Exit code: 0 nothing left to mend, 4 something was left as it is.
    """
    target = inspection.look_at(path)
    if not target.is_data_directory:
        raise typer.BadParameter("give the whole data directory of a broker, not a part of it")
    todo = repair.plan(target, drop_corrupt=drop_corrupt)
    left = [f"{one.path}: {one.status.value}, {one.detail}" for one in todo.left]
    if todo.steps:
        lines = [f"  {step.path}: {step.text}" for step in todo.steps]
        confirm_or_stop(f"In {target.disk.root}:", *lines, yes=yes)
        for done in repair.apply(OsDisk(target.disk.root), todo):
            if not as_json:
                tell(done)
    if as_json:
        print_json({"done": [[step.path, step.text] for step in todo.steps], "left": left})
    else:
        for line in left:
            hint = "" if drop_corrupt else " (--drop-corrupt takes it out)"
            warn(f"left as it is: {line}{hint}")
        if not todo.steps and not left:
            tell("nothing to repair")
    if left:
        raise typer.Exit(EXIT_CODES[Status.CORRUPT])
