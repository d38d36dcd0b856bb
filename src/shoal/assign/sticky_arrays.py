"""A sticky assignment on arrays from start to end; see ``sticky``."""

from __future__ import annotations

import numpy as np

from shoal.assign.arrays import Flags, Rows
from shoal.assign.claim_arrays import ClaimArrays, gather, previous_arrays, settle_arrays
from shoal.assign.constrained_arrays import keep_and_deal
from shoal.assign.general_arrays import balance
from shoal.assign.problem import Problem, rack_table
from shoal.errors import UpstreamFailureError


def solve_on_arrays(
    problem: Problem, *, claims_in_user_data: bool, two_rounds: bool
) -> Rows | None:
    """The assignment, or None for a group that only the clear algorithms know how to treat.

    Those are groups where racks matter, and input of the kinds on which Kafka may be unsound or
    find no end.
    """
    if problem.has_odd_lists() or rack_table(problem) is not None:
        return None
    claims = gather(problem, in_user_data=claims_in_user_data)
    if claims.has_ghosts:
        return None
    owned = settle_arrays(claims, problem.layout.total)
    if problem.equal_as_kafka_tests():
        rows = keep_and_deal(problem, owned)
    else:
        previous, foreign = previous_arrays(problem, claims, problem.layout.total)
        if foreign:
            return None
        try:
            rows = balance(problem, owned, previous)
        except UpstreamFailureError:
            return None
        if two_rounds:
            rows.withheld = _changing_hands(problem, claims, rows)
    return _without_withheld(problem, rows) if two_rounds else rows


def _changing_hands(problem: Problem, claims: ClaimArrays, rows: Rows) -> Flags:
    """Partitions that somebody claimed and does not keep, given to somebody who did not claim."""
    owner = np.empty(problem.layout.total, dtype=np.int32)
    owner[rows.numbers] = np.repeat(np.arange(len(rows.counts), dtype=np.int32), rows.counts)
    keeps = owner[claims.numbers] == claims.members
    lost = np.zeros(problem.layout.total, dtype=bool)
    lost[claims.numbers[~keeps]] = True
    lost[claims.numbers[keeps]] = False
    return lost


def _without_withheld(problem: Problem, rows: Rows) -> Rows:
    if rows.withheld is None or not rows.withheld.any():
        return rows
    members = np.repeat(np.arange(len(rows.counts)), rows.counts)
    given = ~rows.withheld[rows.numbers]
    counts = np.bincount(members[given], minlength=len(problem.member_ids))
    return Rows(rows.numbers[given], counts, rows.withheld)
