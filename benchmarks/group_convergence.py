"""Ten members on 900 partitions: how long until everything is owned and even, and what stood still.

Members are processes of confluent-kafka with its default settings. Nine start at once, one joins,
one leaves, one is killed. Each tells when partitions come and go; a step ends when every partition
has an owner and no member has two more than another. Beside the time: the partition-seconds
without an owner until then. Under the new protocol (KIP-848) and, to compare, under the classic one
with cooperative-sticky, on both brokers in turns. Ours has ``dead_connection_grace_ms`` at two
seconds, which only a killed process meets.

Most of the time here is waiting: for a heartbeat's turn, and for a session to end.

    python -m benchmarks group_convergence [--rounds N] [--without-classic]
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.broker_setting import (
    PEER,
    Target,
    apache_kafka,
    create_topic,
    has_peer,
    start,
    stop,
)
from benchmarks.measuring import Report, Row, json_argument

MEMBERS = 10
PARTITIONS = 900
ROUNDS = 3
PATIENCE_S = 180.0
GRACE_MS = 2_000
PROTOCOLS = {
    "new protocol": {"group.protocol": "consumer"},
    "classic": {"partition.assignment.strategy": "cooperative-sticky"},
}
STEPS = {
    "nine start": ">= 5x",
    "one joins": ">= 3x",
    "one leaves": ">= 3x",
    "one is killed": ">= 10x",
}
"""With what the new protocol is to reach."""


class Taken(NamedTuple):
    seconds: float
    partition_seconds: float


def main(arguments: Sequence[str] = ()) -> None:
    if arguments and arguments[0] == "member":
        _member(*arguments[1:])
        return
    rounds = int(arguments[arguments.index("--rounds") + 1]) if "--rounds" in arguments else ROUNDS
    protocols = [
        name for name in PROTOCOLS if name != "classic" or "--without-classic" not in arguments
    ]
    report = Report("group_convergence", ("confluent-kafka",))
    with ExitStack() as stack:
        targets = [stack.enter_context(_with_grace())]
        if has_peer():
            targets.append(stack.enter_context(apache_kafka()))
        found: dict[tuple[str, str, str], list[Taken]] = {}
        for _ in range(rounds):
            for protocol in protocols:
                for target in targets:
                    for step, taken in _one_life(target, protocol).items():
                        found.setdefault((target.name, protocol, step), []).append(taken)
        for protocol in protocols:
            for step in STEPS:
                _rows(report, found, targets, protocol, step)
    report.finish(json_argument(arguments))


def _rows(
    report: Report,
    found: dict[tuple[str, str, str], list[Taken]],
    targets: Sequence[Target],
    protocol: str,
    step: str,
) -> None:
    is_goal = protocol == "new protocol"
    for what, unit, index, goal in (
        ("until owned and even", "s", 0, STEPS[step]),
        ("partition-seconds without an owner", "s", 1, ">= 2x"),
    ):
        ours, *peer = [
            median(taken[index] for taken in found[target.name, protocol, step])
            for target in targets
        ]
        report.add(
            Row(
                f"{step}, {protocol}: {what}",
                unit,
                ours,
                peer[0] if peer else None,
                PEER,
                goal if is_goal else "",
                higher_is_better=False,
            )
        )


@contextmanager
def _with_grace() -> Iterator[Target]:
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as directory:
        file = Path(directory) / "serve.toml"
        file.write_text(f"[groups]\ndead_connection_grace_ms = {GRACE_MS}\n")
        process, address, _ = start(
            f"{directory}/data", "--config", str(file), "--durability", "os"
        )
        try:
            yield Target("shoal (os)", address, process.pid)
        finally:
            stop(process)


# --- one group, from nine members to nine members ----------------------------------------------


def _one_life(target: Target, protocol: str) -> dict[str, Taken]:
    topic = f"convergence-{time.time_ns()}"
    create_topic(target.address, topic, PARTITIONS)
    group = _Group()
    with ExitStack() as stack:

        def new_member() -> _Member:
            member = _Member(group, target.servers, topic, protocol)
            stack.callback(member.end)
            return member

        members = [new_member() for _ in range(MEMBERS)]
        for member in members:
            member.ready.wait(PATIENCE_S)
        last, first = members.pop(), members[0]
        taken = {"nine start": group.converge(members, [each.go for each in members])}
        members.append(last)
        taken["one joins"] = group.converge(members, [last.go])
        members.remove(first)
        taken["one leaves"] = group.converge(members, [first.leave])
        victim = members.pop(0)
        taken["one is killed"] = group.converge(members, [victim.kill])
    print(f"  {target.name}, {protocol}: " + "; ".join(_said(step, taken[step]) for step in taken))
    return taken


def _said(step: str, taken: Taken) -> str:
    return f"{step} {taken.seconds:.1f} s / {taken.partition_seconds:.0f}"


class _Group:
    """Who owns what, as the members tell it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._owned: dict[_Member, set[int]] = {}
        self._unowned_since: dict[int, float] = {}
        self._lost_seconds = 0.0
        self._last_change = 0.0

    def told(self, member: _Member, at: float, taken: set[int], given: set[int]) -> None:
        with self._changed:
            owned = self._owned.setdefault(member, set())
            owned |= taken
            owned -= given
            everywhere = set().union(*self._owned.values())
            for partition in taken:
                since = self._unowned_since.pop(partition, None)
                if since is not None:
                    self._lost_seconds += max(0.0, at - since)
            for partition in given - everywhere:
                self._unowned_since[partition] = at
            self._last_change = at
            self._changed.notify_all()

    def gone(self, member: _Member, at: float) -> None:
        with self._changed:
            owned = set(self._owned.get(member, ()))
        self.told(member, at, set(), owned)

    def converge(self, members: Sequence[_Member], actions: Sequence[Any]) -> Taken:
        began = time.time()
        with self._changed:
            self._lost_seconds = 0.0
            if len(actions) == len(members):  # nobody owns anything before the first
                self._unowned_since = dict.fromkeys(range(PARTITIONS), began)
        for action in actions:
            action()
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_even(members), PATIENCE_S):
                sizes = [len(self._owned.get(each, ())) for each in members]
                raise RuntimeError(f"not even after {PATIENCE_S:.0f} s: {sizes}")
            return Taken(max(0.0, self._last_change - began), self._lost_seconds)

    def _is_even(self, members: Sequence[_Member]) -> bool:
        sizes = [len(self._owned.get(each, ())) for each in members]
        is_spread = sum(sizes) == PARTITIONS and max(sizes) - min(sizes) <= 1
        rest = sum(map(len, self._owned.values()))
        return is_spread and rest == PARTITIONS and not self._unowned_since


class _Member:
    """A process of confluent-kafka, told what to do on its standard input."""

    def __init__(self, group: _Group, servers: str, topic: str, protocol: str) -> None:
        self._group = group
        self.ready = threading.Event()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "benchmarks.group_convergence"),
                *("member", servers, topic, protocol),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            if said == "ready":
                self.ready.set()
            else:
                at, taken, given = said
                self._group.told(self, at, set(taken), set(given))

    def go(self) -> None:
        self._say("go")

    def leave(self) -> None:
        self._say("leave")

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        at = time.time()
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        self._group.gone(self, at)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


# --- a member's process ------------------------------------------------------------------------


def _member(servers: str, topic: str, protocol: str) -> None:
    from confluent_kafka import Consumer

    settings: dict[str, Any] = {"bootstrap.servers": servers, "group.id": topic}
    consumer = Consumer({**settings, **PROTOCOLS[protocol]})
    is_leaving = threading.Event()

    def tell(taken: Sequence[Any], given: Sequence[Any]) -> None:
        numbers = [each.partition for each in taken], [each.partition for each in given]
        print(json.dumps([time.time(), *numbers]), flush=True)

    def on_assign(_: Any, partitions: Sequence[Any]) -> None:
        tell(partitions, ())

    def on_revoke(_: Any, partitions: Sequence[Any]) -> None:
        tell((), partitions)

    def wait_for_leave() -> None:
        sys.stdin.readline()
        is_leaving.set()

    print(json.dumps("ready"), flush=True)
    if not sys.stdin.readline():
        return
    threading.Thread(target=wait_for_leave, daemon=True).start()
    consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke)
    while not is_leaving.is_set():
        consumer.poll(0.05)
    consumer.close()


if __name__ == "__main__":
    main(sys.argv[1:])
