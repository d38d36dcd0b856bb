"""Background work in slices, for an owner who has other things to do between them.

A job is an iterator. ``None`` means "call me again"; a callable is work for any thread, to be run
to its end before the job is continued. Work never raises for reasons of the disk: the job that
asked for it looks at the result, so one bad partition does not end the work on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

Job = Iterator[Callable[[], object] | None]


class Attempt:
    """Work for a worker thread; ``check`` raises afterwards what the disk said."""

    __slots__ = ("_work", "error")

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self.error: OSError | None = None

    def __call__(self) -> None:
        try:
            self._work()
        except OSError as error:
            self.error = error

    def check(self) -> None:
        if self.error is not None:
            raise self.error


def attempt(work: Callable[[], object]) -> Job:
    """``yield from`` this: one piece of work, and its failure raised in the job.

    Raises:
        OSError: what the work raised.
    """
    one = Attempt(work)
    yield one
    one.check()


def run_job(job: Job) -> None:
    """Run background work to its end, in this thread."""
    for work in job:
        if work is not None:
            work()
