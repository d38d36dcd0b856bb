"""The process in which an assignor of a user's runs.

``python -m shoal.broker.assignor_worker package.module:attribute`` reads orders from standard input
and answers on standard output, a line of JSON each (the lines are described in
``assignor_process.py``). Whatever the assignor prints goes to standard error.

Rule: it ends when the broker does. Orders are read in a thread of their own, which ends the process
when there are no more, whatever the assignor is doing.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from queue import SimpleQueue
from typing import Any, BinaryIO

from shoal.assign.loading import object_at
from shoal.assign.server_spec import (
    GroupSpec,
    ServerAssignFunction,
    SpecMember,
    SpecPartition,
    answered,
)
from shoal.errors import ShoalError
from shoal.types import TopicPartition


def load(path: str) -> tuple[str, ServerAssignFunction]:
    """The name and the function of what stands at ``package.module:Name``.

    Raises:
        ValueError, TypeError: there is nothing, or no assignor.
    """
    found: Any = object_at(path)
    made = found() if isinstance(found, type) else found
    if callable(getattr(made, "assign", None)):
        name = getattr(made, "name", None)
        if not isinstance(name, str) or not name:
            raise TypeError(f'{path} has no name: write name = "..." in the class')
        return name, made.assign
    function: Any = made
    if callable(made):
        return str(getattr(made, "__name__", type(made).__name__)), function
    raise TypeError(
        f"{path} is not an assignor: be a function of a GroupSpec, or have name and assign"
    )


def read_order(lines: BinaryIO) -> GroupSpec | None:
    """The next order; ``None`` at the end."""
    first = lines.readline()
    if not first:
        return None
    head = json.loads(first)
    members = {}
    for _ in range(head["members"]):
        row = json.loads(lines.readline())
        held = row.pop("assigned")
        members[row["member_id"]] = SpecMember(
            **row | {"topics": frozenset(row["topics"])},
            assigned=tuple(TopicPartition(t, n) for t, numbers in held.items() for n in numbers),
        )
    partitions = {}
    for _ in range(head["topics"]):
        topic = json.loads(lines.readline())
        racks = tuple(topic["racks"])
        rows = zip(topic["lags"], topic["rates"], strict=True)
        for number, (lag, rate) in enumerate(rows):
            partitions[TopicPartition(topic["name"], number)] = SpecPartition(lag, rate, racks)
    return GroupSpec(head["group_id"], head["epoch"], members, partitions)


def run(name: str, assign: ServerAssignFunction, spec: GroupSpec) -> list[Any]:
    """The lines of an answer."""
    try:
        target = answered(name, assign(spec))
    except ShoalError as error:
        return [{"fault": str(error)}]
    except BaseException as error:  # noqa: BLE001 - user code: whatever it raises is told, even sys.exit
        traceback.print_exc()
        return [{"fault": f"{type(error).__name__}: {error}"}]
    lines: list[Any] = [{"members": len(target)}]
    for member_id, given in target.items():
        by_topic: dict[str, list[int]] = {}
        for topic, partition in given:
            by_topic.setdefault(topic, []).append(partition)
        lines.append([member_id, by_topic])
    return lines


def main(path: str) -> None:
    """Serve orders until the broker is gone."""
    os.nice(5)  # heartbeats come first
    # Standard output is ours alone: what the assignor prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def say(lines: list[Any]) -> None:
        answers.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        answers.flush()

    try:
        name, assign = load(path)
    except Exception as error:  # noqa: BLE001 - importing runs user code, too
        kind = "" if isinstance(error, ValueError | TypeError) else f"{type(error).__name__}: "
        say([{"fault": f"{kind}{error}"}])
        return
    say([{"ready": name}])
    orders: SimpleQueue[GroupSpec] = SimpleQueue()

    def read() -> None:
        while (spec := read_order(sys.stdin.buffer)) is not None:
            orders.put(spec)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        say(run(name, assign, orders.get()))


if __name__ == "__main__":
    main(sys.argv[1])
