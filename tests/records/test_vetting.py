"""Batches that are well sealed and wrong inside: both kernels find them, and say the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import BatchTooLargeError
from shoal.records import kernel
from shoal.records.batch import HEADER_SIZE, encode_batch, read_header, seal
from shoal.records.compression import Codec, compress
from shoal.records.vetting import Facts, quick_vetter, vet, why_not

TIME_MS = 1_700_000_000_000


@pytest.fixture(params=["python", "c"])
def each_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "c" and kernel.native() is None:
        pytest.skip("the kernel is not built")
    monkeypatch.setenv("SHOAL_KERNEL", request.param)
    return request.param


def sealed(body: bytes, count: int, codec: int = 0, *, pack: bool = True) -> bytes:
    return seal(
        compress(codec, body) if codec and pack else body,
        base_offset=0,
        leader_epoch=-1,
        attributes=codec,
        last_offset_delta=count - 1,
        base_timestamp_ms=TIME_MS,
        max_timestamp_ms=TIME_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )


def body_of(count: int) -> bytes:
    records = [(b"key", b"value", [("h", b"x")], TIME_MS)] * count
    return encode_batch(records)[HEADER_SIZE:]


THREE = body_of(3)
WRONG = {
    "a count too high": (THREE, 4),
    "a count too low": (THREE, 2),
    "the highest count": (THREE, 2**31 - 1),
    "bytes left over": (THREE + b"xx", 3),
    "a byte missing": (THREE[:-1], 3),
    "no record": (b"", 1),
    "a record longer than it is": (bytes([THREE[0] + 2]) + THREE[1:], 3),
    "a record shorter than it is": (bytes([THREE[0] - 2]) + THREE[1:], 3),
    "one offset three times": (body_of(1) * 3, 3),
}
every_codec = pytest.mark.parametrize("codec", list(Codec))


@every_codec
@pytest.mark.parametrize("wrong", WRONG)
def test_a_batch_that_is_wrong_inside_is_found(each_kernel, wrong, codec):
    body, count = WRONG[wrong]
    batch = sealed(body, count, codec)
    assert vet(batch) is None
    assert vet(bytearray(batch)) is None
    assert why_not(batch)
    if codec is Codec.NONE:
        assert quick_vetter()(bytearray(batch)) is None


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_codec_that_lies_is_found(each_kernel, codec):
    assert vet(sealed(THREE, 3, codec, pack=False)) is None
    packed = compress(codec, THREE)
    assert vet(sealed(packed[:-3], 3, codec, pack=False)) is None


@every_codec
def test_what_is_right_is_told(each_kernel, codec):
    records = [
        (b"k", b"v", (), TIME_MS),
        (None, None, (), TIME_MS - 5),
        (b"", b"", (), TIME_MS + 7),
    ]
    batch = encode_batch(records, codec=codec)
    assert vet(batch) == vet(memoryview(batch)) == Facts(1, TIME_MS - 5, TIME_MS + 7)
    if codec is Codec.NONE:
        assert quick_vetter()(bytearray(batch)) == TIME_MS + 7


@every_codec
def test_what_inflates_beyond_the_limit_is_said_to(each_kernel, codec):
    batch = encode_batch([(None, bytes(100_000), (), TIME_MS)], codec=codec)
    assert vet(batch, limit_bytes=101_000) == Facts(1, TIME_MS, TIME_MS)
    if codec:
        with pytest.raises(BatchTooLargeError):
            vet(batch, limit_bytes=1_000)


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 255)), min_size=1, max_size=3))
def test_both_kernels_agree_about_damaged_records(flips):
    body = bytearray(body_of(5))
    for position, flip in flips:
        body[position % len(body)] ^= flip
    batch = sealed(bytes(body), 5)
    found = {}
    for name in ("python", "c"):
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("SHOAL_KERNEL", name)
            found[name] = vet(batch)
    assert found["python"] == found["c"]


def test_a_batch_of_which_only_the_header_is_there_is_wrong(each_kernel):
    batch = sealed(b"", 1)
    assert len(batch) == HEADER_SIZE
    assert vet(batch) is None
    assert read_header(batch).record_count == 1
