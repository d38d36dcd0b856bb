"""What a process of Spark's can tell by itself."""

from __future__ import annotations

import logging
import os

import pytest

from shoal.spark import process_cache


def test_tasks_are_the_cores_of_a_session_of_ours_and_else_at_least_the_partitions(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(process_cache.TASKS_VARIABLE, "3")
    assert process_cache.default_tasks(500) == 3
    monkeypatch.delenv(process_cache.TASKS_VARIABLE)
    monkeypatch.setattr(process_cache, "_told_of_tasks", [])
    with caplog.at_level(logging.WARNING):
        assert process_cache.default_tasks(500) == 500
        assert process_cache.default_tasks(1) == (os.cpu_count() or 1)
    (told,) = caplog.messages
    assert "500 partitions are read in up to 500 tasks; set option maxTasks" in told


def test_the_machine_names_its_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert process_cache.machine_zone() == "Asia/Tokyo"
