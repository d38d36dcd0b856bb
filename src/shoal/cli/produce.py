"""``shoal produce``: records from standard input or files, one per line."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final, NamedTuple

import typer

from shoal.cli import completion
from shoal.cli.connecting import ClusterTarget, for_cluster
from shoal.cli.output import bytes_of, print_json, progress, warn
from shoal.errors import ConfigError, counted, did_you_mean

if TYPE_CHECKING:
    from shoal.client.producer import Producer
    from shoal.client.producer_batch import SendFuture

app = typer.Typer(rich_markup_mode=None)

READ: Final = "How the input is read"
_FIELDS: Final = ("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers")
LINE_BYTES_MAX: Final = 64 * 1024 * 1024
_STDIN: Final = Path("-")
WINDOW: Final = 50_000
"""How many records may be under way before the oldest is looked at: memory stays bounded."""


@app.command()
@for_cluster
def produce(
    target: ClusterTarget,
    topic: Annotated[str, typer.Argument(help="Where to write.", autocompletion=completion.topics)],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...", help="Files to read; standard input if none, or for -."
        ),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator",
            "-k",
            metavar="TEXT",
            help="Splits a line into key and value.",
            rich_help_panel=READ,
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=VALUE", help="Put this on every record."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, help="Write to this partition only."),
    ] = None,
    null_marker: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Treat this string as a null key or value.",
            rich_help_panel=READ,
        ),
    ] = None,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Records per second.")] = None,
    whole: Annotated[
        bool,
        typer.Option("--whole", help="One record per file, not per line.", rich_help_panel=READ),
    ] = False,
    compression: Annotated[
        str, typer.Option(metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.")
    ] = "none",
    acks: Annotated[
        str, typer.Option(metavar="ACKS", help="Who must have a record: 0, 1 or all.")
    ] = "all",
    transactional_id: Annotated[
        str | None, typer.Option(metavar="ID", help="All records in one transaction of this id.")
    ] = None,
    transaction_timeout: Annotated[
        float, typer.Option(min=0.001, metavar="SECONDS", help="How long it may take.")
    ] = 60.0,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Lines as `shoal consume --json` prints them; the result is JSON too.",
            rich_help_panel=READ,
        ),
    ] = False,
    keep_partitions: Annotated[
        bool,
        typer.Option(
            "--keep-partitions",
            help="With --json: write each record to the partition it names.",
            rich_help_panel=READ,
        ),
    ] = False,
) -> None:
    """Write records from standard input or files, one per line.

    Every record is acknowledged before the command ends with 0. With --transactional-id readers of
    committed records see all of them then, and none if the command fails or is interrupted.

    With --json a line is an object with "key", "value", "headers" and "timestamp_ms", all optional.
    Bytes that are not text are {"base64": "..."}. Topic and offset of a line are not used.
    """
    headers = [_header(entry) for entry in header or ()]
    if as_json and (key_separator is not None or null_marker is not None or whole):
        raise ConfigError(
            "--json lines name their key and value; leave out the options that find them in a line"
        )
    if keep_partitions and (not as_json or partition is not None):
        raise ConfigError("--keep-partitions goes with --json, and not with --partition")
    marker = None if null_marker is None else null_marker.encode()
    separator = None if key_separator is None else key_separator.encode()
    if separator == b"":
        raise ConfigError("--key-separator is empty: give what stands between key and value")
    sent = 0
    more: dict[str, Any] = {"compression_type": compression, "acks": acks, "linger_ms": 20}
    if transactional_id is not None:
        timeout_ms = int(transaction_timeout * 1000)
        more |= {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
    with (
        target.producer(**more) as producer,
        _transaction(producer),
        ExitStack() as stack,
        progress("writing", _total(files), unit="bytes", is_shown=_is_bulk(files)) as advance,
    ):
        under_way: list[SendFuture] = []
        for line in _paced(_payloads(stack, files, whole=whole), rate, producer):
            if as_json:
                one = record_of(line, number=sent + 1)
            else:
                key, value = _split(line, separator)
                one = GivenRecord(
                    None if key == marker else key, None if value == marker else value
                )
            under_way.append(
                producer.send(
                    topic,
                    one.value,
                    one.key,
                    partition=one.partition if keep_partitions else partition,
                    timestamp_ms=one.timestamp_ms,
                    headers=[*headers, *one.headers],
                )
            )
            sent += 1
            advance(len(line) + 1)
            if len(under_way) >= WINDOW:
                _settle(under_way)
        producer.flush()
        _settle(under_way)
    if as_json:
        print_json({"topic": topic, "records": sent})
    else:
        warn(f"{counted(sent, 'record')} written to {topic}")


class GivenRecord(NamedTuple):
    """What a line says about the record to write."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


def record_of(line: bytes, *, number: int) -> GivenRecord:
    """The record in a line of ``shoal consume --json``.

    Raises:
        ConfigError: it is not one; names the line and what is wrong in it.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        shown = line[:60].decode(errors="replace")
        raise ConfigError(
            f"line {number} is not JSON: {shown} (plain lines are read without --json)"
        ) from None
    if not isinstance(found, dict):
        raise ConfigError(f'line {number} is not an object such as {{"value": "herring"}}')
    for name in found:
        if name not in _FIELDS:
            hint = did_you_mean(name, _FIELDS, f"; there are: {', '.join(_FIELDS)}")
            raise ConfigError(f"line {number} has an unknown field {name!r}{hint}")
    what = "key"
    try:
        key = bytes_of(found.get("key"))
        what = "value"
        value = bytes_of(found.get("value"))
        what = "headers"
        headers = [(_name(name), bytes_of(content)) for name, content in found.get("headers") or ()]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"line {number}, {what}: {error}") from None
    numbers = {}
    for name in ("timestamp_ms", "partition"):
        given = found.get(name)
        if given is not None and (isinstance(given, bool) or not isinstance(given, int)):
            raise ConfigError(f"line {number}, {name}: {given!r} is not a whole number")
        numbers[name] = given
    return GivenRecord(key, value, headers, **numbers)


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise ValueError(f"a header is [name, value], and {name!r} is not a name")
    return name


@contextmanager
def _transaction(producer: Producer) -> Iterator[None]:
    """One for the whole command, if the producer has them."""
    if producer.config.transactional_id is None:
        yield
        return
    producer.init_transactions()
    with producer.transaction():
        yield


def _total(files: list[Path] | None) -> int | None:
    if not files or _STDIN in files:
        return None
    return sum(path.stat().st_size for path in files)


def _is_bulk(files: list[Path] | None) -> bool:
    """Whether a bar tells something; not while somebody types the records."""
    return bool(files and _STDIN not in files) or not sys.stdin.isatty()


def _settle(futures: list[SendFuture]) -> None:
    for future in futures:
        future.result()
    futures.clear()


def _payloads(stack: ExitStack, files: list[Path] | None, *, whole: bool) -> Iterator[bytes]:
    sources: list[BinaryIO] = [
        sys.stdin.buffer if path == _STDIN else stack.enter_context(path.open("rb"))
        for path in files or [_STDIN]
    ]
    for source in sources:
        if whole:
            yield source.read()
            continue
        while line := source.readline(LINE_BYTES_MAX + 1):
            if len(line) > LINE_BYTES_MAX:
                raise ConfigError(f"a line is longer than {LINE_BYTES_MAX} bytes; try --whole")
            yield line.removesuffix(b"\n").removesuffix(b"\r")


def _paced(lines: Iterable[bytes], rate: float | None, producer: Producer) -> Iterator[bytes]:
    began = time.monotonic()
    for number, line in enumerate(lines):
        if rate is not None and (wait := began + number / rate - time.monotonic()) > 0:
            producer.flush()
            time.sleep(wait)
        yield line


def _split(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    if not found:
        raise ConfigError(
            f"a line has no separator {separator.decode()!r}: {line[:60].decode(errors='replace')}"
        )
    return key, value


def _header(entry: str) -> tuple[str, bytes]:
    name, equals, value = entry.partition("=")
    if not equals or not name:
        raise ConfigError(f"header {entry!r} is not NAME=VALUE")
    return name, value.encode()
