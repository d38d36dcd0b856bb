"""Lengths that lie: arrays and tag sections that announce far more than the bytes that follow.

A reader that believes such a number makes room for thousands of millions of elements, for a
request of a few bytes: CVE-2026-111108 (lengths of arrays) and CVE-2026-111115 (counts of tagged
fields). Here each array and each tag section of each request is made to lie, the inner ones too.
"""

from __future__ import annotations

import copy
import struct
import tracemalloc
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import pytest

from shoal.broker.config import BrokerConfig, BrokerLimits
from shoal.broker.handlers import SERVED
from shoal.testing.broker import Broker
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.registry import API
from shoal.wire.fields import ArrayOf, StructOf, fields_of
from shoal.wire.frames import encode_request
from shoal.wire.varint import encode_uvarint
from tests.broker.messages import minimal
from tests.broker.raw_client import RawClient

#: The last one is within what a message may hold, and still far more than there are bytes.
LIES = (0x7FFFFFFF, 10_000_000, 10_000)
#: What a broker may hold at once for requests of a few hundred bytes, one after the other.
PEAK_BYTES = 8 << 20


class Request(NamedTuple):
    key: int
    version: int
    message: Any

    @property
    def is_flexible(self) -> bool:
        return API[self.key].request.is_flexible(self.version)

    def body(self) -> bytes:
        return b"".join(encode_request(self.key, self.version, 1, "liar", self.message))[4:]


def telling_versions(key: int, versions: range) -> set[int]:
    """The oldest, the newest, and the first in which lengths and counts are varints."""
    flexible = [one for one in versions if API[key].request.is_flexible(one)]
    return {versions[0], versions[-1], *flexible[:1]}


# What only a broker with a metrics port serves is not served here; ApiVersions is answered
# whatever it holds, because who asks may be from the future.
REQUESTS = [
    Request(key, version, minimal(API[key].request, version))
    for key, served in SERVED.items()
    if not served.needs_receiver and key != 18
    for version in sorted(telling_versions(key, served.versions(key)))
]
FLEXIBLE = [one for one in REQUESTS if one.is_flexible]


def structs(message: Any, version: int) -> Iterator[Any]:
    """The message and all structs in it."""
    yield message
    for field in fields_of(type(message)):
        if not field.exists_in(version) or field.spec.tag is not None:
            continue
        value = getattr(message, field.name)
        match field.kind:
            case StructOf():
                yield from structs(value, version)
            case ArrayOf(StructOf()):
                yield from chain.from_iterable(structs(one, version) for one in value)


def difference(one: bytes, other: bytes) -> int:
    """Where two encodings of a message part: in the number in which they differ."""
    return next(at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)


def lying_arrays(request: Request) -> Iterator[bytes]:
    """The request, each time with another array whose length is a lie."""
    for holder in structs(request.message, request.version):
        for field in fields_of(type(holder)):
            is_there = field.exists_in(request.version) and field.spec.tag is None
            if not isinstance(field.kind, ArrayOf) or not is_there:
                continue
            (element,) = elements = getattr(holder, field.name)
            honest = request.body()
            setattr(holder, field.name, [element, copy.copy(element)])
            at = difference(honest, request.body())
            setattr(holder, field.name, elements)
            for lie in LIES:
                if request.is_flexible:
                    yield honest[:at] + encode_uvarint(lie) + honest[at + 1 :]
                else:
                    yield honest[: at - 3] + struct.pack(">i", lie) + honest[at + 1 :]


def lying_tags(request: Request) -> Iterator[bytes]:
    """The request, each time with another tag section whose count is a lie."""
    honest = request.body()
    for holder in structs(request.message, request.version):
        holder.unknown_tagged_fields = {99: b""}
        at = difference(honest, request.body())
        holder.unknown_tagged_fields = None
        yield from lying_at(honest, at)


def lying_header(request: Request) -> Iterator[bytes]:
    """The request with a lie in the tag section of its header."""
    yield from lying_at(request.body(), struct.calcsize(">hhih") + len("liar"))


def lying_at(honest: bytes, at: int) -> Iterator[bytes]:
    assert honest[at] == 0, "no tags"
    for lie in LIES:
        yield honest[:at] + encode_uvarint(lie) + honest[at + 1 :]


@pytest.fixture
def broker() -> Iterator[Broker]:
    # Thousands of new connections: the limit on their rate has its own test.
    config = BrokerConfig(limits=BrokerLimits(connections_per_second=1_000_000))
    with Broker(config=config) as broker:
        yield broker


def refuse_all(broker: Broker, bodies: Iterable[bytes]) -> int:
    """Send each on a connection of its own, which must be cut; how many there were."""
    count = 0
    with RawClient(broker.port) as bystander:
        bystander.ask(MetadataRequest(topics=[]))
        tracemalloc.start()
        try:
            for body in bodies:
                count += 1
                with RawClient(broker.port) as liar:
                    liar.sock.sendall(struct.pack(">i", len(body)) + body)
                    assert liar.is_cut(), body.hex(" ")
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak_bytes < PEAK_BYTES
        assert bystander.ask(MetadataRequest(topics=[])).brokers
    assert broker.counters()["in_flight_bytes"] == 0
    return count


@pytest.mark.slow
def test_array_lengths_that_lie_are_refused_cve_2026_111108(broker):
    count = refuse_all(broker, chain.from_iterable(map(lying_arrays, REQUESTS)))
    assert count > 500
    assert broker.counters()["errors"] == {"undecodable": count}


@pytest.mark.slow
def test_tagged_field_counts_that_lie_are_refused_cve_2026_111115(broker):
    count = refuse_all(broker, chain.from_iterable(map(lying_tags, FLEXIBLE)))
    assert count > 400
    assert broker.counters()["errors"] == {"undecodable": count}


@pytest.mark.slow
def test_tagged_field_counts_that_lie_in_a_header_are_refused_cve_2026_111115(broker):
    assert refuse_all(broker, chain.from_iterable(map(lying_header, FLEXIBLE))) > 100
    assert not broker.counters()["errors"]
