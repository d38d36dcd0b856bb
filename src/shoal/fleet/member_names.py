"""What the members of a group are called in front of people.

Client ids tell nothing apart: their default is the same for everybody. Member ids do, but a
classic one is a client id (or an instance id) and a UUID, one of KIP-848 a UUID alone, and nobody
reads those.

Rule: members are told apart by their ids, and shown by the names made here and nowhere else: the
client id and the first characters of the UUID, four or as many more as it takes. A static member
keeps its instance id through restarts, so that is its name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise, takewhile
from typing import Final, NamedTuple

SHOWN_MIN: Final = 4
"""Characters of a UUID: enough for most groups, so that a name seldom changes when others join."""

_HEX: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_ID: Final = re.compile(rf"(?:(?P<head>.*)-)?(?P<uuid>{_HEX})|(?P<base64>[\w+/-]{{22}})", re.DOTALL)


class MemberIdentity(NamedTuple):
    """What is known of a member. Records of the past hold the id alone."""

    member_id: str
    client_id: str = ""
    group_instance_id: str | None = None


def member_names(members: Iterable[MemberIdentity]) -> dict[str, str]:
    """A short name for each member, by member id; no two are the same."""
    parts = {one.member_id: _parts(one) for one in members}
    by_head: dict[str, list[str]] = {}
    for head, rest in parts.values():
        by_head.setdefault(head, []).append(rest)
    lengths = {head: _lengths(rests) for head, rests in by_head.items()}
    names = {
        member_id: head if not rest else f"{head}-{rest[: lengths[head][rest]]}".removeprefix("-")
        for member_id, (head, rest) in parts.items()
    }
    # Names of different making may meet; ids are distinct, so this ends.
    while shared := {name for name, count in Counter(names.values()).items() if count > 1}:
        names = {one: one if name in shared else name for one, name in names.items()}
    return names


def short_names(member_ids: Iterable[str]) -> list[str]:
    """The names of members of which only the ids are known, in their order."""
    ids = list(member_ids)
    names = member_names(map(MemberIdentity, ids))
    return [names[one] for one in ids]


def _parts(one: MemberIdentity) -> tuple[str, str]:
    """What is shown whole, and what is shown in part (of a static member: nothing)."""
    if one.group_instance_id is not None:
        return one.group_instance_id, ""
    if one.client_id and one.member_id.startswith(f"{one.client_id}-"):
        return one.client_id, one.member_id.removeprefix(f"{one.client_id}-")
    if found := _ID.fullmatch(one.member_id):
        return one.client_id or found["head"] or "", found["uuid"] or found["base64"]
    return one.member_id, ""  # made by hand: a name already


def _lengths(rests: list[str]) -> dict[str, int]:
    """How much of each text tells it from all the others."""
    ordered = sorted(set(rests))
    lengths = dict.fromkeys(ordered, SHOWN_MIN)
    for one, other in pairwise(ordered):
        shared = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
        apart = sum(1 for _ in shared) + 1
        lengths[one] = max(lengths[one], apart)
        lengths[other] = max(lengths[other], apart)
    return lengths
