"""Seven faults, five of them kill -9, in CI; a hundred and more by ``make soak``."""

from __future__ import annotations

import pytest

from tests.soak.history import History
from tests.soak.run import soak

LOG = {0: {0: b"p0-0", 1: b"p0-1", 2: b"p1-0"}}


def _history() -> History:
    history = History()
    history.acknowledged += [((0, 0), b"p0-0"), ((0, 1), b"p0-1")]
    history.read["c0", 1] += [((0, 0), b"p0-0"), ((0, 1), b"p0-1"), ((0, 2), b"p1-0")]
    history.committed.append((0, 2))
    return history


def test_a_true_history_has_no_anomaly():
    assert _history().anomalies(LOG, {0: 2}) == []


@pytest.mark.parametrize(
    ("log", "committed", "anomaly"),
    [
        ({0: {0: b"p0-0", 2: b"p1-0"}}, {0: 2}, "lost"),
        ({0: {0: b"p0-0", 1: b"p0-7", 2: b"p1-0"}}, {0: 2}, "inconsistent"),
        ({0: {**LOG[0], 3: b"p0-1"}}, {0: 2}, "duplicated"),
        ({0: {0: b"p0-1", 1: b"p0-0", 2: b"p1-0"}}, {0: 2}, "reordered"),
        (LOG, {0: 1}, "forgotten"),
        (LOG, {0: 9}, "forgotten"),
    ],
)
def test_every_anomaly_is_found(log, committed, anomaly):
    found = _history().anomalies(log, committed)
    assert any(each.startswith(anomaly) for each in found), found


def test_a_skip_is_found():
    history = _history()
    history.read["c1", 1] += [((0, 0), b"p0-0"), ((0, 2), b"p1-0")]
    assert history.anomalies(LOG, {0: 2}) == ["skipped: ('c1', 1) did not get 0/1"]


@pytest.mark.slow
def test_five_kills_under_load_leave_no_anomaly(tmp_path):
    result = soak(tmp_path, faults=7, seed=5)
    assert result["kill"] >= 5
    assert result["acknowledged"] > 1000
    assert result["read"] >= result["acknowledged"]
    assert result["commits"] > 0
    assert result["anomalies"] == []
