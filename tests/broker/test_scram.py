"""The server's half of SCRAM, against the RFCs' own exchanges and against a client written here."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.broker.scram import (
    HASHES,
    AuthenticationRefusedError,
    Credential,
    ScramServer,
    make_credential,
    parse_plain,
    password_matches,
)

# RFC 7677, section 3: user "user", password "pencil".
RFC_SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
RFC_CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
RFC_SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"


def server(credential: Credential | None, mechanism: str = "SCRAM-SHA-256") -> ScramServer:
    def lookup(user: str, wanted: str) -> Credential | None:
        return credential if user == "user" and wanted == mechanism else None

    return ScramServer(mechanism, lookup, RFC_SERVER_NONCE, b"decoy")


def prove(
    mechanism: str,
    password: str,
    first: bytes,
    reply: bytes,
    *,
    binding: str | None = None,
    nonce: str | None = None,
) -> tuple[bytes, bytes]:
    """The client's final message, and the verifier it expects.

    A client that knows the password can prove anything, also what was not agreed on.
    """
    digest = HASHES[mechanism]
    fields = dict(part.split("=", 1) for part in reply.decode().split(","))
    salted = hashlib.pbkdf2_hmac(
        digest, password.encode(), b64decode(fields["s"]), int(fields["i"])
    )
    client_key = hmac.digest(salted, b"Client Key", digest)
    bare = first.split(b",", 2)[2].decode()
    binding = binding or b64encode(first[: -len(bare)]).decode()
    unproved = f"c={binding},r={nonce or fields['r']}"
    text = f"{bare},{reply.decode()},{unproved}".encode()
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), text, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    verifier = hmac.digest(hmac.digest(salted, b"Server Key", digest), text, digest)
    return f"{unproved},p={b64encode(proof).decode()}".encode(), b"v=" + b64encode(verifier)


def test_the_exchange_of_rfc_7677_is_answered_byte_for_byte():
    credential = make_credential("SCRAM-SHA-256", "pencil", RFC_SALT, 4096)
    exchange = server(credential)
    assert exchange.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert (
        exchange.final(
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        )
        == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    )
    assert exchange.user == "user"


@pytest.mark.parametrize("mechanism", sorted(HASHES))
@given(password=st.text(min_size=1, max_size=20), salt=st.binary(min_size=8, max_size=32))
def test_the_right_password_passes_and_another_does_not(mechanism, password, salt):
    credential = make_credential(mechanism, password, salt, 4096)
    first = b"n,,n=user,r=abc"
    exchange = server(credential, mechanism)
    message, verifier = prove(mechanism, password, first, exchange.first(first))
    assert exchange.final(message) == verifier
    exchange = server(credential, mechanism)
    message, _ = prove(mechanism, password + "x", first, exchange.first(first))
    with pytest.raises(AuthenticationRefusedError, match="wrong user or password"):
        exchange.final(message)


def test_an_unknown_user_gets_a_stable_salt_and_is_refused_only_at_the_end():
    first = b"n,,n=nobody,r=abc"
    replies = [server(None).first(first) for _ in range(2)]
    assert replies[0] == replies[1]
    assert server(None).first(b"n,,n=other,r=abc") != replies[0]
    exchange = server(None)
    message, _ = prove("SCRAM-SHA-256", "pencil", first, exchange.first(first))
    with pytest.raises(AuthenticationRefusedError, match="wrong user or password"):
        exchange.final(message)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,n=user",
        b"n,,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,a=admin,n=user,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=abc,tokenauth=true",
        b"n,,m=ext,n=user,r=abc",
        b"\xff\xfe",
    ],
)
def test_a_first_message_out_of_order_is_refused(first):
    with pytest.raises(AuthenticationRefusedError):
        server(None).first(first)


@pytest.mark.parametrize(
    ("old", "new"), [("r=abc", "r=abx"), ("c=biws", "c=eSws"), (",p=", ",q="), ("p=", "p=AAAA")]
)
def test_a_final_message_that_does_not_follow_the_first_is_refused(old, new):
    credential = make_credential("SCRAM-SHA-256", "pencil", RFC_SALT, 4096)
    exchange = server(credential)
    first = b"n,,n=user,r=abc"
    message, _ = prove("SCRAM-SHA-256", "pencil", first, exchange.first(first))
    with pytest.raises(AuthenticationRefusedError):
        exchange.final(message.replace(old.encode(), new.encode(), 1))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [({"nonce": "of-an-older-exchange"}, "nonce"), ({"binding": "eSws"}, "binding")],
)
def test_the_right_password_does_not_make_up_for_another_exchange(changed, reason):
    credential = make_credential("SCRAM-SHA-256", "pencil", RFC_SALT, 4096)
    exchange = server(credential)
    first = b"n,,n=user,r=abc"
    reply = exchange.first(first)
    message, _ = prove("SCRAM-SHA-256", "pencil", first, reply, **changed)
    with pytest.raises(AuthenticationRefusedError, match=reason):
        exchange.final(message)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_are_refused_and_nothing_else_happens(first, final):
    exchange = server(make_credential("SCRAM-SHA-256", "pencil", RFC_SALT, 4096))
    with pytest.raises(AuthenticationRefusedError):
        exchange.first(first)
    exchange.first(b"n,,n=user,r=abc")
    with pytest.raises(AuthenticationRefusedError):
        exchange.final(final)


def test_iterations_outside_kafkas_bounds_are_refused():
    for iterations in (1, 4095, 16385, 1 << 31):
        with pytest.raises(ValueError, match="iterations"):
            make_credential("SCRAM-SHA-256", "pencil", RFC_SALT, iterations)


def test_plain_takes_a_user_and_a_password_and_nothing_else():
    assert parse_plain(b"\0user\0secret") == ("user", "secret")
    assert parse_plain(b"user\0user\0secret") == ("user", "secret")
    for token in (
        b"",
        b"\0user",
        b"\0user\0a\0b",
        b"admin\0user\0x",
        b"\0\0x",
        b"\0u\0",
        b"\0\xff\0x",
    ):
        with pytest.raises(AuthenticationRefusedError):
            parse_plain(token)


def test_a_plain_password_is_checked_against_the_derived_keys():
    credential = make_credential("SCRAM-SHA-512", "pencil", RFC_SALT, 4096)
    assert password_matches(credential, "pencil")
    assert not password_matches(credential, "Pencil")


def test_a_credential_does_not_show_its_keys():
    credential = make_credential("SCRAM-SHA-256", "pencil", RFC_SALT, 4096)
    assert repr(credential) == "Credential(SCRAM-SHA-256, iterations=4096)"
