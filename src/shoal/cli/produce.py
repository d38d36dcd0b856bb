"""``shoal produce``: records from standard input or files, one a line."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from shoal.cli.connecting import Target, for_cluster
from shoal.cli.output import print_json, progress
from shoal.errors import ConfigError

if TYPE_CHECKING:
    from shoal.client.accumulator import SendFuture
    from shoal.client.producer import Producer

app = typer.Typer(rich_markup_mode=None)

LINE_BYTES_MAX: Final = 64 * 1024 * 1024
_STDIN: Final = Path("-")
WINDOW: Final = 50_000
"""How many records may be under way before the oldest is looked at: memory stays bounded."""


@app.command()
@for_cluster
def produce(
    target: Target,
    topic: Annotated[str, typer.Argument(help="Where to write.")],
    files: Annotated[
        list[Path] | None, typer.Argument(help="Files to read; standard input if none, or for -.")
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-k", help="Splits a line into key and value.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="On every record.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Always this one.")
    ] = None,
    null_marker: Annotated[
        str | None, typer.Option(help="A key or value that reads so is a null.")
    ] = None,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Records a second.")] = None,
    whole: Annotated[bool, typer.Option("--whole", help="One record per file, not per line.")] = (
        False
    ),
    compression: Annotated[str, typer.Option(help="none, gzip, snappy, lz4 or zstd.")] = "none",
    acks: Annotated[str, typer.Option(help="0, 1 or all.")] = "all",
    as_json: Annotated[bool, typer.Option("--json", help="What was written, as JSON.")] = False,
) -> None:
    """Write records from standard input or files, one a line.

    Every record is acknowledged before the command ends with 0.
    """
    headers = [_header(entry) for entry in header or ()]
    marker = None if null_marker is None else null_marker.encode()
    separator = None if key_separator is None else key_separator.encode()
    if separator == b"":
        raise ConfigError("--key-separator is empty: give what stands between key and value")
    sent = 0
    more = {"compression_type": compression, "acks": acks, "linger_ms": 20}
    with (
        target.producer(**more) as producer,
        ExitStack() as stack,
        progress("writing", _total(files), unit="bytes", is_shown=_is_bulk(files)) as advance,
    ):
        under_way: list[SendFuture] = []
        for line in _paced(_payloads(stack, files, whole=whole), rate, producer):
            key, value = _split(line, separator)
            under_way.append(
                producer.send(
                    topic,
                    None if value == marker else value,
                    None if key == marker else key,
                    partition=partition,
                    headers=headers,
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
        print(f"{sent} record{'s' if sent != 1 else ''} written to {topic}", file=sys.stderr)


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
