"""Assignors of users' own, each in a process of its own.

The broker says which group needs a target, a thread per assignor passes that on to the process, and
what comes back is checked there. A process that takes too long is killed, one that died is started
again with the next order; the broker's loop waits for neither.

What goes through the pipes, a line of JSON each::

    to it     {"group_id", "epoch", "members": count, "topics": count}, then so many of both
    from it   {"ready": name}, once
              {"members": count}, then so many [member id, {topic: [partition]}]
              {"fault": why}

Rule: a thread here touches nothing of the broker's; it is given a spec and gives a target.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

from shoal.assign.server_spec import GroupSpec, check
from shoal.errors import ConfigError, ShoalError, did_you_mean
from shoal.types import TopicPartition

logger = logging.getLogger("shoal.broker.assignors")

BUILT_IN: Final = ("uniform", "range")
"""They run in the coordinator."""
OFFERED: Final = {
    "weighted": "shoal.assign.server_examples:weighted",
    "drain": "shoal.assign.server_examples:drain",
}
ENTRY_POINT_GROUP: Final = "shoal.server_assignors"
_START_SECONDS: Final = 20.0
_END_SECONDS: Final = 1.0

ByMember = dict[str, dict[str, list[int]]]
"""Member id → topic → partitions."""


class AssignorFaultError(ShoalError):
    """An assignor gave no target, or not one that may be used."""


class NamedAssignor(NamedTuple):
    """One of ``group.consumer.assignors``; without a path it runs in the coordinator."""

    name: str | None
    path: str | None


def parse(text: str) -> NamedAssignor:
    """``uniform``, ``NAME``, ``NAME=package.module:attribute`` or the latter without a name.

    Raises:
        ConfigError: nobody offers an assignor of that name.
    """
    name, equals, path = text.partition("=")
    if equals:
        if not name or not path or name in BUILT_IN:
            raise ConfigError(f"assignor {text!r}: write NAME=package.module:attribute")
        return NamedAssignor(name, path)
    if text in BUILT_IN:
        return NamedAssignor(text, None)
    if ":" in text:
        return NamedAssignor(None, text)
    if text in OFFERED:
        return NamedAssignor(text, OFFERED[text])
    # Slow to import, and needed for names of other packages only.
    from importlib.metadata import entry_points

    found = entry_points(group=ENTRY_POINT_GROUP)
    if text in found.names:
        return NamedAssignor(text, found[text].value)
    known = sorted({*BUILT_IN, *OFFERED, *found.names})
    raise ConfigError(
        f"no assignor is called {text!r}{did_you_mean(text, known)}; write "
        "NAME=package.module:attribute for one of your own"
    )


class AssignorProcess:
    """One assignor: its process, and the thread that talks to it."""

    def __init__(self, path: str, name: str | None, limit_seconds: float) -> None:
        self.path = path
        self.name = name or ""
        self._limit_seconds = limit_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: SimpleQueue[tuple[GroupSpec, Callable[..., None]] | None] = SimpleQueue()
        self._stopped = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the process and wait until it has loaded the assignor.

        Raises:
            ConfigError: it cannot.
        """
        try:
            ready = self._spawned()
        except AssignorFaultError as error:
            raise ConfigError(f"assignor {self.path}: {error}") from None
        self.name = self.name or ready
        self._thread = threading.Thread(
            target=self._serve, name=f"assignor {self.name}", daemon=True
        )
        self._thread.start()

    def order(self, spec: GroupSpec, done: Callable[[ByMember | AssignorFaultError], None]) -> None:
        """Compute a target; the thread calls ``done`` with it, or with why there is none."""
        self._orders.put((spec, done))

    def stop(self) -> None:
        """End process and thread; nothing is answered any more."""
        with self._lock:
            self._stopped = True
            process = self._process
        if process is not None:
            process.kill()
        self._orders.put(None)
        if self._thread is not None:
            self._thread.join(5.0)
        if process is not None:
            _close(process)

    # --- the thread ----------------------------------------------------------------------------

    def _serve(self) -> None:
        while (order := self._orders.get()) is not None:
            spec, done = order
            try:
                target: ByMember | AssignorFaultError = self._computed(spec)
            except AssignorFaultError as error:
                target = error
            except Exception as error:  # a fault of ours must not end the thread: groups wait
                logger.exception("assignor %s", self.name)
                target = AssignorFaultError(f"{type(error).__name__}: {error}")
            if self._stopped:
                return
            done(target)

    def _computed(self, spec: GroupSpec) -> ByMember:
        if self._process is not None and self._process.poll() is not None:
            self._end()  # it died while it had nothing to do
        if self._process is None:
            self._spawned()
        head, *rows = self._exchange(lines_of(spec), self._limit_seconds, "gave no target")
        if "fault" in head:
            raise AssignorFaultError(str(head["fault"]))
        target: ByMember = dict(rows)
        try:
            check(self.name, spec, {one: _partitions(given) for one, given in target.items()})
        except ShoalError as error:
            raise AssignorFaultError(str(error)) from None
        return target

    def _spawned(self) -> str:
        """Start the process; the name that the assignor gives itself."""
        with self._lock:
            if self._stopped:
                raise AssignorFaultError("the broker stops")
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and a path of the operator's
                [sys.executable, "-m", "shoal.broker.assignor_worker", self.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # The modules this process finds, the new one finds, too.
                env=os.environ | {"PYTHONPATH": os.pathsep.join(each or "." for each in sys.path)},
                start_new_session=True,  # Ctrl-C is for the broker, which then ends it
            )
        (head,) = self._exchange((), _START_SECONDS, "was not loaded")
        if "ready" not in head:
            self._end()
            raise AssignorFaultError(str(head.get("fault")))
        return str(head["ready"])

    def _exchange(self, lines: Iterable[bytes], seconds: float, failed: str) -> list[Any]:
        """Say something and hear the answer, in time; else the process is not one any more."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        is_late = threading.Event()

        def kill() -> None:
            is_late.set()
            process.kill()

        timer = threading.Timer(seconds, kill)
        timer.daemon = True
        timer.start()
        try:
            for line in lines:
                process.stdin.write(line)
            process.stdin.flush()
            head = json.loads(process.stdout.readline())
            return [head, *(json.loads(process.stdout.readline()) for _ in range(_rows(head)))]
        except (OSError, ValueError):  # it is gone, perhaps within a line
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
            self._end()
            if is_late.is_set():
                raise AssignorFaultError(
                    f"it {failed} within {seconds:g} s and was killed"
                ) from None
            how = _how(process.returncode)
            raise AssignorFaultError(f"its process ended ({how}) and {failed}") from None
        finally:
            timer.cancel()

    def _end(self) -> None:
        process = self._process
        self._process = None
        if process is not None:
            process.kill()
            _close(process)


def _rows(head: dict[str, Any]) -> int:
    return int(head.get("members", 0))


def _how(code: int | None) -> str:
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # what was not written is for nobody any more
                pipe.close()
    process.wait()


def _partitions(by_topic: dict[str, list[int]]) -> list[TopicPartition]:
    return [TopicPartition(topic, each) for topic, numbers in by_topic.items() for each in numbers]


def lines_of(spec: GroupSpec) -> Iterator[bytes]:
    """An order as the process reads it. Line by line, so that the broker's loop has turns."""
    topics: dict[str, list[TopicPartition]] = {}
    for tp in sorted(spec.partitions):
        topics.setdefault(tp.topic, []).append(tp)
    head = {"group_id": spec.group_id, "epoch": spec.epoch}
    yield _line(head | {"members": len(spec.members), "topics": len(topics)})
    for one in spec.members.values():
        held: dict[str, list[int]] = {}
        for tp in one.assigned:
            held.setdefault(tp.topic, []).append(tp.partition)
        yield _line(
            {
                "member_id": one.member_id,
                "topics": sorted(one.topics),
                "assigned": held,
                "instance_id": one.instance_id,
                "client_id": one.client_id,
                "rack": one.rack,
                "weight": one.weight,
            }
        )
    for name, tps in topics.items():
        rows = [spec.partitions[tp] for tp in tps]
        yield _line(
            {
                "name": name,
                "racks": list(rows[0].racks),
                "lags": [each.lag for each in rows],
                "rates": [each.bytes_per_second for each in rows],
            }
        )


def _line(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


def start_all(
    texts: Sequence[str], limit_seconds: float
) -> list[tuple[str, AssignorProcess | None]]:
    """Those of ``group.consumer.assignors``, by name and in order; users' own are running.

    Raises:
        ConfigError: one cannot be had, or two have one name.
    """
    started: list[tuple[str, AssignorProcess | None]] = []
    try:
        for text in texts:
            name, path = parse(text)
            process = None
            if path is not None:
                process = AssignorProcess(path, name, limit_seconds)
                process.start()
                name = process.name
            assert name is not None
            if name in dict(started):
                if process is not None:
                    process.stop()
                raise ConfigError(f"two assignors are called {name!r}; write OTHERNAME={path}")
            started.append((name, process))
    except BaseException:
        for _, process in started:
            if process is not None:
                process.stop()
        raise
    return started
