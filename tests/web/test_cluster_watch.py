"""What a watch tells: differences, and nothing that it does not know."""

from __future__ import annotations

import json
import threading
from typing import Any

from shoal.client.metadata import Metadata
from shoal.client.survey import ClusterSurvey, SurveyedGroup
from shoal.errors import ConnectionFailedError
from shoal.types import TopicPartition
from shoal.web.cluster_watch import ClusterWatch, FleetState, exact

TP = TopicPartition("orders", 0)


class Cluster:
    """Answers surveys; what else an Admin has is not asked for here."""

    def __init__(self) -> None:
        self.groups = [SurveyedGroup("g", "Empty", "classic", 1, None, {TP: 5})]
        self.end = 10
        self.asked = 0
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()
        self.fails = False

    def survey(self, **_: object) -> ClusterSurvey:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        self.asked += 1
        try:
            if self.fails:
                raise ConnectionFailedError("nobody listens")
            return ClusterSurvey(Metadata(), {TP: 0}, {TP: self.end}, self.groups)
        finally:
            with self._lock:
                self._now -= 1


def watch_of(cluster: Cluster) -> ClusterWatch:
    admin: Any = cluster
    watch = ClusterWatch("test", admin, {})
    watch._watch = None
    return watch


def test_a_group_without_an_answer_has_no_numbers() -> None:
    cluster = Cluster()
    cluster.groups = [
        SurveyedGroup("g", "", "classic", 1, None, {}, "GROUP_AUTHORIZATION_FAILED"),
        SurveyedGroup("never", "Empty", "classic", 1, None, {}),
    ]
    watch = watch_of(cluster)
    watch.sweep()
    row = watch.state.rows["g"]
    assert (row["lag"], row["behind_s"], row["members"]) == (None, None, None)
    assert row["state"] == "unknown"
    assert row["level"] == "unknown"
    assert "GROUP_AUTHORIZATION_FAILED" in row["verdict"]
    assert row["spark"] == ""
    assert watch.state.rows["never"]["lag"] is None
    assert watch.state.status["without_answer"] == 1


def test_lag_that_was_there_at_the_first_look_is_at_least_so_old() -> None:
    cluster = Cluster()
    watch = watch_of(cluster)
    watch.sweep()
    assert watch.state.rows["g"]["at_least"] is True
    assert watch.state.rows["g"]["lag"] == 5
    cluster.groups = [SurveyedGroup("g", "Empty", "classic", 1, None, {TP: 10})]
    watch.sweep()
    assert watch.state.rows["g"]["at_least"] is False


def test_a_failed_look_keeps_what_was_known_and_says_so() -> None:
    cluster = Cluster()
    watch = watch_of(cluster)
    watch.sweep()
    before = watch.state
    cluster.fails = True
    watch.sweep()
    assert watch.state.rows == before.rows
    assert "nobody listens" in watch.state.status["problem"]
    assert watch.state.status["swept_ms"] == before.status["swept_ms"]
    assert watch.state.version > before.version
    cluster.fails = False
    watch.sweep()
    assert watch.state.status["problem"] == ""


def test_a_look_that_goes_wrong_by_a_bug_of_ours_goes_on_and_says_so() -> None:
    cluster = Cluster()
    watch = watch_of(cluster)
    watch.every_s = 0.0
    told = threading.Event()
    again = threading.Event()
    nothing: Any = None
    cluster.groups = nothing
    watch.on_change(
        lambda: (told if "went wrong" in watch.state.status["problem"] else again).set()
    )
    thread = threading.Thread(target=watch.run)
    thread.start()
    assert told.wait(30)
    cluster.groups = []
    assert again.wait(30)
    watch.stop()
    thread.join(30)


def test_only_what_changed_is_told_again() -> None:
    state = FleetState(7, {"a": {"group": "a"}, "b": {"group": "b"}}, {"a": 3, "b": 7})
    assert [row["group"] for row in state.since(5)["rows"]] == ["b"]
    assert state.since(5)["whole"] is False
    for unknown in (0, -1, 8):
        assert state.since(unknown)["whole"] is True
        assert len(state.since(unknown)["rows"]) == 2


def test_a_group_that_went_is_told_once_and_not_if_it_is_back() -> None:
    state = FleetState(9, {"b": {"group": "b"}}, {"b": 9}, [(6, "a"), (8, "b")])
    assert state.since(5)["gone"] == ["a"]
    assert state.since(6)["gone"] == []
    assert state.since(0)["gone"] == []


def test_a_deleted_group_leaves_nothing_behind() -> None:
    cluster = Cluster()
    watch = watch_of(cluster)
    watch.sweep()
    assert watch.lags("g") is not None
    cluster.groups = []
    watch.sweep()
    assert watch.state.rows == {}
    assert watch.state.since(1)["gone"] == ["g"]
    assert watch.lags("g") is None


def test_one_sweep_is_in_flight_however_many_listen() -> None:
    cluster = Cluster()
    watch = watch_of(cluster)
    watch.every_s = 0.0
    enough = threading.Event()
    for _ in range(10):
        watch.on_change(lambda: enough.set() if cluster.asked > 20 else None)
    thread = threading.Thread(target=watch.run)
    thread.start()
    assert enough.wait(30)
    watch.stop()
    thread.join(30)
    assert cluster.most == 1


def test_numbers_a_browser_would_round_are_text() -> None:
    assert exact(2**53 - 1) == 2**53 - 1
    assert exact(2**53 + 1) == "9007199254740993"
    assert json.dumps(exact(2**63 - 1)) == '"9223372036854775807"'
