"""Make ``segments/``: small segments written by a real Apache Kafka. See ``segments.md``.

    python -m tests.golden.make_segments

Needs Java and Maven. The result differs in timestamps and ids from run to run; the tests look at
what must be in it, not at those.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.peers.jars import KAFKA_VERSION
from tests.peers.kafka import ApacheKafka

TARGET = Path(__file__).parent / "segments"
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.index.size.max.bytes": "1024",
    "log.cleaner.backoff.ms": "200",
}
TOPICS = {
    "codecs": {},
    "rolled": {"segment.ms": "1000", "index.interval.bytes": "200"},
    "compacted": {
        "cleanup.policy": "compact",
        "segment.ms": "1000",
        "min.cleanable.dirty.ratio": "0.01",
    },
    "transactions": {},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
}
KEPT = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", "-checkpoint", ".metadata")


def fill(bootstrap_servers: str) -> None:
    """Write something of everything."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topics = [NewTopic(name, 1, 1, config=config) for name, config in TOPICS.items()]
    for future in admin.create_topics(topics).values():
        future.result(30)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "compression.type": codec,
                "enable.idempotence": codec != "none",
                "linger.ms": 200,
            }
        )
        for index in range(20):
            producer.produce(
                "codecs",
                key=f"{codec}-{index}" if index % 3 else None,
                value=f"value {index} of {codec}" * 3 if index % 5 else None,
                headers=[("codec", codec.encode()), ("none", None)] if index % 2 else None,
                timestamp=1_700_000_000_000 + index,
            )
        assert producer.flush(30) == 0
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for index in range(12):
        # Segments roll by the time of their records: four seconds between, one second allowed.
        time_ms = 1_700_000_000_000 + index // 3 * 4000
        value = None if index == 7 else f"{index}"
        producer.produce("append-time", value=f"{index}")
        producer.produce("rolled", key=f"{index % 3}", value=f"{index}" * 50, timestamp=time_ms)
        producer.produce("compacted", key=f"{index % 4}", value=value, timestamp=time_ms)
        assert producer.flush(30) == 0
    _transactions(bootstrap_servers)
    _commit(bootstrap_servers)


def _transactions(bootstrap_servers: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": "golden"})
    producer.init_transactions(30)
    for number in range(4):
        producer.begin_transaction()
        producer.produce("transactions", value=f"transaction {number}")
        assert producer.flush(30) == 0
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def _commit(bootstrap_servers: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "golden",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["codecs"])
    while consumer.poll(1.0) is None:
        pass
    consumer.commit(
        offsets=[TopicPartition("codecs", 0, 42, metadata="a note")], asynchronous=False
    )
    try:
        consumer.close()
    except KafkaException as error:  # pragma: no cover
        raise SystemExit(str(error)) from error


def await_compaction(directory: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        points = directory.parent / "cleaner-offset-checkpoint"
        if points.exists() and "compacted 0" in points.read_text():
            return
        time.sleep(0.2)
    raise SystemExit("Apache Kafka did not compact within a minute")


def stop(kafka: ApacheKafka) -> None:
    """Stop cleanly, so that indexes are trimmed and producer snapshots written."""
    os.kill(kafka.pid(), signal.SIGTERM)
    kafka._processes[1].wait(60)


def copy(source: Path, target: Path) -> list[str]:
    """Only the partitions we filled, and only their files."""
    kept = []
    for name in (*(f"{topic}-0" for topic in TOPICS), "__consumer_offsets-0"):
        (target / name).mkdir(parents=True)
        for path in sorted((source / name).iterdir()):
            if path.name.endswith(KEPT):
                shutil.copy(path, target / name / path.name)
                kept.append(f"{name}/{path.name}")
    for name in (
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "cleaner-offset-checkpoint",
    ):
        shutil.copy(source / name, target / name)
    return kept


def main() -> None:
    shutil.rmtree(TARGET, ignore_errors=True)
    with ApacheKafka(settings=SETTINGS) as kafka:
        fill(kafka.bootstrap_servers)
        await_compaction(kafka.data_directory() / "compacted-0")
        stop(kafka)
        kept = copy(kafka.data_directory(), TARGET)
    print(json.dumps({"kafka": KAFKA_VERSION, "files": len(kept)}))


if __name__ == "__main__":
    main()
