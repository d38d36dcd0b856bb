"""The keys that tokens are signed with: a JWK set (RFC 7517) in, keys that can check out.

Rule: a key checks the algorithms of its own kind and nothing else. It is never the sender of a
token who decides what a key is for: an RSA key is not an HMAC secret (algorithm confusion), a key
that names its algorithm has that one, and a key for encryption checks nothing. Keys that cannot be
used here are left out, with a reason; a set without any usable key is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from shoal.access.bearer_tokens import RSA_ALGORITHMS, decoded

SET_MAX_BYTES: Final = 1 << 20
KEYS_MAX: Final = 100
_RSA_BITS: Final = (2048, 8192)

_CURVES: Final[dict[str, tuple[type[ec.EllipticCurve], str, int]]] = {
    "P-256": (ec.SECP256R1, "ES256", 32),
    "P-384": (ec.SECP384R1, "ES384", 48),
    "P-521": (ec.SECP521R1, "ES512", 66),
}
_HASHES: Final[dict[str, type[hashes.HashAlgorithm]]] = {
    "256": hashes.SHA256,
    "384": hashes.SHA384,
    "512": hashes.SHA512,
}


class UnusableKeysError(ValueError):
    """A set of keys that nothing can be checked with; the text says why."""


class JsonWebKey(NamedTuple):
    """A public key, and the algorithms it may check."""

    key_id: str | None
    algorithms: frozenset[str]
    verify: Callable[[str, bytes, bytes], bool]
    """Algorithm, what was signed, signature: whether it is right."""


class KeySet(NamedTuple):
    """All keys of an identity provider at one time."""

    keys: tuple[JsonWebKey, ...]
    left_out: tuple[str, ...] = ()
    """Why other keys of the same set are not used."""

    def fitting(self, key_id: str | None, algorithm: str) -> list[JsonWebKey]:
        """The keys a token with this header may have been signed with.

        A token that names no key may have been signed with any of its algorithm.
        """
        return [
            key for key in self.keys if algorithm in key.algorithms and key_id in (None, key.key_id)
        ]

    def knows(self, key_id: str | None) -> bool:
        return key_id is None or any(key.key_id == key_id for key in self.keys)


def read_key_set(text: bytes) -> KeySet:
    """The keys of a JWK set.

    Raises:
        UnusableKeysError: it is none, or has no key that tokens can be checked with.
    """
    if len(text) > SET_MAX_BYTES:
        raise UnusableKeysError(f"the key set has more than {SET_MAX_BYTES} bytes")
    try:
        found = json.loads(text)
        given = found["keys"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise UnusableKeysError('it is not a JSON object with a list "keys"') from None
    if not isinstance(given, list) or len(given) > KEYS_MAX:
        raise UnusableKeysError(f'"keys" must be a list of at most {KEYS_MAX} keys')
    keys: list[JsonWebKey] = []
    left_out: list[str] = []
    for number, one in enumerate(given, 1):
        try:
            keys.append(_key(one))
        except (ValueError, TypeError, KeyError) as error:
            reason = str(error) if isinstance(error, ValueError) else "a field is missing or wrong"
            left_out.append(f"key {number}: {reason}")
    if not keys:
        raise UnusableKeysError("; ".join(left_out[:3]) or "it has no keys")
    return KeySet(tuple(keys), tuple(left_out))


def _key(jwk: Any) -> JsonWebKey:
    if not isinstance(jwk, dict):
        raise ValueError("it is not an object")
    if jwk.get("use", "sig") != "sig":
        raise ValueError("it is not for signatures")
    purposes = jwk.get("key_ops", ["verify"])
    if not isinstance(purposes, list) or "verify" not in purposes:
        raise ValueError("it is not for checking signatures")
    key_id = jwk.get("kid")
    if key_id is not None and not isinstance(key_id, str):
        raise ValueError("its kid is not text")
    make = _KINDS.get(jwk.get("kty", ""))
    if make is None:
        raise ValueError(f"kty {str(jwk.get('kty'))[:20]!r} is not RSA, EC or OKP")
    algorithms, verify = make(jwk)
    named = jwk.get("alg")
    if named is not None:
        algorithms &= {named}
    if not algorithms:
        raise ValueError(f"alg {str(named)[:20]!r} does not fit it")
    return JsonWebKey(key_id, algorithms, verify)


_Made = tuple[frozenset[str], Callable[[str, bytes, bytes], bool]]


def _rsa(jwk: Mapping[str, Any]) -> _Made:
    modulus = int.from_bytes(decoded(jwk["n"]))
    low, high = _RSA_BITS
    if not low <= modulus.bit_length() <= high:
        raise ValueError(f"an RSA key must have {low} to {high} bits")
    exponent = int.from_bytes(decoded(jwk["e"]))
    if exponent.bit_length() > 32:
        raise ValueError("its exponent is too large")
    key = rsa.RSAPublicNumbers(exponent, modulus).public_key()

    def verify(algorithm: str, signed: bytes, signature: bytes) -> bool:
        digest = _HASHES[algorithm[2:]]()
        scheme: padding.AsymmetricPadding = padding.PKCS1v15()
        if algorithm.startswith("PS"):
            scheme = padding.PSS(padding.MGF1(digest), salt_length=digest.digest_size)
        return _holds(lambda: key.verify(signature, signed, scheme, digest))

    return frozenset(RSA_ALGORITHMS), verify


def _ec(jwk: Mapping[str, Any]) -> _Made:
    if jwk["crv"] not in _CURVES:
        raise ValueError(f"crv {str(jwk['crv'])[:20]!r} is not P-256, P-384 or P-521")
    curve, name, size = _CURVES[jwk["crv"]]
    x, y = (int.from_bytes(decoded(jwk[axis])) for axis in "xy")
    key = ec.EllipticCurvePublicNumbers(x, y, curve()).public_key()

    def verify(algorithm: str, signed: bytes, signature: bytes) -> bool:
        if len(signature) != 2 * size:
            return False
        r, s = int.from_bytes(signature[:size]), int.from_bytes(signature[size:])
        digest = ec.ECDSA(_HASHES[algorithm[2:]]())
        return _holds(lambda: key.verify(encode_dss_signature(r, s), signed, digest))

    return frozenset({name}), verify


def _okp(jwk: Mapping[str, Any]) -> _Made:
    kinds: dict[str, Callable[[bytes], ed25519.Ed25519PublicKey | ed448.Ed448PublicKey]] = {
        "Ed25519": ed25519.Ed25519PublicKey.from_public_bytes,
        "Ed448": ed448.Ed448PublicKey.from_public_bytes,
    }
    if jwk["crv"] not in kinds:
        raise ValueError(f"crv {str(jwk['crv'])[:20]!r} is not Ed25519 or Ed448")
    key = kinds[jwk["crv"]](decoded(jwk["x"]))

    def verify(_: str, signed: bytes, signature: bytes) -> bool:
        return _holds(lambda: key.verify(signature, signed))

    return frozenset({"EdDSA"}), verify


_KINDS: Final[dict[str, Callable[[Mapping[str, Any]], _Made]]] = {
    "RSA": _rsa,
    "EC": _ec,
    "OKP": _okp,
}


def _holds(check: Callable[[], None]) -> bool:
    try:
        check()
    except (InvalidSignature, ValueError):
        return False
    return True
