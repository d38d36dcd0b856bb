"""What a task counts of its read, and how it tells: nothing it meets may fail the task."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pyarrow as pa
import pytest

from shoal.spark.read_tally import REPORT_BYTES_MAX, ReadTally, TaskReport, send

REPORT = TaskReport("q", 3, 7, 1, rows=100, size_bytes=2_000, fetch_us=5, decode_us=9)
TOKEN = "secret"


def test_bytes_and_rows_are_counted_and_waiting_is_no_decoding() -> None:
    now_ns = 0
    tally = ReadTally(lambda: now_ns)

    def work(takes_ns: int) -> None:
        nonlocal now_ns
        now_ns += takes_ns

    def fetch() -> Iterator[bytes]:
        work(1_000)
        yield b"four"
        yield b"and nine."
        work(100)

    def decode() -> Iterator[pa.RecordBatch]:
        for piece in tally.fetched(fetch(), len):
            work(7)
            yield pa.RecordBatch.from_pydict({"value": list(piece)})

    for batch in tally.made(decode()):
        work(5_000)  # what Spark does with it is not ours
        assert batch.num_rows in (4, 9)
    assert (tally.size_bytes, tally.rows) == (13, 13)
    assert (tally.fetch_ns, tally.decode_ns) == (1_100, 14)


def test_an_error_of_the_read_comes_through() -> None:
    def fetch() -> Iterator[bytes]:
        yield b"one"
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        list(ReadTally().fetched(fetch(), len))


def test_a_report_is_read_back_as_it_was() -> None:
    data = REPORT.encode(TOKEN)
    assert TaskReport.decode(data, TOKEN) == REPORT
    assert len(data) < REPORT_BYTES_MAX


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b'["secret"]',
        b'["other","q",3,7,1,100,2000,5,9]',
        b'["secret","q",3,7,1,100,2000,5]',
        b'["secret","q",3,7,1,100,2000,5,-9]',
        b'["secret","q",3,7,1,100,2000,5,true]',
        b'["secret",1,3,7,1,100,2000,5,9]',
    ],
)
def test_what_is_no_report_of_this_listener_is_nothing(data: bytes) -> None:
    assert TaskReport.decode(data, TOKEN) is None


def test_a_report_arrives_where_somebody_listens() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(10)
        send(REPORT, f"{TOKEN}@127.0.0.1:{listener.getsockname()[1]}")
        assert TaskReport.decode(listener.recv(REPORT_BYTES_MAX), TOKEN) == REPORT


@pytest.mark.parametrize("address", ["", "nonsense", "t@127.0.0.1:1", "t@no.such.host.invalid:9"])
def test_a_listener_that_cannot_be_reached_is_no_error(address: str) -> None:
    send(REPORT, address)
