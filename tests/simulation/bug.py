"""A planted bug whose test is a simulation: which seed notices it stands in a table."""

from __future__ import annotations

from typing import NamedTuple


class Bug(NamedTuple):
    """See ``PlantedBug``; the seed that notices it is found by ``make seeds``."""

    name: str
    file: str
    old: str
    new: str
