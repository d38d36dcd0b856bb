"""Errors as Spark's users read them: the line that says what to do first, the traceback below.

Spark shows the text of a traceback, whose last line is the one that matters, behind frames of ours
and its own. Python prints the cause of an exception before it, and a cause that was never raised is
a single line: so that is how the error is told. Spark takes the cause away before it prints; here
it stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from shoal.errors import ShoalError

P = ParamSpec("P")
T = TypeVar("T")


class SparkError(ShoalError):
    """What went wrong in a process of Spark's."""

    def __init__(self, error: ShoalError) -> None:
        super().__init__(str(error))
        self._first_line = error

    @property
    def __cause__(self) -> BaseException | None:
        return self._first_line

    @__cause__.setter
    def __cause__(self, cause: BaseException | None) -> None:
        """Not for Spark to take away."""


def first_line(call: Callable[P, T]) -> Callable[P, T]:
    """A method that Spark calls; its errors are told with their line first."""

    @wraps(call)
    def told(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except SparkError:
            raise
        except ShoalError as error:
            raise _with_line_first(error) from None

    return told


def first_line_of_rows(rows: Iterator[T]) -> Iterator[T]:
    """The same for what a method yields."""
    try:
        yield from rows
    except SparkError:
        raise
    except ShoalError as error:
        raise _with_line_first(error) from None


def _with_line_first(error: ShoalError) -> SparkError:
    traceback = error.__traceback__
    error.__cause__ = error.__context__ = None
    return SparkError(error.with_traceback(None)).with_traceback(traceback)
