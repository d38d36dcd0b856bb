"""Groups chosen by name or pattern, as ``shoal fleet`` takes them."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence


def wanted_groups(patterns: Sequence[str] | None) -> Callable[[str], bool]:
    """Whether a group is meant; without patterns all are."""
    if not patterns:
        return lambda _: True
    return lambda name: any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
