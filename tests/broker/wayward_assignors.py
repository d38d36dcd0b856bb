"""Assignors for the broker, most of them bad ones; they run in processes of their own."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from shoal.assign.server_spec import GroupSpec, ServerAssignment
from shoal.types import TopicPartition


def by_turns(spec: GroupSpec) -> ServerAssignment:
    """A good one: everything in turns, by member id."""
    print("what an assignor prints is no answer")
    members = sorted(spec.members)
    target: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for place, tp in enumerate(sorted(spec.partitions)):
        target[members[place % len(members)]].append(tp)
    return target


class LastTakesAll:
    """A good one, and a class: the last member has everything."""

    name = "last-takes-all"

    def assign(self, spec: GroupSpec) -> ServerAssignment:
        return {max(spec.members): list(spec.partitions)}


class Telling:
    """Says what it was told, as a fault: so a test can read it."""

    name = "telling"

    def assign(self, spec: GroupSpec) -> ServerAssignment:
        raise ValueError(repr(spec))


def moody(spec: GroupSpec) -> Any:
    """Does what the rack of its first member by id says."""
    good = {**by_turns(spec)}
    first = min(spec.members)
    match spec.members[first].rack:
        case "hangs":
            while True:
                pass
        case "sleeps":
            time.sleep(3600)
        case "raises":
            raise RuntimeError("no idea")
        case "exits":
            sys.exit(3)
        case "dies":
            os._exit(4)
        case "two owners":
            return {member: list(spec.partitions) for member in [first, max(spec.members)]}
        case "unknown member":
            return {**good, "x": []}
        case "unknown partition":
            return {**good, first: [*good[first], TopicPartition("t", 99)]}
        case "missing":
            return {**good, first: list(good[first])[1:]}
        case "no mapping":
            return [1, 2]
        case "no partitions":
            return {first: [1]}
        case "no numbers":
            return {first: [("t", "0")]}
    return good


def loner(spec: GroupSpec) -> ServerAssignment:
    """Serves one member, and hangs for more."""
    while len(spec.members) > 1:
        pass
    return by_turns(spec)


not_callable = 5


class Nameless:
    def assign(self, spec: GroupSpec) -> ServerAssignment:
        return {}
