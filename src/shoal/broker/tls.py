"""TLS for a listener: its context, and the name in a client's certificate.

Rule: TLS 1.2 or newer and the standard library's defaults; nothing about ciphers is decided
here.
"""

from __future__ import annotations

import logging
import os
import ssl
from typing import Any, Final

from shoal.broker.config import Listener
from shoal.errors import ConfigError

logger = logging.getLogger("shoal.broker.tls")

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
    "streetAddress": "STREET",
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
    assert listener.key_file is not None
    try:
        # Not refused: what a container is given as a secret can be read by everybody in it.
        if os.stat(listener.key_file).st_mode & 0o004:
            logger.warning(
                "%s can be read by others; take that away with chmod 600", listener.key_file
            )
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


def subject_of(certificate: Any) -> str | None:
    """``CN=…,O=…`` from what ``getpeercert()`` returned, most specific part first (RFC 2253)."""
    if not certificate:
        return None
    parts = [
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in relative)
        for relative in reversed(certificate.get("subject", ()))
    ]
    return ",".join(parts) or None


def _escaped(value: str) -> str:
    return "".join("\\" + c if c in ',+"\\<>;=' else c for c in value)
