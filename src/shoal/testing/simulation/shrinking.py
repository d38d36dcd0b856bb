"""Which faults does a failure need? Delta debugging over the list of faults of a seed.

Rule: a smaller run counts as the same failure if it breaks the same invariant. Everything else
about it may differ: the point is a run that a person can read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from shoal.testing.simulation import swarm
from shoal.testing.simulation.invariants import Violation
from shoal.testing.simulation.simulator import Report, simulate


class Rerun(Protocol):
    """``simulate``, or something like it."""

    def __call__(self, seed: int, *, without: Collection[int]) -> Report: ...


@dataclass(frozen=True, slots=True)
class Shrunk:
    """A failure, and the faults that can be left out without losing it."""

    seed: int
    without: frozenset[int]
    needed: tuple[object, ...]
    failure: str


def kind_of(failure: BaseException) -> str:
    """What makes two failures the same."""
    if isinstance(failure, Violation):
        return failure.invariant
    return type(failure).__name__


def failure_of(
    seed: int, without: Collection[int] = (), run: Rerun = simulate
) -> BaseException | None:
    try:
        run(seed, without=without)
    except Exception as failure:  # noqa: BLE001 - whatever a bug raises is what is looked for
        return failure
    return None


def shrink(
    seed: int,
    *,
    progress: Callable[[str], None] = lambda _: None,
    failure_of: Callable[[int, Collection[int]], BaseException | None] = failure_of,
    faults: Callable[[int], Sequence[object]] = lambda seed: swarm.faults(swarm.scenario(seed)),
) -> Shrunk | None:
    """Leave out as many faults as possible; ``None`` if the seed does not fail at all.

    Simulations of another kind have a ``failure_of`` and ``faults`` of their own.
    """
    first = failure_of(seed, ())
    if first is None:
        return None
    wanted = kind_of(first)
    drawn = faults(seed)
    needed = list(range(len(drawn)))
    failure: BaseException = first

    def fails_with(kept: Collection[int]) -> bool:
        nonlocal failure
        found = failure_of(seed, set(range(len(drawn))).difference(kept))
        if found is None or kind_of(found) != wanted:
            return False
        failure = found
        return True

    chunk = max(len(needed) // 2, 1)
    while needed:
        start = 0
        while start < len(needed):
            kept = needed[:start] + needed[start + chunk :]
            if fails_with(kept):
                needed = kept
                progress(f"{len(needed)} faults left")
            else:
                start += chunk
        if chunk == 1:
            break
        chunk = max(chunk // 2, 1)
    return Shrunk(
        seed=seed,
        without=frozenset(range(len(drawn))).difference(needed),
        needed=tuple(drawn[number] for number in needed),
        failure=str(failure),
    )
