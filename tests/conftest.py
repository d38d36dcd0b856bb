"""Shared settings of the test suite."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings

from tests.peers.cache import absent

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

# These machines are shared: a deadline would judge the neighbours, not the code.
settings.register_profile("shoal", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shoal")


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: let the collector never look at it again.

    Nine thousand tests are a large heap, and some tests collect garbage to judge what is left.
    """
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Say at the end which real peers were absent and how many tests that cost."""
    if absent:
        terminalreporter.section("peers that were absent")
        for reason, count in sorted(absent.items()):
            terminalreporter.line(f"{count:4d} not run: {reason}")
