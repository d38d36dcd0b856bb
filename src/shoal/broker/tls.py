"""TLS for a listener: its context, and the name in a client's certificate.

Rule: TLS 1.2 or newer and the standard library's defaults; nothing about ciphers is decided
here.
"""

from __future__ import annotations

import ssl
from typing import Any, Final

from shoal.broker.config import Listener
from shoal.errors import ConfigError

# RFC 4514's short names for what ssl calls by its long ones.
_SHORT: Final = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "domainComponent": "DC",
    "userId": "UID",
}


def context_for(listener: Listener) -> ssl.SSLContext | None:
    """The server context of a listener, or None if it speaks plaintext."""
    if not listener.is_tls:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, listener)
    return context


def _load(context: ssl.SSLContext, listener: Listener) -> None:
    assert listener.certificate_file is not None
    try:
        context.load_cert_chain(listener.certificate_file, listener.key_file)
        if listener.client_ca_file is not None:
            context.load_verify_locations(listener.client_ca_file)
            required = listener.client_certificate == "required"
            context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"cannot load the certificate {listener.certificate_file} or its key: "
            f"{getattr(error, 'strerror', None) or error}"
        ) from None


def principal_of(certificate: Any) -> str | None:
    """``User:CN=…,O=…`` from what ``getpeercert()`` returned, most specific part first."""
    if not certificate:
        return None
    parts = [
        f"{_SHORT.get(name, name)}={_escaped(value)}"
        for relative in reversed(certificate.get("subject", ()))
        for name, value in relative
    ]
    return "User:" + ",".join(parts) if parts else None


def _escaped(value: str) -> str:
    return "".join("\\" + c if c in ',+"\\<>;=' else c for c in value)
