"""Keys of an identity provider: what is read, what is left out, and what a key may check."""

from __future__ import annotations

import pytest

from shoal.access.bearer_tokens import ALGORITHMS
from shoal.access.json_web_keys import UnusableKeysError, read_key_set
from tests.peers.identity_provider import SigningKey, key_set, number, shared_key


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_key_checks_signatures_of_its_algorithm_and_no_others(algorithm):
    key = shared_key(algorithm)
    (read,) = read_key_set(key_set(key)).keys
    assert read.algorithms == {algorithm}
    signature = key.signature(b"signed")
    assert read.verify(algorithm, b"signed", signature)
    assert not read.verify(algorithm, b"Signed", signature)
    assert not read.verify(algorithm, b"signed", signature[:-1] + bytes([signature[-1] ^ 1]))
    assert not read.verify(algorithm, b"signed", b"")
    assert not read.verify(algorithm, b"signed", signature + b"\0")


def test_a_key_without_an_algorithm_checks_those_of_its_kind():
    jwk = {name: value for name, value in shared_key().jwk.items() if name != "alg"}
    (read,) = read_key_set(key_set(jwk)).keys
    assert read.algorithms == {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}


def test_a_token_that_names_no_key_fits_every_key_of_its_algorithm():
    keys = read_key_set(key_set(shared_key(), shared_key("ES256", "two")))
    assert [key.key_id for key in keys.fitting(None, "ES256")] == ["two"]
    assert [key.key_id for key in keys.fitting("one", "RS256")] == ["one"]
    assert keys.fitting("one", "ES256") == keys.fitting("three", "RS256") == []
    assert keys.knows(None)
    assert keys.knows("two")
    assert not keys.knows("three")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"use": "enc"}, "not for signatures"),
        ({"key_ops": ["sign"]}, "not for checking"),
        ({"key_ops": "verify"}, "not for checking"),
        ({"alg": "HS256"}, "alg 'HS256' does not fit"),
        ({"alg": "ES256"}, "alg 'ES256' does not fit"),
        ({"alg": "none"}, "alg 'none' does not fit"),
        ({"kty": "oct", "k": "c2VjcmV0"}, "kty 'oct' is not"),
        ({"kid": ["one"]}, "its kid is not text"),
        ({"n": number(2**1023 + 1)}, "2048 to 8192 bits"),
        ({"n": number(2**8200 + 1)}, "2048 to 8192 bits"),
        ({"e": number(2**64 + 1)}, "exponent is too large"),
        ({"n": "not/base64url"}, "not base64url"),
        ({"n": 3}, "not base64url"),
    ],
)
def test_a_key_that_cannot_be_used_is_left_out_with_a_reason(change, reason):
    bad = shared_key().jwk | change
    with pytest.raises(UnusableKeysError, match=reason):
        read_key_set(key_set(bad))
    keys = read_key_set(key_set(bad, shared_key("ES256", "two")))
    assert [key.key_id for key in keys.keys] == ["two"]
    assert len(keys.left_out) == 1
    assert reason.split(" is not")[0] in keys.left_out[0]


@pytest.mark.parametrize(
    ("algorithm", "change"),
    [
        ("ES256", {"crv": "secp256k1"}),
        ("ES256", {"y": number(1, 32)}),
        ("EdDSA", {"crv": "X25519"}),
        ("EdDSA", {"x": "AA"}),
        ("RS256", {"n": ...}),
    ],
)
def test_a_point_that_is_on_no_curve_is_no_key(algorithm, change):
    jwk = {k: v for k, v in (shared_key(algorithm).jwk | change).items() if v is not ...}
    with pytest.raises(UnusableKeysError, match="key 1"):
        read_key_set(key_set(jwk))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"keys": {}}',
        b'{"keys": []}',
        b'{"keys": [7]}',
        b"[" * 100_000,
        b" " * (1 << 20) + b"{}",
        b'{"keys": [' + b",".join([b"{}"] * 101) + b"]}",
        b"\xff",
    ],
)
def test_what_is_no_set_of_keys_is_refused(text):
    with pytest.raises(UnusableKeysError):
        read_key_set(text)


def test_an_rsa_key_of_another_size_still_works():
    key = SigningKey("PS256")
    (read,) = read_key_set(key_set(key)).keys
    assert read.verify("PS256", b"x", key.signature(b"x"))
