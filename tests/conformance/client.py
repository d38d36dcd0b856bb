"""What a client must be able to do to be checked, and what the checks share.

A ``Member`` polls in a thread of its own, as a consumer in a process of its own would. Nothing
here knows our broker: the same code would run against any Kafka.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

Partitions = frozenset[int]
Offsets = dict[int, int]
# Of every topic that a check uses.
PARTITIONS = range(4)


@dataclass(frozen=True)
class Door:
    """How to get in: the address and, if the listener asks, who we are."""

    servers: str
    ca_file: str | None = None
    user: str | None = None
    password: str | None = None
    mechanism: str = "SCRAM-SHA-512"


class Member(Protocol):
    """One consumer of a group, polling until it is stopped."""

    @property
    def values(self) -> list[bytes]: ...
    @property
    def assignment(self) -> Partitions: ...
    def stop(self) -> None: ...


class Client(Protocol):
    name: str
    static: bool
    deletes_groups: bool

    @property
    def codecs(self) -> Sequence[str]: ...

    @property
    def strategies(self) -> Sequence[str]: ...

    def produce(
        self, door: Door, topic: str, values: Sequence[bytes], *, codec: str, idempotent: bool
    ) -> int:
        """How many were acknowledged."""
        ...

    def member(
        self, door: Door, topic: str, group: str, *, strategy: str, instance: str | None
    ) -> Member: ...

    def committed(self, door: Door, topic: str, group: str) -> Offsets: ...

    def commit(self, door: Door, topic: str, group: str, offsets: Offsets) -> None: ...

    def describe(self, door: Door, group: str) -> tuple[str, int]: ...

    def delete_group(self, door: Door, group: str) -> None: ...


def until(holds: Callable[[], object], what: str, seconds: float = 30.0) -> None:
    """Wait for another thread or process; the clients offer nothing better than to look."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not in {seconds} s: {what}"
        time.sleep(0.02)


class Polling:
    """A thread that polls a synchronous consumer."""

    def __init__(self) -> None:
        self._values: list[bytes] = []
        self._assignment: Partitions = frozenset()
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, daemon=True)
        self._thread.start()

    @property
    def values(self) -> list[bytes]:
        if self._failure is not None:
            raise self._failure
        return self._values

    @property
    def assignment(self) -> Partitions:
        if self._failure is not None:
            raise self._failure
        return self._assignment

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive(), "the consumer does not stop"
        if self._failure is not None:
            raise self._failure

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self._failure = error

    def _run(self) -> None:
        raise NotImplementedError
