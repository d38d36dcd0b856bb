"""What a call of somebody else's client came to, as plain values that two brokers can share.

A script is a list of calls in order; each call's outcome is its result or its error. What every
broker makes up for itself (ports, ids, directories) is replaced by what it stands for.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import enum
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from shoal import Admin
from shoal.errors import ShoalError

Outcomes = dict[str, Any]
WAIT_S = 30

_MADE_UP = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "(uuid)"),
    (re.compile(r"\bPORT\b|(?<=127\.0\.0\.1[: ])\d+|(?<=localhost:)\d+"), "(port)"),
    (re.compile(r"\b[A-Za-z0-9_-]{22}\b(?=\W|$)"), "(id)"),
    (re.compile(r"/(?:tmp|dev/shm)/[^\s,'\"]+"), "(directory)"),
    (re.compile(r"\b1[789]\d{11}\b"), "(time)"),
)


def called(outcomes: Outcomes, name: str, call: Callable[[], Any]) -> Any:
    """Call, and note how it went under ``name``; the result itself, or None."""
    try:
        result = call()
        outcomes[name] = plain(result)
    except Exception as error:
        outcomes[name] = plain(error)
        return None
    return result


def await_setting(servers: str, topic: str, name: str, value: str) -> None:
    """Until the broker shows that value."""

    def shows(admin: Admin) -> bool:
        shown = admin.describe_configs(topic=topic).get(name)
        return shown is not None and shown.value == value

    _await(servers, shows)


def await_partitions(servers: str, topic: str, count: int) -> None:
    """Until the broker shows so many."""
    _await(servers, lambda admin: len(admin.describe_topics(topic)[topic].partitions) == count)


def _await(servers: str, shows: Callable[[Admin], bool]) -> None:
    """Apache Kafka's broker hears of a change from its controller, later than who made it."""
    end = time.monotonic() + WAIT_S
    with Admin(bootstrap_servers=servers) as admin:
        while time.monotonic() < end and not _is_true(shows, admin):
            time.sleep(0.05)


def _is_true(shows: Callable[[Admin], bool], admin: Admin) -> bool:
    with suppress(ShoalError):  # of a topic the broker has not heard of at all
        return shows(admin)
    return False


async def awaited(outcomes: Outcomes, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
    """As ``called``, of a coroutine."""
    try:
        result = await asyncio.wait_for(call(), WAIT_S)
        outcomes[name] = plain(result)
    except Exception as error:
        outcomes[name] = plain(error)
        return None
    return result


def plain(value: Any, depth: int = 8) -> Any:
    """Nested dicts, lists, strings and numbers."""
    if depth == 0:
        return "..."
    match value:
        case None | bool() | float():
            return value
        case enum.Enum():
            return value.name
        case uuid.UUID():
            return "(uuid)"
        case int():
            return "(time)" if 1_700_000_000_000 <= value < 2_000_000_000_000 else value
        case str():
            return without_made_up(value)
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case BaseException():
            return _error(value, depth)
        case concurrent.futures.Future():
            try:
                return plain(value.result(WAIT_S), depth)
            except Exception as error:
                return plain(error, depth)
        case Mapping():
            rows = {str(plain(key, 3)): plain(item, depth - 1) for key, item in value.items()}
            return {name: _named(name, item) for name, item in sorted(rows.items())}
        case set() | frozenset():
            return sorted((plain(item, depth - 1) for item in value), key=repr)
        case list() | tuple():
            if hasattr(value, "_asdict"):
                return plain(value._asdict(), depth)
            return [plain(item, depth - 1) for item in value]
    return _object(value, depth)


def _error(error: BaseException, depth: int) -> Any:
    first = error.args[0] if error.args else None
    code = getattr(first, "name", None) or getattr(error, "errno", None)
    code = code() if callable(code) else code
    return {"error": type(error).__name__, "code": plain(code, 2)}


def _object(value: Any, depth: int) -> Any:
    names = [name for name in dir(value) if not name.startswith("_")]
    rows = {}
    for name in names:
        item = getattr(value, name, None)
        if not callable(item) or isinstance(item, concurrent.futures.Future):
            rows[name] = _named(name, plain(item, depth - 1))
    return rows or without_made_up(str(value))


def _named(name: str, value: Any) -> Any:
    """Fields that each broker fills with its own: a port, an id, words for people."""
    if name == "port" and isinstance(value, int):
        return "(port)"
    if name in ("topic_id", "clusterId", "cluster_id") and value:
        return "(id)"
    if name in ("error_message", "message") and value:
        return "(text)"
    return value


def without_made_up(text: str) -> str:
    for pattern, name in _MADE_UP:
        text = pattern.sub(name, text)
    return text
