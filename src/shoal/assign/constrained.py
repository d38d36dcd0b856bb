"""The sticky algorithm for a group whose members all subscribe to the same topics.

Every member gets the minimum quota or one more. Members keep what they own up to their quota; the
rest is dealt out to those below the minimum, and what then remains, one each, to members that have
exactly the minimum. With racks, owned partitions far from their member are given up first, and
partitions are dealt to members near a replica before the plain deal.

This is the clear version, for small groups and for racks. ``arrays.keep_and_deal`` does the same
on arrays; a property test holds them together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from shoal.assign.claims import Ownership
from shoal.assign.partitions import pack, unpack
from shoal.assign.problem import Problem, RackTable
from shoal.errors import UpstreamFailureError

Placing = Callable[[int, int], int]
"""Give a partition to a member; returns how many the member then has."""


class _Quotas:
    """How many partitions members have, may have, and who may still get more."""

    def __init__(self, problem: Problem) -> None:
        members = len(problem.member_ids)
        total = problem.layout.total
        self.low = total // members
        self.high = -(-total // members)
        self.over_expected = total % members
        self.over = 0
        self.given: list[list[int]] = [[] for _ in range(members)]
        self.under: list[int] = []
        self.exact: list[int] = []

    def count_one_over(self) -> None:
        """A member went above the minimum; when enough did, nobody else may."""
        self.over += 1
        if self.over == self.over_expected:
            self.exact.clear()


def assign_constrained(
    problem: Problem, ownership: Ownership, racks: RackTable | None
) -> tuple[list[list[int]], dict[int, int]]:
    """Packed partitions per member; and partition → new member for what changes owner."""
    quotas = _Quotas(problem)
    given_up = _keep_owned(quotas, ownership, racks)
    left = _unassigned(problem, quotas.given)
    ranks = problem.ranks()
    quotas.under.sort(key=ranks.__getitem__)
    quotas.exact.sort(key=ranks.__getitem__)
    transferring: dict[int, int] = {}

    def place(partition: int, member: int) -> int:
        quotas.given[member].append(partition)
        if given_up.get(partition, member) != member or partition in ownership.contested:
            transferring[partition] = member
        return len(quotas.given[member])

    if racks is not None:
        left = _deal_near(quotas, left, racks, place)
    _deal(quotas, left, place)
    _verify(problem, quotas)
    return quotas.given, transferring


def _keep_owned(quotas: _Quotas, ownership: Ownership, racks: RackTable | None) -> dict[int, int]:
    """Let members keep what their quota allows. Returns partition → owner for the rest."""
    given_up: dict[int, int] = {}
    for member, claimed in enumerate(ownership.owned):
        keep = []
        for partition in claimed:
            if racks is not None and racks.mismatch(member, *unpack(partition)):
                given_up[partition] = member
            else:
                keep.append(partition)
        # By number first, so that a member keeps some of every topic (KAFKA-16277).
        keep.sort(key=lambda partition: unpack(partition)[::-1])
        for partition in ownership.contested.intersection(keep):
            keep.remove(partition)
        if len(keep) < quotas.low:
            quota = len(keep)
            quotas.under.append(member)
        elif len(keep) >= quotas.high and quotas.over < quotas.over_expected:
            quota = quotas.high
            quotas.count_one_over()
        else:
            quota = quotas.low
            if quotas.over < quotas.over_expected:
                quotas.exact.append(member)
        quotas.given[member].extend(keep[:quota])
        given_up.update(dict.fromkeys(keep[quota:], member))
    return given_up


def _unassigned(problem: Problem, given: Sequence[Sequence[int]]) -> list[int]:
    """What nobody kept, in order.

    Two sorted lists are walked side by side as Kafka does: a kept partition that does not exist
    stops the walk, and everything behind it counts as unassigned.
    """
    kept = sorted(partition for partitions in given for partition in partitions)
    left = []
    position = 0
    for topic, count in enumerate(problem.layout.counts):
        for partition in range(pack(topic, 0), pack(topic, count)):
            if position < len(kept) and kept[position] == partition:
                position += 1
            else:
                left.append(partition)
    return left


def _deal_near(quotas: _Quotas, left: list[int], racks: RackTable, place: Placing) -> list[int]:
    """Deal each partition to the next member with a replica near it. Returns what found none."""
    members_in: dict[str, int] = {}
    for rack in racks.of_member:
        if rack is not None:
            members_in[rack] = members_in.get(rack, 0) + 1

    def rivals(partition: int) -> int:
        return sum(members_in.get(rack, 0) for rack in racks.at(*unpack(partition)))

    start = 0
    far = []
    for partition in sorted(left, key=rivals):
        near = racks.at(*unpack(partition))
        found = _next_near(quotas.under, near, racks, start)
        if found is not None:
            member = quotas.under[found]
            count = len(quotas.given[member]) + 1
            if count >= quotas.low:
                del quotas.under[found]
                if count < quotas.high and quotas.over < quotas.over_expected:
                    quotas.exact.append(member)
            else:
                found += 1
            start = found % len(quotas.under) if quotas.under else 0
        else:
            found = _next_near(quotas.exact, near, racks, 0)
            if found is None:
                far.append(partition)
                continue
            member = quotas.exact[found]
            if len(quotas.given[member]) + 1 == quotas.high:
                del quotas.exact[found]
                quotas.count_one_over()
        place(partition, member)
    return far


def _next_near(
    members: Sequence[int], near: frozenset[str], racks: RackTable, start: int
) -> int | None:
    for step in range(len(members)):
        index = (start + step) % len(members)
        if racks.of_member[members[index]] in near:
            return index
    return None


def _deal(quotas: _Quotas, left: Sequence[int], place: Placing) -> None:
    """Round and round over members below the minimum; then one each to members exactly at it."""
    exact = deque(quotas.exact)
    turn = 0
    for partition in left:
        if quotas.under:
            turn = 0 if turn >= len(quotas.under) else turn
            count = place(partition, quotas.under[turn])
            if count == quotas.low:
                exact.append(quotas.under.pop(turn))
            else:
                turn += 1
        else:
            if not exact:
                raise UpstreamFailureError(
                    "java.lang.IllegalStateException: No more unfilled consumers to be assigned."
                )
            count = place(partition, exact.popleft())
        if count == quotas.high and quotas.high > quotas.low:
            quotas.over += 1


def _verify(problem: Problem, quotas: _Quotas) -> None:
    """Kafka's closing checks; they fail only on claims to partitions that do not exist."""
    if not quotas.under:
        return
    if quotas.over != quotas.over_expected:
        raise UpstreamFailureError(
            "java.lang.IllegalStateException: We haven't reached the expected number of members "
            "with more than the minQuota partitions, but no more partitions to be assigned"
        )
    for member in quotas.under:
        if len(quotas.given[member]) != quotas.low:
            raise UpstreamFailureError(
                f"java.lang.IllegalStateException: Consumer: [{problem.member_ids[member]}] "
                "doesn't reach minQuota partitions, and no more partitions to be assigned"
            )
