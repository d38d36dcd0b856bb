"""TLS contexts and SASL exchanges: who the broker is, and who we are.

Rule: an exchange is a generator of tokens. It yields what to send and is sent what the broker
answered; how tokens travel (SaslAuthenticate requests) is ``connection.py``'s business.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import ssl
from collections.abc import Generator
from typing import TYPE_CHECKING

from shoal.client.config import ConnectionConfig
from shoal.errors import AuthenticationError, ConfigError, ErrorCode

if TYPE_CHECKING:
    from shoal.client.oauth import BearerToken

Exchange = Generator[bytes, bytes, None]

# RFC 7677 asks for 4096; a server naming far more would only burn our CPU.
_ITERATIONS_MIN, _ITERATIONS_MAX = 4096, 1_000_000


def tls_context(config: ConnectionConfig) -> ssl.SSLContext | None:
    """The context for this config, or ``None`` without TLS.

    Raises:
        ConfigError: a file cannot be read or holds no certificate.
    """
    if not config.uses_tls:
        return None
    if config.ssl_context is not None:
        return config.ssl_context
    try:
        context = ssl.create_default_context(cafile=config.ssl_cafile)
        if config.ssl_certfile is not None:
            # Without a password OpenSSL would ask for one on the terminal, and wait.
            context.load_cert_chain(
                config.ssl_certfile, config.ssl_keyfile, lambda: _key_password(config)
            )
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"cannot load TLS files (ssl_cafile={config.ssl_cafile!r}, "
            f"ssl_certfile={config.ssl_certfile!r}): {error}"
        ) from error
    context.check_hostname = config.ssl_check_hostname
    return context


def _key_password(config: ConnectionConfig) -> str:
    if config.ssl_key_password is None:
        file = config.ssl_keyfile or config.ssl_certfile
        raise ConfigError(f"the key in {file!r} is encrypted; ssl_key_password is missing")
    return config.ssl_key_password


def exchange_for(config: ConnectionConfig, token: BearerToken | None = None) -> Exchange:
    """The exchange of the configured mechanism."""
    if config.sasl_mechanism == "OAUTHBEARER":
        assert token is not None
        return bearer(token)
    assert config.sasl_username is not None
    assert config.sasl_password is not None
    if config.sasl_mechanism == "PLAIN":
        return _plain(config.sasl_username, config.sasl_password)
    digest = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[config.sasl_mechanism]
    return scram(config.sasl_username, config.sasl_password, digest, secrets.token_urlsafe(24))


def _plain(username: str, password: str) -> Exchange:
    yield f"\0{username}\0{password}".encode()


def bearer(token: BearerToken) -> Exchange:
    """RFC 7628: the token, and if the broker says what is wrong, our word that we have heard."""
    more = "".join(f"{name}={value}\x01" for name, value in token.extensions.items())
    refusal = yield f"n,,\x01auth=Bearer {token.text}\x01{more}\x01".encode()
    if refusal:
        yield b"\x01"
        raise _refused(f"the broker does not take the token: {refusal.decode(errors='replace')}")


def scram(username: str, password: str, digest: str, nonce: str) -> Exchange:
    """RFC 5802 without channel binding: prove that we know the password, and check the server."""
    name = username.replace("=", "=3D").replace(",", "=2C")
    first_bare = f"n={name},r={nonce}"
    server_first = yield f"n,,{first_bare}".encode()
    fields = _fields(server_first)
    try:
        server_nonce = fields["r"]
        salt = base64.b64decode(fields["s"], validate=True)
        iterations = int(fields["i"])
    except (KeyError, ValueError):
        raise _refused("the server's first SCRAM message is malformed") from None
    if not server_nonce.startswith(nonce) or server_nonce == nonce:
        raise _refused("the server's nonce does not extend ours")
    if not _ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
        raise _refused(f"the server asks for {iterations} iterations")
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    without_proof = f"c=biws,r={server_nonce}"
    message = f"{first_bare},{server_first.decode()},{without_proof}".encode()
    stored_key = hashlib.new(digest, client_key).digest()
    signature = hmac.digest(stored_key, message, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_final = yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
    final = _fields(server_final)
    if "e" in final:
        raise _refused(final["e"])
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), message, digest)
    try:
        given = base64.b64decode(final.get("v", ""), validate=True)
    except ValueError:
        given = b""
    if not hmac.compare_digest(expected, given):
        raise _refused("the server does not know the password either")


def _fields(message: bytes) -> dict[str, str]:
    text = message.decode("utf-8", "replace")
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def _refused(reason: str) -> AuthenticationError:
    return AuthenticationError(ErrorCode.SASL_AUTHENTICATION_FAILED, reason)
