"""Found by pytest through the entry point: the fixtures of shoal.testing.

``shoal_broker`` is a broker of its own for each test, in memory, on a free port; with
pytest-xdist every worker has its own. ``shoal_broker_session`` is one for the whole run, for
suites that keep their tests apart by topic names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from shoal.testing.broker import Broker


@pytest.fixture
def shoal_broker() -> Iterator[Broker]:
    """A Kafka broker for this test alone: ``shoal_broker.bootstrap_servers``."""
    # Imported here: the plugin is loaded by every pytest run on the machine.
    from shoal.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def shoal_broker_session() -> Iterator[Broker]:
    """A Kafka broker shared by all tests of this run (of this worker, with xdist)."""
    from shoal.testing.broker import Broker

    with Broker() as broker:
        yield broker
