"""The public names, pinned: adding one is a decision, losing one is a breaking change."""

from __future__ import annotations

import subprocess
import sys

import shoal

NAMES = {
    "Admin",
    "Assignor",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "BrokerError",
    "Consumer",
    "ConsumerConfig",
    "ConsumerGroupMetadata",
    "ErrorCode",
    "GroupSpec",
    "Node",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionInfo",
    "Producer",
    "ProducerConfig",
    "RangeReader",
    "RebalanceListener",
    "Record",
    "RecordMetadata",
    "Records",
    "ServerAssignor",
    "ShoalError",
    "TimestampType",
    "TopicPartition",
    "__version__",
}


def test_the_public_names_are_these():
    assert set(shoal.__all__) == NAMES
    assert dir(shoal) == sorted(NAMES)


def test_every_public_name_can_be_had():
    for name in NAMES:
        assert getattr(shoal, name) is not None


def test_importing_shoal_loads_nothing_heavy():
    program = (
        "import sys, shoal; "
        "heavy = {'numpy', 'pyarrow', 'pyspark', 'asyncio', 'ssl'} & set(sys.modules); "
        "print(','.join(sorted(heavy)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "", done.stderr


def test_the_client_needs_no_arrow_until_columns_are_asked_for():
    program = (
        "import sys; from shoal import Consumer, Producer, Admin; "
        "print(','.join(sorted({'numpy', 'pyarrow'} & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "", done.stderr
