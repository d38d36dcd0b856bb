"""The demo's consumer group: members as processes, one joins late, one is killed.

Every change of ownership is kept with its time: the demo prints it while it happens and draws it
at the end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OwnershipChange:
    """Partitions a member got or gave up, in seconds since the start."""

    at_s: float
    member: str
    kind: str
    partitions: tuple[int, ...]


@dataclass
class DemoStage:
    """What all members share: the group's name, the list of changes, the counts."""

    bootstrap_servers: str
    topic: str
    group_id: str
    on_change: Callable[[OwnershipChange], None]
    session_ms: int
    """After how long without a heartbeat a member is taken for dead."""
    started: float = field(default_factory=time.time)
    changes: list[OwnershipChange] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    ended_s: float | None = None
    """When the story is over: what members give up after it is only their good-bye."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def heard(self, member: str, line: str) -> None:
        """Take one line of a member's."""
        told = json.loads(line)
        if told["kind"] == "reads":
            with self._lock:
                self.seen[member] = self.seen.get(member, 0) + told["records"]
        elif told["partitions"]:
            self.note(member, told["kind"], tuple(told["partitions"]), at=told["at"])

    def note(
        self, member: str, kind: str, partitions: tuple[int, ...], *, at: float | None = None
    ) -> None:
        """Keep and report one change."""
        moment = (time.time() if at is None else at) - self.started
        change = OwnershipChange(moment, member, kind, partitions)
        with self._lock:
            self.changes.append(change)
        if self.ended_s is None:
            self.on_change(change)

    def end(self) -> None:
        """From now on members only leave."""
        self.ended_s = time.time() - self.started

    def owned(self, member: str) -> tuple[int, ...]:
        """What a member has now, by what was heard of it."""
        numbers: set[int] = set()
        for change in self.changes:
            if change.member == member:
                numbers = (
                    (numbers | set(change.partitions))
                    if change.kind == "gets"
                    else (numbers - set(change.partitions))
                )
        return tuple(sorted(numbers))


class DemoMember:
    """One consumer of the group, a process of its own."""

    def __init__(self, name: str, stage: DemoStage) -> None:
        self.name = name
        self._stage = stage
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [
                sys.executable,
                "-m",
                "shoal.cli.demo_member",
                stage.bootstrap_servers,
                stage.topic,
                stage.group_id,
                name,
                str(stage.session_ms),
            ],
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,  # Ctrl-C is for the demo, which ends its members
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._stage.heard(self.name, line)

    def leave(self) -> None:
        """Close properly: commit, leave the group, end."""
        self._process.terminate()
        self._end()

    def kill(self) -> None:
        """Die without a word, as a crashed process does."""
        owned = self._stage.owned(self.name)
        self._process.kill()
        self._stage.note(self.name, "dies", owned)
        self._end()

    def abandon(self) -> None:
        """End at once: the story is over."""
        self._process.kill()
        self._end()

    def _end(self) -> None:
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join(timeout=5)
        if self._process.stdout is not None:
            self._process.stdout.close()
