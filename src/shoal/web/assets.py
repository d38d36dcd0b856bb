"""The files of the pages, read once: HTML, style, scripts, and one library of others.

Rule: a file is served because it is in this list, never because a path names it.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
PAGES: Final = (
    "/",
    "/group",
    "/rebalances",
    "/topics",
    "/topic",
    "/what-if",
    "/reset",
    "/lab",
)
"""Paths that show a page: each is the same file, whose script looks at the path."""


class Asset(NamedTuple):
    """One file."""

    data: bytes
    content_type: str
    etag: str


def assets() -> dict[str, Asset]:
    """Every file, by its path on the server."""
    found: dict[str, Asset] = {}
    _walk(resources.files("shoal.web") / "static", "/static", found)
    page = found.pop("/static/index.html")
    return {**found, **dict.fromkeys(PAGES, page)}


def _walk(folder: Traversable, path: str, found: dict[str, Asset]) -> None:
    for one in folder.iterdir():
        where = f"{path}/{one.name}"
        if one.is_dir():
            _walk(one, where, found)
        elif kind := TYPES.get(f".{one.name.rpartition('.')[2]}"):
            data = one.read_bytes()
            found[where] = Asset(data, kind, f'"{hashlib.sha256(data).hexdigest()[:32]}"')
