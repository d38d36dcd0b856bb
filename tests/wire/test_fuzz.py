"""Broken bytes: nothing but our own errors comes out, and memory stays bounded.

Bytes are made by mutating valid messages, because random ones hardly get past the first length.
"""

from __future__ import annotations

import contextlib
import time
import tracemalloc
from random import Random

import pytest

from shoal.errors import InvalidFrameError, InvalidMessageError
from shoal.wire import consumer_protocol, offsets_topic
from shoal.wire.apis.registry import API
from shoal.wire.frames import decode_request_header, decode_response, encode_request
from shoal.wire.schema import Message
from tests.wire.values import ALL_PAIRS, Builder

INTERESTING = [0, 1, 0x7F, 0x80, 0xFE, 0xFF]
WIDE = [
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xfe",
]
# Objects for elements within the budget, and the text of the error: a few hundred bytes each.
MEMORY_MAX_BYTES = 48 << 20


def mutated(random: Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(random.randint(1, 4)):
        position = random.randrange(len(out) + 1)
        match random.randrange(6):
            case 0 if position < len(out):
                out[position] = random.choice(INTERESTING)
            case 1 if position < len(out):
                out[position] ^= 1 << random.randrange(8)
            case 2:
                out[position : position + random.randrange(4)] = random.choice(WIDE)
            case 3:
                del out[position : position + random.randint(1, 8)]
            case 4:
                out[position:position] = random.randbytes(random.randint(1, 8))
            case _:
                out[position:position] = out[: random.randrange(64)]
    return bytes(out)


def decode_and_encode_again(kind: type[Message], version: int, data: bytes) -> None:
    """What decodes must be a message that encodes, and to bytes which stay the same from then on.

    Values are not compared: a NaN is not equal to itself, and a tagged struct of defaults that
    was written out is read back as none.
    """
    try:
        message = kind.decode(data, version)
    except InvalidMessageError:
        return
    again = message.encode(version)
    assert kind.decode(again, version).encode(version) == again


def fuzz_messages(random: Random) -> None:
    kind, version = random.choice(ALL_PAIRS)
    data = Builder(random, version).message(kind).encode(version)
    decode_and_encode_again(kind, version, mutated(random, data))


def fuzz_frames(random: Random) -> None:
    spec = random.choice(list(API.values()))
    version = random.randint(spec.min_version, spec.max_version)
    message = Builder(random, version).message(spec.request)
    stream = b"".join(encode_request(spec.key, version, 1, "fuzz", message))
    broken = mutated(random, stream)
    with contextlib.suppress(InvalidFrameError):
        header, body = decode_request_header(broken[4:])
        if (asked := API.get(header.api_key)) and asked.has_version(header.api_version):
            asked.request.decode(body, header.api_version)
    with contextlib.suppress(InvalidFrameError):
        decode_response(broken[4:], spec.key, version)


def fuzz_inner_formats(random: Random) -> None:
    data = mutated(random, random.choice(SAMPLES))
    for decode in (
        consumer_protocol.ConsumerProtocolSubscription.decode,
        consumer_protocol.ConsumerProtocolAssignment.decode,
        consumer_protocol.subscribed_topics,
        offsets_topic.decode_key,
    ):
        with contextlib.suppress(InvalidMessageError):
            decode(data)
    for key_type, _ in offsets_topic.RECORD_TYPES.values():
        with contextlib.suppress(InvalidMessageError):
            offsets_topic.decode_value(key_type.__new__(key_type), data)


SAMPLES = [
    bytes.fromhex(
        "0003 00000002 000161 000162 00000004 00000007 00000001 000161 00000001 00000000"
    ),
    bytes.fromhex("0003 00000001 000162 00000001 00000001 ffffffff"),
    bytes.fromhex("000409636f6e73756d6572000000030672616e676500000000000000004d02026d026900"),
    bytes.fromhex("000100016700017400000001"),
    bytes.fromhex("00000101026302680101ffffffff0001000701000000070100"),
]


def fuzz(seconds: float, seed: int) -> int:
    """Runs until the time is up; returns the number of inputs. A failure names its seed."""
    end = time.monotonic() + seconds
    count = 0
    while time.monotonic() < end:
        for target in (fuzz_messages, fuzz_frames, fuzz_inner_formats):
            random = Random(f"{seed} {count}")
            try:
                target(random)
            except BaseException as error:
                error.add_note(f"{target.__name__}(Random('{seed} {count}'))")
                raise
        count += 1
    return count


@pytest.mark.slow
def test_a_few_seconds_of_broken_bytes():
    assert fuzz(3, seed=1) > 100


@pytest.mark.long
def test_a_minute_of_broken_bytes():
    assert fuzz(60, seed=time.time_ns()) > 1000


@pytest.mark.slow
def test_memory_stays_bounded_under_broken_bytes():
    random = Random(2)
    fuzz(1, seed=2)  # the codecs themselves are compiled and kept
    for kind, version in random.sample(ALL_PAIRS, 60):
        data = Builder(random, version).message(kind).encode(version)
        inputs = [mutated(random, data * 20) for _ in range(10)]
        for each in inputs:
            decode_and_encode_again(kind, version, each)
        tracemalloc.start()
        try:
            for each in inputs:
                decode_and_encode_again(kind, version, each)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < MEMORY_MAX_BYTES
