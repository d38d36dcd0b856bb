"""Our bytes are those of kio and kafka-python, for every message and version they have."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from random import Random
from typing import Any

import pytest

from shoal.wire.apis.api_versions import ApiVersionsResponse
from shoal.wire.schema import Message
from tests.wire import oracles
from tests.wire.values import ALL_PAIRS, PAIR_IDS, Builder

MESSAGES_PER_PAIR = 8


@pytest.mark.parametrize(("kind", "version"), ALL_PAIRS, ids=PAIR_IDS)
def test_kio_reads_and_writes_our_bytes(kind: type[Message], version: int):
    kio_type = oracles.kio_class(kind, version)
    assert kio_type is not None
    random = Random(f"{kind.__name__} {version}")
    for _ in range(MESSAGES_PER_PAIR):
        ours = Builder(random, version, oracles.values_kio_can_hold).message(kind)
        data = ours.encode(version)
        theirs = oracles.kio_decode(kio_type, data)
        oracles.assert_kio_holds_the_same(ours, theirs, version)
        assert oracles.kio_encode(theirs) == data


# What kafka-python 3.0 has no definitions of; kio is then the only oracle beside Kafka itself.
KAFKA_PYTHON_LACKS = {
    "ConsumerGroupDescribe": 4,
    "ConsumerGroupHeartbeat": 4,
    "GetTelemetrySubscriptions": 2,
    "PushTelemetry": 2,
}
KNOWN_TO_KAFKA_PYTHON: list[tuple[Any, int]] = [
    (kind, version)
    for kind, version in ALL_PAIRS
    if oracles.kafka_python_class(kind, version) is not None
]


def test_the_pairs_an_oracle_lacks_are_known_and_counted():
    lacking = Counter(
        kind.__name__.removesuffix("Request").removesuffix("Response")
        for kind, version in ALL_PAIRS
        if (kind, version) not in KNOWN_TO_KAFKA_PYTHON
    )
    assert lacking == KAFKA_PYTHON_LACKS
    assert len(ALL_PAIRS) == 490
    assert len(KNOWN_TO_KAFKA_PYTHON) == 478


@pytest.mark.parametrize(
    ("kind", "version"),
    KNOWN_TO_KAFKA_PYTHON,
    ids=[f"{kind.__name__}-{version}" for kind, version in KNOWN_TO_KAFKA_PYTHON],
)
def test_kafka_python_reads_and_writes_our_bytes(kind: type[Message], version: int):
    their_class = oracles.kafka_python_class(kind, version)
    assert their_class is not None
    random = Random(f"{kind.__name__} {version}")
    for _ in range(MESSAGES_PER_PAIR):
        ours = Builder(random, version).message(kind)
        if isinstance(ours, ApiVersionsResponse):
            # They read an answer with any error as version 0; only UNSUPPORTED_VERSION is.
            ours.error_code = 0
        data = ours.encode(version)
        theirs = oracles.kafka_python_message(ours, their_class, version)
        assert theirs.encode(version=version) == data
        read = their_class.decode(data, version=version)
        oracles.assert_kafka_python_holds_the_same(ours, read, version)


@pytest.mark.parametrize(
    "kind",
    sorted({kind for kind, _ in KNOWN_TO_KAFKA_PYTHON}, key=attrgetter("__name__")),
    ids=lambda kind: kind.__name__,
)
def test_what_is_ignorable_and_its_default_are_those_of_kafka(kind: type[Message]):
    theirs = oracles.kafka_python_class(kind, kind.MAX_VERSION)
    for field, other in oracles.partial_fields(kind, theirs):
        assert field.spec.ignorable == bool(other._ignorable), field.name
        if not field.name.endswith(("error_message", "authorized_operations")):
            assert oracles.plain_default(field) == oracles.plain(other.default), field.name
