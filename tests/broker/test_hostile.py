"""Hostile bytes against a live broker: no crash, no stall, no growth; other clients go on.

Every API in every version is sent as its smallest message and then with one byte changed, one
length replaced, cut or extended. The broker may answer or close the connection; whatever it does,
a well-behaved client on another connection must be served at once afterwards.
"""

from __future__ import annotations

import random
import socket
import struct

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.broker.config import BrokerConfig, Limits
from shoal.broker.handlers import SUPPORTED
from shoal.testing.broker import Broker
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.registry import API
from shoal.wire.frames import encode_request
from tests.broker.asking import produce
from tests.broker.messages import minimal
from tests.broker.raw_client import RawClient, batch

PAIRS = [
    (key, version)
    for key, support in SUPPORTED.items()
    for version in range(support.min_version, support.max_version + 1)
]
NASTY = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff" * 10, b"\0" * 8)


def frame_of(key: int, version: int) -> bytes:
    message = minimal(API[key].request, version)
    return b"".join(encode_request(key, version, 1, "hostile", message))


def mutations(frame: bytes, rng: random.Random, count: int) -> list[bytes]:
    """Changed bodies behind a right length: the frame is taken, its content is the attack."""
    body = frame[4:]
    found = []
    for _ in range(count):
        changed = bytearray(body)
        # The first 8 bytes name the API; what is beyond is its message.
        at = rng.randrange(8, len(changed)) if len(changed) > 8 else 0
        match rng.randrange(5):
            case 0:
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                nasty = rng.choice(NASTY)
                changed[at : at + len(nasty)] = nasty
            case 2:
                del changed[at:]
            case 3:
                changed += rng.randbytes(rng.randrange(1, 64))
            case _:
                changed[at:at] = rng.choice(NASTY)
        found.append(struct.pack(">i", len(changed)) + bytes(changed))
    return found


def throw(port: int, frames: list[bytes]) -> None:
    """Send, read what comes back, do not care what it is; open anew when cut."""
    sock = None
    for frame in frames:
        if sock is None:
            sock = socket.create_connection(("127.0.0.1", port), timeout=0.02)
        try:
            sock.sendall(frame)
            if not sock.recv(65536):
                raise ConnectionError
        except TimeoutError:
            # No reply (parked, or a frame without an end): as good as any.
            sock.close()
            sock = None
        except ConnectionError:
            sock.close()
            sock = None
    if sock is not None:
        sock.close()


def serves(broker: Broker) -> None:
    with RawClient(broker.port, timeout=5) as client:
        assert client.ask(MetadataRequest(topics=[])).brokers


def test_the_smallest_message_of_every_api_and_version_gets_a_reply(shared_broker):
    for key, version in PAIRS:
        if key == 36:
            continue
        with RawClient(shared_broker.port, timeout=5) as client:
            client.sock.sendall(frame_of(key, version))
            # A group request may be parked; everything else must answer.
            if key not in (11, 14):
                assert client.receive(key, version) is not None
    assert not shared_broker.counters()["errors"].get("undecodable")


@pytest.mark.slow
def test_one_field_mutations_of_every_api_and_version_harm_nobody(caplog):
    rng = random.Random(20)
    # Thousands of new connections: the limit on their rate has its own test.
    config = BrokerConfig(limits=Limits(connections_per_second=1_000_000))
    with Broker(config=config) as broker:
        process = psutil.Process()
        serves(broker)
        before = process.memory_info().rss
        for key, version in PAIRS:
            throw(broker.port, mutations(frame_of(key, version), rng, 60))
        serves(broker)
        counters = broker.counters()
        assert counters["in_flight_bytes"] == 0
        failed = {
            k: v for k, v in counters["errors"].items() if k in {a.name for a in API.values()}
        }
        assert not failed, "a handler raised: see the log"
        assert process.memory_info().rss - before < 100 << 20
        assert counters["loop_lag_ms"]["max"] < 500


@settings(max_examples=60)
@given(st.binary(min_size=1, max_size=200))
def test_random_bytes_harm_nobody(shared_broker, data):
    throw(shared_broker.port, [data, struct.pack(">i", len(data)) + data])
    serves(shared_broker)


@pytest.mark.parametrize("size", [-1, 0, 1, 7, 100 << 20, (1 << 31) - 1])
def test_a_frame_of_any_announced_size_costs_only_what_arrives(shared_broker, size):
    process = psutil.Process()
    before = process.memory_info().rss
    socks = [socket.create_connection(("127.0.0.1", shared_broker.port)) for _ in range(20)]
    for sock in socks:
        sock.sendall(struct.pack(">i", size) + b"x" * 100)
    serves(shared_broker)
    assert process.memory_info().rss - before < 30 << 20
    for sock in socks:
        sock.close()


def test_a_million_elements_in_one_request_are_refused(shared_broker):
    names = struct.pack(">i", 400_000) + b"\0\1x" * 400_000
    body = struct.pack(">hhih", 3, 1, 1, -1) + names
    with RawClient(shared_broker.port) as client:
        client.sock.sendall(struct.pack(">i", len(body)) + body)
        assert client.is_cut()
    serves(shared_broker)


def test_a_broken_batch_does_not_stop_the_next_one(shared_broker, topic):
    good = batch(b"good")
    with RawClient(shared_broker.port) as client:
        for position in range(len(good)):
            bad = bytearray(good)
            bad[position] ^= 0xFF
            produce(client, topic, bytes(bad))
        answer = produce(client, topic, good)
        assert answer.error_code == 0
