"""How long a test waits for what must come.

Long, because a machine may be busy, and a test that gives up early fails for nothing. Only where
bugs are planted is it short: there the answer mostly never comes, and a thousand tests wait.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable

PATIENCE_S = float(os.environ.get("SHOAL_TEST_PATIENCE_S") or 30.0)


def is_quick(seconds: float, call: Callable[[], object]) -> bool:
    """Whether the call takes less than that at least once.

    A busy machine slows down some calls, a bug all of them.
    """
    end = time.monotonic() + PATIENCE_S
    while True:
        before = time.monotonic()
        call()
        if time.monotonic() - before < seconds:
            return True
        if time.monotonic() > end:
            return False


def reason_in_time(call: Callable[[float], object], error: type[Exception], pattern: str) -> None:
    """The call, given a timeout, must fail with an error that says why.

    On a busy machine the time may end in the middle of an attempt, which says only that: then more
    time is given.
    """
    told = ""
    for seconds in (0.3, 1.0, 3.0, PATIENCE_S):
        try:
            call(seconds)
        except error as raised:
            told = str(raised)
            if re.search(pattern, told):
                return
        else:
            raise AssertionError("it did not fail")
    raise AssertionError(f"it only said: {told}")
