"""Shared settings of the test suite."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.peers.cache import absent

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

# These machines are shared: a deadline would judge the neighbours, not the code.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", _PATIENT, derandomize=True)
# `make test-all` looks for new examples; a test that fails on one gets it as an `@example`.
settings.register_profile("new", _PATIENT)
settings.load_profile("same")


@pytest.fixture(autouse=True)
def _no_test_changes_the_logging_of_the_next() -> Iterator[None]:
    """Commands called in this process set up logging for a process of their own."""
    shoal = logging.getLogger("shoal")
    level, propagates, handlers = shoal.level, shoal.propagate, list(shoal.handlers)
    yield
    if shoal.level != level:
        shoal.setLevel(level)
    shoal.propagate = propagates
    shoal.handlers[:] = handlers


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
