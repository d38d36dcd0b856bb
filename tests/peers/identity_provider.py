"""An identity provider for tests: signs tokens, publishes its keys, grants client credentials."""

from __future__ import annotations

import base64
import json
import threading
import time
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

ISSUER = "https://login.example.org"
AUDIENCE = "kafka"
_HASHES: dict[str, Any] = {"256": hashes.SHA256, "384": hashes.SHA384, "512": hashes.SHA512}
_CURVES: dict[str, Any] = {"256": ec.SECP256R1, "384": ec.SECP384R1, "512": ec.SECP521R1}


def text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int, size: int | None = None) -> str:
    return text(value.to_bytes(size or (value.bit_length() + 7) // 8))


class SigningKey:
    """A private key, its public half as a JWK, and signatures of one algorithm."""

    def __init__(self, algorithm: str, key_id: str | None = "one", **more: Any) -> None:
        self.algorithm, self.key_id, self._more = algorithm, key_id, more
        self.private: Any
        if algorithm[:2] in ("RS", "PS"):
            self.private = rsa.generate_private_key(65537, 2048)
        elif algorithm.startswith("ES"):
            self.private = ec.generate_private_key(_CURVES[algorithm[2:]]())
        else:
            self.private = ed25519.Ed25519PrivateKey.generate()

    @property
    def jwk(self) -> dict[str, Any]:
        public = self.private.public_key()
        if isinstance(self.private, rsa.RSAPrivateKey):
            numbers = public.public_numbers()
            made = {"kty": "RSA", "n": number(numbers.n), "e": number(numbers.e)}
        elif isinstance(self.private, ec.EllipticCurvePrivateKey):
            numbers, bits = public.public_numbers(), self.private.curve.key_size
            size = (bits + 7) // 8
            made = {"kty": "EC", "crv": f"P-{bits}", "x": number(numbers.x, size)}
            made["y"] = number(numbers.y, size)
        else:
            made = {"kty": "OKP", "crv": "Ed25519", "x": text(public.public_bytes_raw())}
        if self.key_id is not None:
            made["kid"] = self.key_id
        return made | {"use": "sig", "alg": self.algorithm} | self._more

    def signature(self, signed: bytes) -> bytes:
        if self.algorithm == "EdDSA":
            return self.private.sign(signed)
        digest = _HASHES[self.algorithm[2:]]()
        if self.algorithm.startswith("ES"):
            size = (self.private.curve.key_size + 7) // 8
            r, s = decode_dss_signature(self.private.sign(signed, ec.ECDSA(digest)))
            return r.to_bytes(size) + s.to_bytes(size)
        scheme: Any = padding.PKCS1v15()
        if self.algorithm.startswith("PS"):
            scheme = padding.PSS(padding.MGF1(digest), salt_length=digest.digest_size)
        return self.private.sign(signed, scheme, digest)

    def token(self, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token; claims and header fields that are ``...`` are left out."""
        now = int(time.time())
        made = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "iat": now - 60, "exp": now + 3600}
        head = {"alg": self.algorithm, "typ": "JWT", "kid": self.key_id or ...} | (header or {})
        signed = f"{_json(head)}.{_json(made | claims)}"
        return f"{signed}.{text(self.signature(signed.encode()))}"


def _json(fields: dict[str, Any]) -> str:
    kept = {name: value for name, value in fields.items() if value is not ...}
    return text(json.dumps(kept).encode())


def unsecured(**claims: Any) -> str:
    """A token that anybody can write."""
    now = int(time.time())
    made = {"sub": "ann", "iat": now - 60, "exp": now + 3600} | claims
    return f"{_json({'alg': 'none'})}.{_json(made)}."


@cache
def shared_key(algorithm: str = "RS256", key_id: str | None = "one") -> SigningKey:
    """Made once in a run: an RSA key takes a tenth of a second."""
    return SigningKey(algorithm, key_id)


def key_set(*keys: SigningKey | dict[str, Any]) -> bytes:
    shown = [one.jwk if isinstance(one, SigningKey) else one for one in keys]
    return json.dumps({"keys": shown}).encode()


class IdentityProvider:
    """An HTTP server on loopback: keys at ``jwks_url``, tokens at ``token_url``."""

    def __init__(self, key: SigningKey | None = None, lifetime_s: int = 3600) -> None:
        self.keys = [key or shared_key()]
        self.lifetime_s = lifetime_s
        self.secrets = {"app": "client-s3cret"}
        self.subject = "ann"
        self.fails = False
        self.asked: list[str] = []
        """What was asked for: ``jwks``, or the scope of a token."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked.append("jwks")
                self._answer(500 if provider.fails else 200, key_set(*provider.keys))

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                given = base64.b64decode(self.headers.get("Authorization", "").split(" ")[-1])
                name, _, secret = given.decode().partition(":")
                provider.asked.append(form.get("scope", [""])[0])
                if provider.fails:
                    self._answer(503, b"{}")
                elif provider.secrets.get(name) != secret:
                    self._answer(401, b'{"error":"invalid_client"}')
                elif form.get("grant_type") != ["client_credentials"]:
                    self._answer(400, b'{"error":"unsupported_grant_type"}')
                else:
                    self._answer(200, json.dumps(provider.grant()).encode())

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def token(self, **claims: Any) -> str:
        expires = int(time.time()) + self.lifetime_s
        return self.keys[0].token(None, **{"sub": self.subject, "exp": expires} | claims)

    def grant(self) -> dict[str, Any]:
        return {
            "access_token": self.token(),
            "token_type": "Bearer",
            "expires_in": self.lifetime_s,
        }

    @property
    def jwks_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/keys"

    @property
    def token_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/token"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
