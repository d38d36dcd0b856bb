"""SCRAM-SHA-256 and SCRAM-SHA-512, the server's half (RFC 5802, RFC 7677).

Rule: pure functions of messages, credentials and a nonce; no clock, no socket, no store. Only
keys derived from a password are ever kept, so nothing here can give a password back. An unknown
user goes through the same steps as a known one, with a credential made up from the name, so that
an answer does not tell which names exist.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
# Kafka's numbers in DescribeUserScramCredentials and AlterUserScramCredentials.
MECHANISM_CODES: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
ITERATIONS_DEFAULT: Final = 8_192
SALT_BYTES: Final = 24


class AuthenticationRefusedError(Exception):
    """The exchange failed. The text is for the audit log, never for the client."""


class WrongPasswordError(AuthenticationRefusedError):
    """Everything was in order but the proof: somebody guesses, or mistyped."""

    def __init__(self, user: str) -> None:
        super().__init__("wrong user or password")
        self.user = user


class PrincipalChangedError(AuthenticationRefusedError):
    """A connection whose name is proved again (KIP-368) keeps it."""


@dataclass(frozen=True, slots=True, repr=False)
class Credential:
    """What is kept of a password: enough to check it, not enough to use it."""

    mechanism: str
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"Credential({self.mechanism}, iterations={self.iterations})"


def salted_password(mechanism: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password, salt, iterations)


def credential_from_salted(
    mechanism: str, salted: bytes, salt: bytes, iterations: int
) -> Credential:
    digest = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", digest)
    return Credential(
        mechanism,
        salt,
        iterations,
        hashlib.new(digest, client_key).digest(),
        hmac.digest(salted, b"Server Key", digest),
    )


def make_credential(
    mechanism: str, password: str, salt: bytes, iterations: int = ITERATIONS_DEFAULT
) -> Credential:
    """Derive what is kept. The password itself is used here and forgotten."""
    if mechanism not in HASHES:
        raise ValueError(f"{mechanism!r} is not a SCRAM mechanism")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ValueError(f"iterations must be between {ITERATIONS_MIN} and {ITERATIONS_MAX}")
    salted = salted_password(mechanism, password.encode(), salt, iterations)
    return credential_from_salted(mechanism, salted, salt, iterations)


def password_matches(credential: Credential, password: str) -> bool:
    """Check a plain password (SASL PLAIN) against the kept keys, in constant time."""
    salted = salted_password(
        credential.mechanism, password.encode(), credential.salt, credential.iterations
    )
    made = credential_from_salted(
        credential.mechanism, salted, credential.salt, credential.iterations
    )
    return hmac.compare_digest(made.stored_key, credential.stored_key)


def parse_plain(token: bytes) -> tuple[str, str]:
    """``[authzid] NUL authcid NUL password`` to (user, password) (RFC 4616)."""
    parts = token.split(b"\0")
    if len(parts) != 3:
        raise AuthenticationRefusedError("a PLAIN token has three parts")
    try:
        authorization, user, password = (part.decode() for part in parts)
    except UnicodeDecodeError:
        raise AuthenticationRefusedError("a PLAIN token is not UTF-8") from None
    if not user or not password:
        raise AuthenticationRefusedError("user or password is empty")
    if authorization not in ("", user):
        raise AuthenticationRefusedError("acting for another user is not supported")
    return user, password


_CLIENT_FIRST: Final = re.compile(
    r"(?P<gs2>(?P<flag>[ny]|p=[A-Za-z0-9.-]+),(?:a=(?P<authzid>[^,]+))?,)"
    r"(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>(?:,[^,]+)*))"
)
_CLIENT_FINAL: Final = re.compile(
    r"(?P<unproved>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?:,[^,]+)*?),p=(?P<proof>[A-Za-z0-9+/=]+)"
)


class ScramServer:
    """One exchange: ``first`` and then ``final``; after ``final`` the user is who they said."""

    def __init__(
        self,
        mechanism: str,
        lookup: Callable[[str, str], Credential | None],
        server_nonce: str,
        decoy_secret: bytes,
        alike: Callable[[str], Sequence[Credential]] = lambda _: (),
    ) -> None:
        """``alike`` gives the credentials there are of a mechanism, to make one up like them."""
        self._mechanism = mechanism
        self._lookup = lookup
        self._server_nonce = server_nonce
        self._decoy_secret = decoy_secret
        self._alike = alike
        self.user = ""
        self._known = False
        self._credential: Credential | None = None
        self._binding = ""
        self._nonce = ""
        self._transcript = ""

    def first(self, message: bytes) -> bytes:
        """Answer the client's first message with salt, iterations and nonce."""
        match = _CLIENT_FIRST.fullmatch(_text(message))
        if match is None:
            raise AuthenticationRefusedError("the first SCRAM message cannot be read")
        if match["flag"].startswith("p"):
            raise AuthenticationRefusedError("channel binding is not supported")
        self.user = _unescape(match["user"])
        if match["authzid"] is not None and _unescape(match["authzid"]) != self.user:
            raise AuthenticationRefusedError("acting for another user is not supported")
        if "tokenauth=true" in match["extensions"]:
            raise AuthenticationRefusedError("delegation tokens are not supported")
        # Made up for everybody: the time it takes must not tell who is known.
        made = decoy(self._mechanism, self.user, self._decoy_secret, self._alike(self._mechanism))
        found = self._lookup(self.user, self._mechanism)
        self._known = found is not None
        self._credential = found or made
        self._binding = b64encode(match["gs2"].encode()).decode()
        self._nonce = match["nonce"] + self._server_nonce
        salt = b64encode(self._credential.salt).decode()
        reply = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._transcript = f"{match['bare']},{reply}"
        return reply.encode()

    def final(self, message: bytes) -> bytes:
        """Check the client's proof and answer with the server's."""
        credential = self._credential
        assert credential is not None, "first() comes before final()"
        match = _CLIENT_FINAL.fullmatch(_text(message))
        if match is None:
            raise AuthenticationRefusedError("the final SCRAM message cannot be read")
        if not hmac.compare_digest(match["nonce"], self._nonce):
            raise AuthenticationRefusedError("the nonce is not the one that was given")
        if match["binding"] != self._binding:
            raise AuthenticationRefusedError("the channel binding differs from the first message")
        try:
            proof = b64decode(match["proof"], validate=True)
        except Base64Error:
            raise AuthenticationRefusedError("the proof is not base64") from None
        digest = HASHES[self._mechanism]
        text = f"{self._transcript},{match['unproved']}".encode()
        signature = hmac.digest(credential.stored_key, text, digest)
        if len(proof) != len(signature):
            raise AuthenticationRefusedError("the proof has the wrong length")
        client_key = (int.from_bytes(proof) ^ int.from_bytes(signature)).to_bytes(len(proof))
        stored_key = hashlib.new(digest, client_key).digest()
        matches = hmac.compare_digest(stored_key, credential.stored_key)
        if not (matches and self._known):
            raise WrongPasswordError(self.user)
        verifier = hmac.digest(credential.server_key, text, digest)
        return b"v=" + b64encode(verifier)


def decoy(mechanism: str, user: str, secret: bytes, alike: Sequence[Credential] = ()) -> Credential:
    """The same made-up credential for the same unknown name and mechanism, every time.

    Its salt is as long and its iterations are as many as those of one of ``alike``: whoever set
    these passwords chose them, and others would tell that nobody chose this one.
    """
    seed = hmac.digest(secret, f"{mechanism}\0{user}".encode(), "sha512")
    mechanism = mechanism if mechanism in HASHES else "SCRAM-SHA-256"  # what PLAIN checks against
    salt_bytes, iterations = SALT_BYTES, ITERATIONS_DEFAULT
    if alike:
        one = alike[int.from_bytes(seed[-8:]) % len(alike)]
        mechanism, salt_bytes, iterations = one.mechanism, len(one.salt), one.iterations
    size = hashlib.new(HASHES[mechanism]).digest_size
    salt = hashlib.shake_256(seed).digest(salt_bytes)
    return Credential(mechanism, salt, iterations, seed[:size], seed[:size])


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise AuthenticationRefusedError("a SCRAM message is not UTF-8") from None


def _unescape(name: str) -> str:
    if re.search(r"=(?!2C|3D)", name):
        raise AuthenticationRefusedError("the user name is escaped wrongly")
    return name.replace("=2C", ",").replace("=3D", "=")
