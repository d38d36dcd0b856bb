"""Bearer tokens of SASL OAUTHBEARER: is this JSON Web Token good, and whose is it?

Rule: pure; keys and the time are arguments. Every claim is checked for its type before its value,
so that a list of issuers is not an issuer and ``true`` is not a time. What a token says about how
to check it counts only where the settings agree: the algorithm is one of a list, keys come from the
broker's own set (never from ``jwk``, ``jku`` or ``x5u`` in the token), and a header that must be
understood (``crit``) is refused. ``alg: none`` is not an algorithm; it is a mode of its own.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from shoal.access.json_web_keys import KeySet

RSA_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
ALGORITHMS: Final = (*RSA_ALGORITHMS, "ES256", "ES384", "ES512", "EdDSA")
DEFAULT_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
TOKEN_MAX_BYTES: Final = 64 << 10
_NAME_MAX: Final = 256
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_BASE64: Final = re.compile(r"[A-Za-z0-9_-]*")
# Ways in which a token would bring its own key.
_OWN_KEYS: Final = ("jwk", "jku", "x5u", "x5c")

INVALID: Final = "invalid_token"
INSUFFICIENT_SCOPE: Final = "insufficient_scope"


class TokenRefusedError(Exception):
    """The token is not good. ``status`` is for the client, the text for the broker's log."""

    def __init__(self, reason: str, status: str = INVALID) -> None:
        super().__init__(reason)
        self.status = status


class TokenRules(NamedTuple):
    """What a token must be like to be taken."""

    issuer: str = ""
    """Exactly this ``iss``; empty only where tokens are unsecured."""
    audience: tuple[str, ...] = ()
    """One of these must be in ``aud``; none given only where tokens are unsecured."""
    algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS
    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    """All of these must be in the scope."""
    clock_skew_seconds: int = 30
    """How far the clocks of broker and issuer may be apart."""


class TokenOwner(NamedTuple):
    """Who a good token is for, and until when."""

    name: str
    expires_ms: int


def key_id_of(token: str) -> str | None:
    """Which key a token says it was signed with, unchecked; to know which keys to look for."""
    try:
        found = _part(token.partition(".")[0], "header").get("kid")
    except TokenRefusedError:
        return None
    return found if isinstance(found, str) else None


def check_token(token: str, keys: KeySet, rules: TokenRules, now_ms: int) -> TokenOwner:
    """Who this token is for.

    Raises:
        TokenRefusedError: it is not good; says why.
    """
    header_text, claims_text, signature_text = _parts(token)
    header = _part(header_text, "header")
    _check_signature(header, f"{header_text}.{claims_text}", signature_text, keys, rules)
    claims = _part(claims_text, "claims")
    _check_origin(claims, rules)
    return _owner(claims, rules, now_ms)


def check_unsecured(token: str, rules: TokenRules, now_ms: int) -> TokenOwner:
    """Who a token without a signature says it is for. Anybody can write one."""
    header_text, claims_text, signature = _parts(token)
    if _part(header_text, "header").get("alg") != "none" or signature:
        raise TokenRefusedError("this listener takes unsecured tokens only (alg none)")
    claims = _part(claims_text, "claims")
    if rules.issuer or rules.audience:
        _check_origin(claims, rules)
    return _owner(claims, rules, now_ms)


def decoded(text: str) -> bytes:
    """Bytes from base64url without padding (RFC 7515). Raises ValueError if it is not that."""
    if not isinstance(text, str) or not _BASE64.fullmatch(text) or len(text) % 4 == 1:
        raise ValueError("it is not base64url")
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _parts(token: str) -> list[str]:
    if len(token) > TOKEN_MAX_BYTES:
        raise TokenRefusedError(f"the token has more than {TOKEN_MAX_BYTES} bytes")
    parts = token.split(".")
    if len(parts) != 3:
        what = "an encrypted one" if len(parts) == 5 else "none"
        raise TokenRefusedError(f"the token is not a signed JSON Web Token, but {what}")
    return parts


def _part(text: str, what: str) -> dict[str, Any]:
    try:
        found = json.loads(decoded(text), object_pairs_hook=_without_twins)
    except (ValueError, RecursionError):
        raise TokenRefusedError(f"the token's {what} cannot be read") from None
    if not isinstance(found, dict):
        raise TokenRefusedError(f"the token's {what} are not a JSON object")
    return found


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A claim that stands twice has two readers that disagree."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _check_signature(
    header: dict[str, Any], signed: str, signature_text: str, keys: KeySet, rules: TokenRules
) -> None:
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in rules.algorithms:
        raise TokenRefusedError(f"alg {str(algorithm)[:20]!r} is not allowed here")
    if "crit" in header:
        raise TokenRefusedError("the token's header has a crit that is not understood")
    for name in _OWN_KEYS:
        if name in header:
            raise TokenRefusedError(f"the token brings its own key ({name})")
    if key_id is not None and not isinstance(key_id, str):
        raise TokenRefusedError("kid is not text")
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in _TYPES:
        raise TokenRefusedError(f"typ {str(kind)[:20]!r} is not an access token")
    fitting = keys.fitting(key_id, algorithm)
    if not fitting:
        named = "" if key_id is None else f" {key_id[:40]!r}"
        raise TokenRefusedError(f"there is no key{named} for {algorithm}")
    try:
        signature = decoded(signature_text)
    except ValueError:
        raise TokenRefusedError("the signature is not base64url") from None
    if not any(key.verify(algorithm, signed.encode(), signature) for key in fitting):
        raise TokenRefusedError("the signature is wrong")


_TYPES: Final = ("jwt", "at+jwt")


def _check_origin(claims: dict[str, Any], rules: TokenRules) -> None:
    issuer = claims.get("iss")
    if not isinstance(issuer, str) or issuer != rules.issuer:
        raise TokenRefusedError(f"iss is {_shown(issuer)}, not {rules.issuer!r}")
    audience = claims.get("aud")
    given = [audience] if isinstance(audience, str) else audience
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise TokenRefusedError("aud is neither a text nor a list of texts")
    if not set(given) & set(rules.audience):
        raise TokenRefusedError(f"aud is {_shown(audience)}, none of {', '.join(rules.audience)}")


def _owner(claims: dict[str, Any], rules: TokenRules, now_ms: int) -> TokenOwner:
    now, skew = now_ms / 1000, rules.clock_skew_seconds
    expires = _time(claims, "exp", required=True)
    issued = _time(claims, "iat", required=True)
    not_before = _time(claims, "nbf", required=False)
    assert expires is not None
    assert issued is not None
    if now >= expires + skew:
        raise TokenRefusedError(f"it expired {now - expires:.0f} s ago")
    if issued > now + skew:
        raise TokenRefusedError(f"it will be issued in {issued - now:.0f} s: compare the clocks")
    if expires <= issued:
        raise TokenRefusedError("it expires before it is issued")
    if not_before is not None and not_before > now + skew:
        raise TokenRefusedError(f"it is not good before {not_before - now:.0f} s from now")
    _check_scope(claims, rules)
    # As in Kafka a session ends with its token. One that is taken only because clocks may differ
    # would end at once.
    until = expires if expires > now else expires + skew
    return TokenOwner(_name(claims, rules.principal_claim), int(until * 1000))


def _time(claims: dict[str, Any], name: str, *, required: bool) -> float | None:
    value: object = claims.get(name)
    if value is None and not required:
        return None
    # Up to the year 9999, which keeps infinities and NaN out as well.
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not 0 <= value <= 253_402_300_799
    ):
        raise TokenRefusedError(f"{name} is {_shown(value)}, not a time")
    return float(value)


def _check_scope(claims: dict[str, Any], rules: TokenRules) -> None:
    if not rules.required_scope:
        return
    given = claims.get(rules.scope_claim, "")
    scope = given.split() if isinstance(given, str) else given
    if not isinstance(scope, list) or not all(isinstance(one, str) for one in scope):
        raise TokenRefusedError(f"{rules.scope_claim} is neither a text nor a list of texts")
    missing = [one for one in rules.required_scope if one not in scope]
    if missing:
        raise TokenRefusedError(f"scope {' '.join(missing)!r} is missing", INSUFFICIENT_SCOPE)


def _name(claims: dict[str, Any], claim: str) -> str:
    name = claims.get(claim)
    if not isinstance(name, str) or not name.strip():
        raise TokenRefusedError(f"{claim} is {_shown(name)}, not a name")
    if len(name) > _NAME_MAX or _CONTROL.search(name):
        raise TokenRefusedError(f"{claim} is too long or has control characters")
    if name in ("*", "ANONYMOUS"):
        raise TokenRefusedError(f"{claim} is {name!r}, which means everybody or nobody")
    return name


def _shown(value: object) -> str:
    return "missing" if value is None else repr(value)[:80]


_CLIENT_FIRST: Final = re.compile(
    rb"n,(?:a=([^,\x00]+))?,\x01((?:[A-Za-z]+=[\x09\x0a\x0d\x20-\x7e]*\x01)*)\x01"
)
_BEARER: Final = re.compile(r"(?i:bearer) +([-_~+/.A-Za-z0-9]+=*)")
FIRST_REFUSED: Final = b"\x01"
"""What a client answers when it was told what is wrong with its token."""


class BearerMessage(NamedTuple):
    """A client's first message (RFC 7628)."""

    token: str
    acts_for: str | None


def read_client_first(message: bytes) -> BearerMessage:
    """Take a client's first message apart; extensions (KIP-342) are read and not used.

    Raises:
        TokenRefusedError: it is none.
    """
    match = _CLIENT_FIRST.fullmatch(message)
    if match is None:
        raise TokenRefusedError("the message is not that of OAUTHBEARER")
    acts_for = None
    if match[1] is not None:
        try:
            acts_for = match[1].decode().replace("=2C", ",").replace("=3D", "=")
        except UnicodeDecodeError:
            raise TokenRefusedError("the authorization identity is not UTF-8") from None
    pairs = [pair.decode().partition("=") for pair in match[2].split(b"\x01") if pair]
    tokens = [value for name, _, value in pairs if name.lower() == "auth"]
    bearer = _BEARER.fullmatch(tokens[0]) if len(tokens) == 1 else None
    if bearer is None:
        raise TokenRefusedError("the message has not exactly one bearer token")
    return BearerMessage(bearer[1], acts_for)


def refusal_message(error: TokenRefusedError, rules: TokenRules) -> bytes:
    """What the client is told: enough for a library to react, nothing for a stranger."""
    told = {"status": error.status}
    if error.status == INSUFFICIENT_SCOPE:
        told["scope"] = " ".join(rules.required_scope)
    return json.dumps(told, separators=(",", ":")).encode()
