"""Tokens: which are taken, as whom, and the tricks that were played on others."""

from __future__ import annotations

import hmac
import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from shoal.access.bearer_tokens import (
    ALGORITHMS,
    TokenRefusedError,
    TokenRules,
    check_token,
    check_unsecured,
    key_id_of,
    read_client_first,
    refusal_message,
)
from shoal.access.json_web_keys import read_key_set
from tests.peers import identity_provider
from tests.peers.identity_provider import AUDIENCE, ISSUER, key_set, shared_key, text, unsecured

KEY = shared_key()
RULES = TokenRules(issuer=ISSUER, audience=(AUDIENCE, "kafka-2"))
NOW = int(time.time())


@pytest.fixture(autouse=True)
def _tokens_are_made_now(monkeypatch):
    """However long ago this module was loaded: in a long run that is a quarter of an hour."""
    monkeypatch.setattr(identity_provider, "time", SimpleNamespace(time=lambda: NOW))


def check(token, rules=RULES, keys=(KEY,), now_s=NOW):
    return check_token(token, read_key_set(key_set(*keys)), rules, now_s * 1000)


def refusal(token, rules=RULES, keys=(KEY,), now_s=NOW):
    with pytest.raises(TokenRefusedError) as caught:
        check(token, rules, keys, now_s)
    return str(caught.value)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_signed_token_says_who_comes_and_until_when(algorithm):
    key = shared_key(algorithm)
    rules = RULES._replace(algorithms=(algorithm,))
    assert check(key.token(exp=NOW + 60), rules, (key,)) == ("ann", (NOW + 60) * 1000)


def test_the_principal_comes_from_the_claim_that_is_set():
    rules = RULES._replace(principal_claim="client_id")
    assert check(KEY.token(client_id="billing"), rules).name == "billing"
    assert refusal(KEY.token(), rules) == "client_id is missing, not a name"


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"iss": "https://evil.example"}, "iss is 'https://evil.example', not"),
        ({"iss": ...}, "iss is missing"),
        ({"iss": [ISSUER]}, "iss is ['https"),
        ({"iss": ISSUER + "/"}, "iss is"),
        ({"aud": "other"}, "aud is 'other', none of kafka, kafka-2"),
        ({"aud": ["other"]}, "none of kafka"),
        ({"aud": []}, "none of kafka"),
        ({"aud": ...}, "aud is neither"),
        ({"aud": {"kafka": 1}}, "aud is neither"),
        ({"aud": ["kafka", 7]}, "aud is neither"),
        ({"exp": NOW - 31}, "it expired 31 s ago"),
        ({"exp": ...}, "exp is missing, not a time"),
        ({"exp": True}, "exp is True, not a time"),
        ({"exp": str(NOW + 60)}, "not a time"),
        ({"exp": float("inf")}, "not a time"),
        ({"exp": float("nan")}, "not a time"),
        ({"exp": 10**30}, "not a time"),
        ({"iat": ...}, "iat is missing, not a time"),
        ({"iat": NOW + 40}, "it will be issued in 40 s"),
        ({"iat": NOW + 20, "exp": NOW + 10}, "expires before"),
        ({"nbf": NOW + 40}, "not good before 40 s"),
        ({"nbf": False}, "nbf is False, not a time"),
        ({"sub": ...}, "sub is missing, not a name"),
        ({"sub": ["ann"]}, "not a name"),
        ({"sub": " "}, "not a name"),
        ({"sub": "*"}, "everybody or nobody"),
        ({"sub": "ANONYMOUS"}, "everybody or nobody"),
        ({"sub": "a\nb"}, "control characters"),
        ({"sub": "\ud800"}, "control characters"),
        ({"sub": "a" * 257}, "too long"),
    ],
)
def test_a_claim_that_does_not_fit_is_refused_in_one_line(claims, reason):
    said = refusal(KEY.token(**claims))
    assert reason in said
    assert "\n" not in said


def test_clocks_may_differ_a_little():
    assert check(KEY.token(exp=NOW - 29)).expires_ms == (NOW + 1) * 1000
    assert check(KEY.token(iat=NOW + 29)).name == "ann"
    assert check(KEY.token(nbf=NOW + 29)).name == "ann"
    exact = RULES._replace(clock_skew_seconds=0)
    assert "expired" in refusal(KEY.token(exp=NOW), exact)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"alg": "none"}, "alg 'none' is not allowed"),
        ({"alg": "None"}, "alg 'None' is not allowed"),
        ({"alg": ...}, "alg 'None' is not allowed"),
        ({"alg": ["RS256"]}, "is not allowed"),
        ({"alg": "PS512"}, "alg 'PS512' is not allowed"),
        ({"alg": "PS256"}, "there is no key 'one' for PS256"),
        ({"alg": "ES256"}, "there is no key 'one' for ES256"),
        ({"kid": "two"}, "there is no key 'two'"),
        ({"kid": 1}, "kid is not text"),
        ({"crit": ["exp"]}, "crit that is not understood"),
        ({"jwk": {}}, "brings its own key (jwk)"),
        ({"jku": "https://evil.example"}, "brings its own key (jku)"),
        ({"x5u": "https://evil.example"}, "brings its own key (x5u)"),
        ({"x5c": []}, "brings its own key (x5c)"),
        ({"typ": "dpop+jwt"}, "is not an access token"),
        ({"typ": 5}, "is not an access token"),
    ],
)
def test_a_header_does_not_decide_how_it_is_checked(header, reason):
    assert reason in refusal(KEY.token(header))


def test_an_rsa_key_is_no_secret_of_hmac():
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = KEY.private.public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head, claims, _ = KEY.token({"alg": "HS256"}).split(".")
    signature = text(hmac.digest(pem, f"{head}.{claims}".encode(), "sha256"))
    assert "alg 'HS256' is not allowed" in refusal(f"{head}.{claims}.{signature}")


def test_claims_of_one_token_with_the_signature_of_another_are_refused():
    good, other = KEY.token().split("."), KEY.token(sub="admin").split(".")
    assert refusal(f"{good[0]}.{other[1]}.{good[2]}") == "the signature is wrong"
    assert refusal(f"{good[0]}.{good[1]}.") == "the signature is wrong"
    assert "not base64url" in refusal(f"{good[0]}.{good[1]}.+++")
    foreign = shared_key("RS256", "foreign").token({"kid": "one"})
    assert refusal(foreign) == "the signature is wrong"


def test_a_name_that_stands_twice_is_refused():
    head, _, _ = KEY.token().split(".")
    claims = text(b'{"sub":"ann","sub":"admin"}')
    signed = f"{head}.{claims}"
    token = f"{signed}.{text(KEY.signature(signed.encode()))}"
    assert "claims cannot be read" in refusal(token)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        "a.b.c.d.e",
        "....",
        "." * 10_000,
        "a" * (65 << 10),
        f"{text(b'[' * 20_000)}.{text(b'{}')}.",
        f"{text(b'[]')}.{text(b'{}')}.",
        f"{text(b'{' + bytes([255]) + b'}')}.x.y",
    ],
)
def test_what_is_no_token_is_refused_quickly(token):
    began = time.process_time()
    assert refusal(token)
    assert time.process_time() - began < 0.2


def test_a_scope_is_a_text_or_a_list_and_all_of_it_is_needed():
    rules = RULES._replace(required_scope=("kafka.read", "kafka.write"))
    assert check(KEY.token(scope="kafka.write kafka.read more"), rules).name == "ann"
    assert check(KEY.token(scope=["kafka.write", "kafka.read"]), rules).name == "ann"
    scopes: tuple[Any, ...] = ("kafka.read", "kafka.read.kafka.write", ..., [])
    for scope in scopes:
        with pytest.raises(TokenRefusedError, match="is missing") as caught:
            check(KEY.token(scope=scope), rules)
        told = json.loads(refusal_message(caught.value, rules))
        assert told == {"status": "insufficient_scope", "scope": "kafka.read kafka.write"}
    assert "neither" in refusal(KEY.token(scope={"kafka.read": 1}), rules)
    named = rules._replace(scope_claim="scp")
    assert check(KEY.token(scp=["kafka.read", "kafka.write"]), named).name == "ann"


def test_who_is_refused_learns_no_reason():
    with pytest.raises(TokenRefusedError) as caught:
        check(KEY.token(iss="elsewhere"))
    assert refusal_message(caught.value, RULES) == b'{"status":"invalid_token"}'


def test_unsecured_tokens_are_a_mode_of_their_own():
    rules = TokenRules()
    assert check_unsecured(unsecured(), rules, NOW * 1000).name == "ann"
    with pytest.raises(TokenRefusedError, match="unsecured tokens only"):
        check_unsecured(KEY.token(), rules, NOW * 1000)
    with pytest.raises(TokenRefusedError, match="unsecured tokens only"):
        check_unsecured(unsecured() + "AAAA", rules, NOW * 1000)
    with pytest.raises(TokenRefusedError, match="expired"):
        check_unsecured(unsecured(exp=NOW - 40, iat=NOW - 60), rules, NOW * 1000)
    with pytest.raises(TokenRefusedError, match="iss"):
        check_unsecured(unsecured(), RULES, NOW * 1000)
    everything = RULES._replace(algorithms=ALGORITHMS)
    assert "alg 'none'" in refusal(unsecured(iss=ISSUER, aud=AUDIENCE), everything)


def test_the_key_of_a_token_is_found_before_it_is_checked():
    assert key_id_of(KEY.token()) == "one"
    assert key_id_of(KEY.token({"kid": 7})) is None
    assert key_id_of("nonsense") is None


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"n,,\x01auth=Bearer a.b.c\x01\x01", ("a.b.c", None)),
        (b"n,a=ann,\x01auth=Bearer a.b.c\x01\x01", ("a.b.c", "ann")),
        (b"n,a=a=2Cb=3D,\x01auth=Bearer a.b.c\x01\x01", ("a.b.c", "a,b=")),
        (b"n,,\x01auth=bEARER   a.b.c==\x01\x01", ("a.b.c==", None)),
        (b"n,,\x01auth=Bearer a.b.c\x01logicalCluster=lkc-1\x01pool= x y\x01\x01", ("a.b.c", None)),
    ],
)
def test_a_first_message_is_taken_apart_as_kafka_does(message, expected):
    assert read_client_first(message) == expected


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01",
        b"n,,\x01auth=Basic a.b.c\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
        b"n,,\x01x-y=1\x01auth=Bearer a\x01\x01",
        b"n,,\x01key=\xff\x01auth=Bearer a\x01\x01",
        b"y,,\x01auth=Bearer a.b.c\x01\x01",
        b"p=tls,,\x01auth=Bearer a.b.c\x01\x01",
        b"n,a=\xff,\x01auth=Bearer a.b.c\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01\x01more",
    ],
)
def test_another_first_message_is_refused(message):
    with pytest.raises(TokenRefusedError):
        read_client_first(message)
