"""Where a client's bearer tokens come from (SASL OAUTHBEARER): a callable, a file, or an endpoint.

Rule: one token per client, asked for when a connection needs it and most of the last one's life is
over; a token that cannot be renewed yet is used as long as it is good. Everything here blocks and
runs in a thread: whoever asks awaits it. No token and no secret is part of a text, ever.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import logging
import random
import re
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, NamedTuple

from shoal.client.config import ConnectionConfig, token_extensions
from shoal.errors import AuthenticationError, ConnectionFailedError, ErrorCode, ShoalError

logger = logging.getLogger(__name__)

# Of a token's life: before a connection has to show the next one, which is at 85 % or later.
_RENEW_AT: Final = 0.8
_JITTER: Final = 0.05
_ANSWER_MAX_BYTES: Final = 64 << 10
_TOKEN: Final = re.compile(r"[-_~+/.A-Za-z0-9]+=*")
_EXTENSION: Final = re.compile(r"[\x09\x0a\x0d\x20-\x7e]*")


class BearerToken(NamedTuple):
    """What is sent, and until when it is good if that is known (seconds since 1970)."""

    text: str
    expires_s: float | None
    extensions: Mapping[str, str]

    def __repr__(self) -> str:
        return f"BearerToken(expires_s={self.expires_s})"


class TokenSource:
    """The token of one client."""

    def __init__(self, config: ConnectionConfig, clock: Callable[[], float] = time.time) -> None:
        self._config = config
        self._clock = clock
        self._lock = threading.Lock()
        self._token: BearerToken | None = None
        self._renew_s = 0.0

    async def token(self) -> BearerToken:
        """A token that is good now.

        Raises:
            AuthenticationError: there is none, and asking again would not help.
            ConnectionFailedError: there is none now.
        """
        return await asyncio.get_running_loop().run_in_executor(None, self._current)

    def forget(self) -> None:
        """The broker did not take it: the next login brings another."""
        self._token = None

    def _current(self) -> BearerToken:
        with self._lock:
            now, known = self._clock(), self._token
            if known is not None and known.expires_s is not None and now < self._renew_s:
                return known
            try:
                found = self._fetched()
            except ShoalError as error:
                if known is None or known.expires_s is None or known.expires_s <= now:
                    raise
                logger.warning("%s; the token there is good for a while", error)
                return known
            self._token = found
            if found.expires_s is not None:
                earlier = random.uniform(0, _JITTER)
                self._renew_s = now + (found.expires_s - now) * (_RENEW_AT - earlier)
            return found

    def _fetched(self) -> BearerToken:
        config = self._config
        if config.sasl_oauthbearer_token_endpoint_url is not None:
            text, expires_s = self._granted(config.sasl_oauthbearer_token_endpoint_url)
        elif config.sasl_oauthbearer_token_file is not None:
            text, expires_s = _from_file(config.sasl_oauthbearer_token_file), None
        else:
            text, expires_s = self._called()
        if not _TOKEN.fullmatch(text):
            raise _refused("a token is letters, digits and -._~+/=, this one has something else")
        # The broker goes by what is in the token, whatever whoever gave it says.
        known = [one for one in (expires_s, _expiry(text)) if one is not None]
        return BearerToken(text, min(known, default=None), self._extensions())

    def _called(self) -> tuple[str, float | None]:
        provider: Any = self._config.sasl_oauthbearer_token
        call = provider.token if hasattr(provider, "token") else provider
        try:
            found = call()
            if inspect.isawaitable(found):
                found = asyncio.run(_awaited(found))
        except ShoalError:
            raise
        except OSError as error:
            raise ConnectionFailedError(f"sasl_oauthbearer_token failed: {error}") from error
        except Exception as error:
            raise _refused(f"sasl_oauthbearer_token raised {type(error).__name__}") from error
        text, expires_s = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
        is_time = expires_s is None or (
            isinstance(expires_s, int | float) and not isinstance(expires_s, bool)
        )
        if not isinstance(text, str) or not is_time:
            raise _refused(
                "sasl_oauthbearer_token must return a token as str, or (token, expiry in seconds "
                f"since 1970), not {type(found).__name__}"
            )
        return text, expires_s

    def _extensions(self) -> Mapping[str, str]:
        """Those of the settings, then those of an object with ``extensions()``."""
        found = dict(token_extensions(self._config.sasl_oauthbearer_extensions))
        provider: Any = self._config.sasl_oauthbearer_token
        if hasattr(provider, "extensions"):
            found |= provider.extensions()
        for name, value in found.items():
            is_name = isinstance(name, str) and name.isascii() and name.isalpha()
            if not is_name or name == "auth" or not _EXTENSION.fullmatch(value):
                raise _refused(f"extension {name!r} cannot be sent: letters, then plain text")
        return found

    def _granted(self, url: str) -> tuple[str, float | None]:
        """The client-credentials grant (RFC 6749, 4.4)."""
        config = self._config
        form = {"grant_type": "client_credentials"}
        if config.sasl_oauthbearer_scope is not None:
            form["scope"] = config.sasl_oauthbearer_scope
        pair = f"{config.sasl_oauthbearer_client_id}:{config.sasl_oauthbearer_client_secret}"
        request = urllib.request.Request(  # noqa: S310  (https, or this machine: config.py)
            url,
            urllib.parse.urlencode(form).encode(),
            {
                "Authorization": "Basic " + base64.b64encode(pair.encode()).decode(),
                "Accept": "application/json",
            },
        )
        asked_s = self._clock()
        answer = self._answer(request, url)
        text, lasts_s = answer.get("access_token"), answer.get("expires_in")
        if not isinstance(text, str):
            raise _refused(f"{url} answered without an access_token")
        try:
            return text, None if lasts_s is None else asked_s + float(lasts_s)
        except (TypeError, ValueError):
            raise _refused(f"{url} answered with an expires_in that is not a number") from None

    def _answer(self, request: urllib.request.Request, url: str) -> dict[str, Any]:
        config = self._config
        handlers: list[urllib.request.BaseHandler] = [_StaysThere()]
        if url.startswith("https:"):
            context = ssl.create_default_context(cafile=config.sasl_oauthbearer_cafile)
            handlers.append(urllib.request.HTTPSHandler(context=context))
        else:
            handlers.append(urllib.request.ProxyHandler({}))
        try:
            timeout_s = config.socket_connection_setup_timeout_ms / 1000
            opener = urllib.request.build_opener(*handlers)
            with opener.open(request, timeout=timeout_s) as answer:
                found = json.loads(answer.read(_ANSWER_MAX_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                said = _said(error)
            text = f"{url} gave no token: {error.code}{said}"
            if error.code >= 500 or error.code == 429:
                raise ConnectionFailedError(text) from None
            raise _refused(f"{text}; see sasl_oauthbearer_client_id and its secret") from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise ConnectionFailedError(f"{url} gave no token: {reason}") from error
        except ValueError:
            raise _refused(f"{url} did not answer with JSON") from None
        if not isinstance(found, dict):
            raise _refused(f"{url} did not answer with a JSON object")
        return found


class _StaysThere(urllib.request.HTTPRedirectHandler):
    """A secret is sent to where the user said, not to where that points to."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def _said(error: urllib.error.HTTPError) -> str:
    """The code of RFC 6749 in an error's body, if there is one."""
    try:
        code = json.loads(error.read(_ANSWER_MAX_BYTES))["error"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return f" {code}" if isinstance(code, str) and re.fullmatch(r"[\w.-]{1,60}", code) else ""


async def _awaited(found: Any) -> Any:
    return await found


def _from_file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except UnicodeDecodeError:
        raise _refused(f"sasl_oauthbearer_token_file {path} holds no token") from None
    except OSError as error:
        raise _refused(
            f"cannot read sasl_oauthbearer_token_file {path}: {error.strerror}"
        ) from error


def _expiry(token: str) -> float | None:
    """``exp`` of a JSON Web Token, unchecked: to know when to ask for the next one."""
    parts = token.split(".")
    try:
        text = parts[1] + "=" * (-len(parts[1]) % 4)
        found = json.loads(base64.urlsafe_b64decode(text))["exp"]
        return float(found)
    except (IndexError, ValueError, KeyError, TypeError):
        return None


def _refused(reason: str) -> AuthenticationError:
    return AuthenticationError(ErrorCode.SASL_AUTHENTICATION_FAILED, reason)
