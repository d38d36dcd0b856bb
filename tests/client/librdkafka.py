"""librdkafka's own list of its settings and its own hashes, from the installed confluent-kafka."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class LibrdkafkaSetting(NamedTuple):
    name: str
    default: str


@cache
def library() -> Any:
    package = pytest.importorskip("confluent_kafka")
    beside = Path(package.__file__).parent.parent / "confluent_kafka.libs"
    found = sorted(beside.glob("librdkafka*"))
    if not found:
        pytest.skip("this build of confluent-kafka has no library of its own beside it")
    return ctypes.CDLL(str(found[0]))


@cache
def settings() -> tuple[LibrdkafkaSetting, ...]:
    """What ``rd_kafka_conf_properties_show`` prints: global ones, then those of topics."""
    libc = ctypes.CDLL(None)
    libc.open_memstream.restype = ctypes.c_void_p
    libc.fclose.argtypes = [ctypes.c_void_p]
    show = library().rd_kafka_conf_properties_show
    show.argtypes = [ctypes.c_void_p]
    text, size = ctypes.c_char_p(), ctypes.c_size_t()
    stream = libc.open_memstream(ctypes.byref(text), ctypes.byref(size))
    show(stream)
    libc.fclose(stream)
    found: dict[str, LibrdkafkaSetting] = {}
    for line in (text.value or b"").decode().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) >= 6 and cells[1] in ("C", "P", "*"):
            found.setdefault(cells[0], LibrdkafkaSetting(cells[0], cells[3]))
    return tuple(found.values())


def partition(name: str, key: bytes | None, count: int) -> int:
    """Where librdkafka's partitioner ``name`` puts a key."""
    call = getattr(library(), f"rd_kafka_msg_partitioner_{name}")
    call.restype = ctypes.c_int32
    call.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int32] + [
        ctypes.c_void_p
    ] * 2
    return int(call(None, key, len(key or b""), count, None, None))
