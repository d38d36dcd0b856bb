"""Other implementations: what they write we read, what we write they read, in every codec."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import codec as kafka_python_codecs
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from shoal.records.batch import NewRecord, decode_batch, encode_batch, iter_headers, read_header
from shoal.records.columns import encode_columns
from shoal.records.compression import Codec
from shoal.records.markers import encode_marker
from shoal.records.objects import decode_records
from tests.peers import PeerMissingError, need
from tests.peers.jars import kafka_jars
from tests.peers.kafka import tool
from tests.records.generate import each_kernel, using

each_codec = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())

RECORDS: list[NewRecord] = [
    (
        None if i % 7 == 3 else b"key-%d" % i,
        None if i % 11 == 5 else b"value-%d " % i * (1 + i % 40),
        (("header", b"%d" % i), ("ümlaut", None), ("", b"")) if i % 5 == 2 else (),
        1_700_000_000_000 + 7 * i - (i % 3) * 50,
    )
    for i in range(1500)
]
ROWS = [
    (i, timestamp, key, value, tuple(headers))
    for i, (key, value, headers, timestamp) in enumerate(RECORDS)
]


def need_codec(peer: Any, codec: Codec) -> None:
    """kafka-python compresses with packages which it does not depend on."""

    packages = {Codec.SNAPPY: "python-snappy", Codec.ZSTD: "zstandard"}
    name = codec.name.lower()

    def attempt() -> None:
        if codec in packages and not getattr(kafka_python_codecs, f"has_{name}")():
            raise PeerMissingError(
                f"kafka-python has no {name} (install {packages[codec]} to compare with it)"
            )

    if peer in (kafka_python_writes, KafkaPythonBatch):
        need(attempt)


def theirs(builder: Any) -> bytes:
    for i, (key, value, headers, timestamp) in enumerate(RECORDS):
        assert builder.append(i, timestamp, key, value, list(headers)) is not None
    return bytes(builder.build())


def kafka_python_writes(codec: int) -> bytes:
    return theirs(KafkaPythonBuilder(2, codec, False, -1, -1, -1, 1 << 24))


def aiokafka_writes(codec: int) -> bytes:
    return theirs(
        AioBuilder(
            magic=2,
            compression_type=codec,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=1 << 24,
        )
    )


@each_kernel
@each_codec
@pytest.mark.parametrize("write", [kafka_python_writes, aiokafka_writes])
def test_we_read_what_they_write(
    write: Callable[[int], bytes], codec: Codec, kernel_name: str
) -> None:
    need_codec(write, codec)
    data = write(codec)
    assert read_header(data).codec == codec
    with using(kernel_name):
        assert decode_batch(data) == ROWS
        assert decode_records(("t", 0, data, 0, None)) == ROWS


@pytest.mark.parametrize("write", [kafka_python_writes, aiokafka_writes])
def test_without_compression_we_write_the_same_bytes(write: Callable[[int], bytes]) -> None:
    data = bytearray(write(0))
    data[12:16] = b"\xff" * 4  # they leave the leader epoch at 0; to a producer it means nothing
    assert encode_batch(RECORDS) == data


@each_codec
@pytest.mark.parametrize("reader", [KafkaPythonBatch, AioBatch])
def test_they_read_what_we_write(reader: Any, codec: Codec) -> None:
    need_codec(reader, codec)
    keys, values, headers, timestamps = zip(*RECORDS, strict=True)
    batches = encode_columns(
        keys, values, headers=headers, timestamps=timestamps, codec=codec, batch_bytes=50_000
    )
    assert len(batches) > 3
    found = []
    for data in batches:
        batch = reader(data)
        assert batch.validate_crc()
        found += [
            (record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
            for record in batch
        ]
    assert found == ROWS


# librdkafka, through its built-in mock cluster ----------------------------------------------


@pytest.fixture(scope="module")
def mock_cluster() -> Iterator[tuple[Producer, str]]:
    producer = Producer(
        {"bootstrap.servers": "unused:1", "test.mock.num.brokers": 1, "log_level": 0}
    )
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    yield producer, f"{broker.host}:{broker.port}"
    producer.flush(5)


def ask(address: str, api_key: int, version: int, body: bytes) -> bytes:
    """One request by hand, without any client in between."""
    host, port = address.split(":")
    with closing(socket.create_connection((host, int(port)), timeout=10)) as connection:
        request = struct.pack(">hhih", api_key, version, 1, -1) + body
        connection.sendall(struct.pack(">i", len(request)) + request)
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        response = stream.read(size)
    return response[4:]  # the correlation id


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def fetch_all(address: str, topic: str, end: int) -> bytes:
    """Partition 0 up to an offset. The mock cluster answers with one batch at a time."""
    data = b""
    reached = 0
    while reached < end:
        part = fetch(address, topic, reached)
        reached = max(header.next_offset for _, header in iter_headers(part))
        data += part
    return data


def fetch(address: str, topic: str, offset: int) -> bytes:
    """Fetch v4 of partition 0: batches as they lie in the log."""
    body = struct.pack(">iiiib", -1, 1000, 1, 1 << 24, 0)
    body += struct.pack(">i", 1) + text(topic) + struct.pack(">iiqi", 1, 0, offset, 1 << 24)
    response = ask(address, 1, 4, body)
    position = 4 + 4 + 2 + len(topic) + 4  # throttle, topics, name, partitions
    _, error, _, _, aborted = struct.unpack_from(">ihqqi", response, position)
    assert (error, max(aborted, 0)) == (0, 0)
    position += 26
    (size,) = struct.unpack_from(">i", response, position)
    return response[position + 4 : position + 4 + size]


def produce(address: str, topic: str, batch: bytes, version: int) -> None:
    body = struct.pack(">hhi", -1, -1, 5000) + struct.pack(">i", 1) + text(topic)
    body += struct.pack(">iii", 1, 0, len(batch)) + batch
    response = ask(address, 0, version, body)
    (error,) = struct.unpack_from(">h", response, 4 + 2 + len(topic) + 4 + 4)
    assert error == 0


@pytest.mark.peer
@pytest.mark.slow
@each_codec
def test_we_read_what_librdkafka_writes(mock_cluster: tuple[Producer, str], codec: Codec) -> None:
    _, address = mock_cluster
    name = "none" if codec is Codec.NONE else codec.name.lower()
    topic = f"written-{name}"
    producer = Producer(
        {"bootstrap.servers": address, "compression.codec": name, "linger.ms": 200, "log_level": 0}
    )
    for key, value, headers, timestamp in RECORDS[1:]:
        producer.produce(topic, value, key, partition=0, timestamp=timestamp, headers=list(headers))
    assert producer.flush(20) == 0
    data = fetch_all(address, topic, len(RECORDS) - 1)
    # It leaves a batch as it is which compression would make larger, such as one of one record.
    assert codec in {header.codec for _, header in iter_headers(data)} <= {codec, Codec.NONE}
    found = decode_records(("t", 0, data, 0, None))
    assert [fields[1:] for fields in found] == [row[1:] for row in ROWS[1:]]


@pytest.mark.peer
@pytest.mark.slow
@each_codec
def test_librdkafka_reads_what_we_write(mock_cluster: tuple[Producer, str], codec: Codec) -> None:
    producer, address = mock_cluster
    topic = f"read-{codec.name.lower()}"
    producer.list_topics(topic, timeout=10)  # creates it
    produce(address, topic, encode_batch(RECORDS, codec=codec), version=7)
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[Any, ...]] = []
    while len(found) < len(ROWS):
        messages = consumer.consume(len(ROWS) - len(found), timeout=10)
        assert messages, f"only {len(found)} records arrived"
        for message in messages:
            assert message.error() is None
            found.append(
                (
                    message.offset(),
                    message.timestamp()[1],
                    message.key(),
                    message.value(),
                    tuple(message.headers() or ()),
                )
            )
    consumer.close()
    assert found == ROWS


# Apache Kafka's own classes -----------------------------------------------------------------


@pytest.mark.kafka
@pytest.mark.slow
def test_apache_kafka_reads_what_we_write(tmp_path: Path) -> None:
    need(kafka_jars)
    keys, values, headers, timestamps = zip(*RECORDS, strict=True)
    parts, offset = [], 0
    for codec in Codec:
        parts += encode_columns(
            keys,
            values,
            headers=headers,
            timestamps=timestamps,
            codec=codec,
            batch_bytes=100_000,
            base_offset=offset,
            leader_epoch=0,
        )
        offset += len(RECORDS)
    parts.append(
        encode_marker(
            commit=False, producer_id=5, producer_epoch=0, timestamp_ms=1, base_offset=offset
        )
    )
    log = tmp_path / f"{0:020d}.log"
    log.write_bytes(b"".join(parts))
    done = tool("DumpLogSegments", "--deep-iteration", "--print-data-log",
                "--files", str(log))  # fmt: skip
    assert done.returncode == 0, done.stderr
    batches = [line for line in done.stdout.splitlines() if line.startswith("baseOffset: ")]
    records = [line for line in done.stdout.splitlines() if line.startswith("| offset: ")]
    assert len(batches) == len(parts)
    assert all("isvalid: true" in line for line in batches)
    assert "endTxnMarker: ABORT" in records.pop()
    assert len(records) == offset
    for number, line in enumerate(records):
        _, timestamp, key, value, pairs = ROWS[number % len(ROWS)]
        assert line.startswith(f"| offset: {number} CreateTime: {timestamp} keySize: ")
        assert f"keySize: {-1 if key is None else len(key)} " in line
        assert f"valueSize: {-1 if value is None else len(value)} " in line
        if key is not None:
            assert f" key: {key.decode()}" in line
        if value is not None:
            assert f" payload: {value.decode()}" in line
        if pairs:
            assert "headerKeys: [header,ümlaut,]" in line
