"""Changes by the dashboard, where they are done: of the plan that was shown, and only of it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from shoal import Admin, Producer, TopicPartition
from shoal.errors import ConfigError
from shoal.testing.broker import Broker
from shoal.web.actions import PLAN_LIFE_S, Actions

T0 = TopicPartition("t", 0)
SETTINGS: dict[str, Any] = {}


@pytest.fixture(scope="module")
def admin() -> Iterator[Admin]:
    """Of a topic with offsets 4 to 10; what was before is deleted."""
    with Broker(topics=["t"]) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for _ in range(10):
                producer.send("t", b"x", partition=0)
        SETTINGS["bootstrap_servers"] = broker.bootstrap_servers
        with Admin(**SETTINGS) as one:
            one.delete_records({T0: 4})
            yield one


def watch(admin: Admin, name: str = "here") -> Any:
    """What a change needs of a watch: the cluster, how it is reached, and what it is called."""
    return SimpleNamespace(admin=admin, name=name, settings=SETTINGS)


def test_a_plan_is_done_once(admin: Admin) -> None:
    actions = Actions(allow_writes=True)
    admin.alter_group_offsets("once", {T0: 8})
    number = actions.preview(watch(admin), "once", "8", None)["plan"]
    assert actions.reset(watch(admin), number, "once")["partitions"] == 1
    with pytest.raises(ConfigError, match="too old; look at a new one"):
        actions.reset(watch(admin), number, "once")


def test_a_plan_of_another_cluster_is_not_done_here(admin: Admin) -> None:
    actions = Actions(allow_writes=True)
    admin.alter_group_offsets("other", {T0: 8})
    number = actions.preview(watch(admin), "other", "earliest", None)["plan"]
    with pytest.raises(ConfigError, match="not the group's"):
        actions.reset(watch(admin, "there"), number, "other")
    found = admin.group_offsets("other", [T0])[T0]
    assert found is not None
    assert found.offset == 8


def test_a_plan_that_was_shown_long_ago_is_not_done(admin: Admin) -> None:
    now = [0.0]
    actions = Actions(allow_writes=True, clock=lambda: now[0])
    admin.alter_group_offsets("old", {T0: 8})
    number = actions.preview(watch(admin), "old", "earliest", None)["plan"]
    now[0] = PLAN_LIFE_S + 1
    with pytest.raises(ConfigError, match="too old; look at a new one"):
        actions.reset(watch(admin), number, "old")


@pytest.mark.parametrize(
    ("committed", "to", "skipped", "read_again"),
    [(1, "latest", 6, 0), (6, "latest", 4, 0), (6, "earliest", 0, 2), (1, "earliest", 0, 0)],
)
def test_records_that_are_deleted_are_neither_skipped_nor_read_again(
    admin: Admin, committed: int, to: str, skipped: int, read_again: int
) -> None:
    group = f"counted-{committed}-{to}"
    admin.alter_group_offsets(group, {T0: committed})
    (row,) = Actions(allow_writes=False).preview(watch(admin), group, to, None)["rows"]
    assert (int(row["skipped"]), int(row["read_again"])) == (skipped, read_again)
