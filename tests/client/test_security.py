"""SASL exchanges against the RFC's example and against a server written from the RFC."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from shoal.client.config import AdminConfig
from shoal.client.security import exchange_for, scram, tls_context
from shoal.errors import AuthenticationError, ConfigError


def test_scram_sha_256_is_the_example_of_rfc_7677():
    exchange = scram("user", "pencil", "sha256", "rOprNGfwEbeRWgbNEkqO")
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    final = exchange.send(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    with pytest.raises(StopIteration):
        exchange.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (b"r=other,s=W22Z,i=4096", "nonce"),
        (b"r=n,s=W22Z,i=4096", "nonce"),
        (b"r=nmore,s=W22Z,i=1", "iterations"),
        (b"r=nmore,s=W22Z,i=999999999", "iterations"),
        (b"nonsense", "malformed"),
        (b"r=nmore,s=!!,i=4096", "malformed"),
    ],
)
def test_a_server_that_cheats_at_first_is_refused(first, why):
    exchange = scram("u", "p", "sha512", "n")
    next(exchange)
    with pytest.raises(AuthenticationError, match=why):
        exchange.send(first)


@pytest.mark.parametrize("final", [b"v=AAAA", b"v=!", b"", b"e=invalid-proof"])
def test_a_server_that_cannot_prove_itself_is_refused(final):
    exchange = scram("u", "p", "sha256", "n")
    next(exchange)
    exchange.send(b"r=nmore,s=W22Z,i=4096")
    with pytest.raises(AuthenticationError):
        exchange.send(final)


def test_names_with_commas_are_quoted():
    assert next(scram("a,b=c", "p", "sha256", "n")) == b"n,,n=a=2Cb=3Dc,r=n"


def test_plain_sends_both_at_once():
    config = AdminConfig(security_protocol="SASL_PLAINTEXT", sasl_username="u", sasl_password="p")
    exchange = exchange_for(config)
    assert next(exchange) == b"\0u\0p"
    with pytest.raises(StopIteration):
        exchange.send(b"")


def test_tls_files_that_are_not_there_are_named():
    assert tls_context(AdminConfig()) is None
    with pytest.raises(ConfigError, match=r"nowhere\.pem"):
        tls_context(AdminConfig(security_protocol="SSL", ssl_cafile="nowhere.pem"))


def test_the_proof_of_sha_512_is_what_a_server_expects():
    exchange = scram("u", "pass", "sha512", "abc")
    first = next(exchange).decode().removeprefix("n,,")
    salt, rounds = b"salt", 5000
    server_first = f"r=abcdef,s={base64.b64encode(salt).decode()},i={rounds}"
    final = exchange.send(server_first.encode()).decode()
    without_proof, proof = final.rsplit(",p=", 1)
    message = f"{first},{server_first},{without_proof}".encode()
    key = hmac.digest(hashlib.pbkdf2_hmac("sha512", b"pass", salt, rounds), b"Client Key", "sha512")
    signature = hmac.digest(hashlib.sha512(key).digest(), message, "sha512")
    recovered = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
    assert hashlib.sha512(recovered).digest() == hashlib.sha512(key).digest()
