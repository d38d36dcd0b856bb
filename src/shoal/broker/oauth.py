"""OAUTHBEARER at work: where the keys come from, and tokens that were checked before.

Rule: nothing is decided here (``shoal.access.bearer_tokens`` does), and nothing fails open: without
keys a broker with an OAUTHBEARER listener does not start. Keys that cannot be fetched again stay
as they were, with a warning; a key file that was taken away takes its keys away.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import ssl
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Final

from shoal.access.bearer_tokens import (
    TokenOwner,
    TokenRefusedError,
    TokenRules,
    check_token,
    check_unsecured,
    key_id_of,
)
from shoal.access.json_web_keys import SET_MAX_BYTES, KeySet, UnusableKeysError, read_key_set
from shoal.broker.config import OAuthSettings
from shoal.errors import ConfigError

logger = logging.getLogger("shoal.broker.oauth")

_FETCH_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 10.0
# A token that names an unknown key makes us look again, but strangers can write such tokens.
_EARLY_SECONDS: Final = 60.0
_CHECKED_MAX: Final = 10_000
_NO_KEYS: Final = KeySet(())


class KeySource:
    """The keys of an identity provider, from a file or a URL."""

    def __init__(self, settings: OAuthSettings) -> None:
        self._settings = settings
        self._where = settings.jwks
        self.is_url = "://" in settings.jwks and not settings.jwks.startswith("file:")
        self._path = Path(re.sub(r"^file:(//)?", "", settings.jwks))
        self._seen: tuple[int, int, int] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._not_before = 0.0
        self.keys = _NO_KEYS

    async def load(self) -> None:
        """Raises ConfigError if there are no keys now."""
        try:
            await self._load()
        except (OSError, UnusableKeysError, HTTPException) as error:
            raise ConfigError(
                f"no keys to check tokens with, oauth.jwks {self._where}: {_reason(error)}"
            ) from None

    async def keys_for(self, key_id: str | None) -> KeySet:
        """The keys of now; if none has this id, those of a second look."""
        loop = asyncio.get_running_loop()
        if not self.is_url:
            await self.refresh()
        elif not self.keys.knows(key_id) and loop.time() >= self._not_before:
            self._not_before = loop.time() + _EARLY_SECONDS
            await self.refresh()
        return self.keys

    async def refresh(self) -> None:
        """Look again; several callers share one look."""
        if self._refreshing is None:
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())
            self._refreshing.add_done_callback(self._refreshed)
        await asyncio.shield(self._refreshing)

    def _refreshed(self, _: asyncio.Task[None]) -> None:
        self._refreshing = None

    async def _refresh(self) -> None:
        try:
            await self._load()
        except FileNotFoundError:
            if self.keys.keys:
                logger.error("%s is gone: no token is taken any more", self._path)
            self.keys, self._seen = _NO_KEYS, None
        except (OSError, UnusableKeysError, HTTPException) as error:
            logger.warning("keeping the keys there are: %s: %s", self._where, _reason(error))

    async def _load(self) -> None:
        loop = asyncio.get_running_loop()
        if self.is_url:
            found = await loop.run_in_executor(None, self._fetched)
        else:
            status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_size, status.st_ino)
            if seen == self._seen:
                return
            # Marked before it is read: one that is half written is looked at when it changes.
            self._seen = seen
            with self._path.open("rb") as file:
                found = read_key_set(file.read(SET_MAX_BYTES + 1))
        for reason in found.left_out:
            logger.info("%s: %s", self._where, reason)
        self.keys = found

    def _fetched(self) -> KeySet:
        context = None
        if self._where.startswith("https:"):
            context = ssl.create_default_context(cafile=self._settings.jwks_ca_file)
        opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=context), _NoRedirects()
        )
        request = urllib.request.Request(self._where, headers={"Accept": "application/json"})  # noqa: S310  (https, or this machine)
        try:
            with opener.open(request, timeout=_FETCH_SECONDS) as answer:
                return read_key_set(answer.read(SET_MAX_BYTES + 1))
        except urllib.error.HTTPError as error:
            error.close()
            raise


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Keys come from where the administrator said, not from where that points to."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code}"
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class OAuthBearer:
    """Says whose a token is."""

    def __init__(self, settings: OAuthSettings, now_ms: Callable[[], int]) -> None:
        self.rules = TokenRules(
            issuer=settings.issuer,
            audience=settings.audience,
            algorithms=settings.algorithms,
            principal_claim=settings.principal_claim,
            scope_claim=settings.scope_claim,
            required_scope=settings.required_scope,
            clock_skew_seconds=settings.clock_skew_seconds,
        )
        self.source = None if settings.unsecured else KeySource(settings)
        self._refresh_seconds = settings.jwks_refresh_seconds
        self._now_ms = now_ms
        # By digest: what was checked with which keys, so that a token need not lie in memory.
        self._checked: OrderedDict[bytes, tuple[KeySet, TokenOwner]] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Raises ConfigError if no token could be checked."""
        if self.source is None:
            logger.warning(
                "OAUTHBEARER accepts unsecured tokens: anyone on this machine can be any user"
            )
            return
        await self.source.load()
        if self.source.is_url:
            self._schedule(self._refresh_seconds)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, lambda: loop.create_task(self._refresh()))

    async def _refresh(self) -> None:
        assert self.source is not None
        before = self.source.keys
        await self.source.refresh()
        is_new = self.source.keys is not before
        self._schedule(
            self._refresh_seconds if is_new else min(_RETRY_SECONDS, self._refresh_seconds)
        )

    async def owner(self, token: str) -> TokenOwner:
        """Whose it is.

        Raises:
            TokenRefusedError: it is not good; says why.
        """
        if self.source is None:
            return check_unsecured(token, self.rules, self._now_ms())
        keys = await self.source.keys_for(key_id_of(token))
        digest = hashlib.sha256(token.encode()).digest()
        known = self._checked.get(digest)
        if known is not None and known[0] is keys and self._now_ms() < known[1].expires_ms:
            return known[1]
        if not keys.keys:
            raise TokenRefusedError("there are no keys to check it with")
        # Off the loop: a signature takes up to a millisecond.
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            None, check_token, token, keys, self.rules, self._now_ms()
        )
        self._checked[digest] = (keys, found)
        if len(self._checked) > _CHECKED_MAX:
            self._checked.popitem(last=False)
        return found
