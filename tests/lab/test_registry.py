"""The registry: servers, sessions, ephemeral nodes, one-shot watches, a line of operations."""

from __future__ import annotations

from random import Random

import pytest

from shoal.lab.registry.messages import (
    Behind,
    Children,
    Close,
    Create,
    Delete,
    Get,
    Ping,
    Put,
    RegistryAnswer,
    Sync,
    Watch,
)
from tests.lab.registry_setting import Setting

LAG_MS = 2_000
LONG_MS = 60_000
"""A session nobody has to keep alive."""


# --- nodes, sessions, watches --------------------------------------------------------------------


@pytest.mark.parametrize("server", [0, 1])
def test_a_watch_is_told_once(server: int) -> None:
    setting = Setting()
    watcher, other = setting.client(server), setting.client(2)
    assert watcher.ask(Children("/ids")) == ()
    other.ask(Create(("/ids/a",), "x"))
    other.ask(Create(("/ids/b",), "x"))
    assert watcher.changes == ["/ids"]
    assert watcher.ask(Children("/ids")) == ("a", "b")
    other.ask(Delete(("/ids/a",)))
    assert watcher.changes == ["/ids", "/ids"]


def test_a_watch_on_a_node_is_told_of_its_data_and_of_its_end() -> None:
    setting = Setting()
    watcher, other = setting.client(1), setting.client(2)
    assert watcher.ask(Get(("/leader",), watch=True)) == (None,)
    other.ask(Create(("/leader",), "b1"))
    assert watcher.changes == ["/leader"]
    watcher.ask(Get(("/leader",), watch=True))
    other.ask(Delete(("/leader",)))
    assert watcher.changes == ["/leader", "/leader"]


def test_a_node_is_made_once_and_its_maker_may_ask_again() -> None:
    setting = Setting()
    first, second = setting.client(0), setting.client(1)
    assert first.ask(Create(("/owners/0", "/owners/1"), "first")) == [True, True]
    assert second.ask(Create(("/owners/1", "/owners/2"), "second")) == [False, True]
    assert first.ask(Create(("/owners/0",), "first")) == [True]
    assert second.ask(Get(("/owners/1", "/owners/2", "/none"))) == ("first", "second", None)


def test_ephemeral_nodes_die_with_their_session_and_others_hear_of_it() -> None:
    setting = Setting()
    silent = setting.client(1, timeout_ms=1_000)
    watcher = setting.client(2, timeout_ms=LONG_MS)
    silent.ask(Create(("/ids/silent",), "x"))
    silent.ask(Put((("/offsets/0", 7),)))
    assert watcher.ask(Children("/ids")) == ("silent",)
    setting.settle(1_500)
    assert watcher.changes == ["/ids"]
    assert watcher.ask(Children("/ids")) == ()
    assert watcher.ask(Get(("/offsets/0",))) == (7,)


def test_pings_keep_a_session_alive() -> None:
    setting = Setting()
    client = setting.client(1, timeout_ms=1_000)
    client.ask(Create(("/ids/a",), "x"))
    for _ in range(10):
        client.connection.ask(Ping())
        setting.settle(500)
    assert client.ask(Children("/ids")) == ("a",)


def test_closing_ends_a_session_at_once() -> None:
    setting = Setting()
    client, other = setting.client(0), setting.client(1)
    client.ask(Create(("/ids/a",), "x"))
    client.ask(Close())
    assert other.ask(Children("/ids")) == ()


def test_who_comes_back_in_time_keeps_the_session_and_hears_what_was_missed() -> None:
    setting = Setting()
    client, other = setting.client(0), setting.client(1)
    client.ask(Create(("/ids/a",), "x"))
    number = client.send(Children("/ids"))
    setting.settle()
    answer = client.answer(number)
    assert answer is not None
    client.connection.close()
    other.ask(Create(("/ids/b",), "x"))
    watch = Watch("/ids", of_children=True)
    back = setting.client(2, session_id=client.session_id, seen=answer.seen, watches=(watch,))
    assert back.session_id == client.session_id
    assert back.changes == ["/ids"]


def test_a_watch_that_is_brought_along_and_not_due_is_told_later() -> None:
    setting = Setting()
    client, other = setting.client(0), setting.client(1)
    client.connection.close()
    watch = Watch("/ids", of_children=True)
    back = setting.client(2, session_id=client.session_id, watches=(watch,))
    assert back.changes == []
    other.ask(Create(("/ids/b",), "x"))
    assert back.changes == ["/ids"]


def test_who_comes_back_too_late_gets_another_session() -> None:
    setting = Setting()
    client = setting.client(0, timeout_ms=1_000)
    client.connection.close()
    setting.settle(3_000)
    assert setting.client(1, session_id=client.session_id).session_id != client.session_id


def test_a_crowd_waits_in_line() -> None:
    setting = Setting(operation_us=1_000)
    clients = [setting.client(0) for _ in range(50)]
    started_ms = setting.clock.now_ms
    for client in clients:
        client.send(Get(tuple(f"/ids/{n}" for n in range(10))))
    setting.clock.run_until(started_ms + 400)
    answered = [any(isinstance(m, RegistryAnswer) for m in client.told) for client in clients]
    assert 0 < sum(answered) < 50
    setting.settle(200)
    assert all(any(isinstance(m, RegistryAnswer) for m in client.told) for client in clients)


def test_a_guarded_write_is_done_only_while_the_guard_holds() -> None:
    setting = Setting()
    client = setting.client(1)
    assert client.ask(Put((("/epoch", 1),), guard=("/epoch", None))) is True
    assert client.ask(Put((("/offsets/0", 5),), guard=("/epoch", 1))) is True
    assert client.ask(Put((("/epoch", 2),), guard=("/epoch", 1))) is True
    assert client.ask(Put((("/offsets/0", 3),), guard=("/epoch", 1))) is False
    assert client.ask(Get(("/offsets/0",))) == (5,)


# --- several servers -----------------------------------------------------------------------------


def test_two_clients_read_different_views_at_the_same_moment() -> None:
    setting = Setting()
    fresh, late = setting.client(0), setting.client(1)
    setting.registry.lag("r2", LAG_MS, 60_000)
    fresh.ask(Create(("/ids/a",), "x"))
    assert fresh.ask(Children("/ids")) == ("a",)
    assert late.ask(Children("/ids")) == ()
    setting.settle(LAG_MS)
    assert late.changes == ["/ids"], "it hears of it when its server has applied it"
    assert late.ask(Children("/ids")) == ("a",)


def test_a_sync_lets_the_server_catch_up() -> None:
    setting = Setting()
    fresh, late = setting.client(0), setting.client(1)
    setting.registry.lag("r2", LAG_MS, 60_000)
    fresh.ask(Create(("/ids/a",), "x"))
    before = setting.registry.between_servers
    late.ask(Sync())
    assert late.ask(Children("/ids")) == ("a",)
    assert setting.registry.between_servers == before + 2, "there and back"


def test_a_client_sees_its_own_writes_even_on_a_server_that_lags() -> None:
    setting = Setting()
    late = setting.client(1, timeout_ms=LONG_MS)
    setting.registry.lag("r2", LAG_MS, 60_000)
    number = late.send(Create(("/ids/a",), "x"))
    looked = late.send(Children("/ids"))
    setting.settle(LAG_MS // 2)
    assert late.answer(number) is None, "it is decided, but this server has not applied it"
    assert setting.registry.data("/ids/a") == "x"
    setting.settle(LAG_MS)
    answer = late.answer(looked)
    assert answer is not None
    assert answer.value == ("a",)


def test_without_that_promise_a_write_is_answered_and_not_seen() -> None:
    setting = Setting(own_writes=False)
    late = setting.client(1, timeout_ms=LONG_MS)
    setting.registry.lag("r2", LAG_MS, 60_000)
    assert late.ask(Create(("/ids/a",), "x")) == [True]
    assert late.ask(Children("/ids")) == ()


def test_a_server_that_is_behind_sends_a_client_on() -> None:
    setting = Setting()
    client = setting.client(0, timeout_ms=LONG_MS)
    setting.registry.lag("r2", LAG_MS, 60_000)
    number = client.send(Create(("/ids/a",), "x"))
    setting.settle()
    answer = client.answer(number)
    assert answer is not None
    back = setting.client(1, session_id=client.session_id, seen=answer.seen)
    assert isinstance(back.told[0], Behind)
    again = setting.client(2, session_id=client.session_id, seen=answer.seen)
    assert again.session_id == client.session_id


def test_an_isolated_server_reads_on_but_decides_nothing() -> None:
    setting = Setting()
    inside = setting.client(1, timeout_ms=LONG_MS)
    outside = setting.client(0, timeout_ms=LONG_MS)
    setting.registry.isolate("r2", 5_000)
    outside.ask(Create(("/ids/b",), "x"))
    assert inside.ask(Children("/ids")) == ()
    assert inside.ask(Create(("/ids/a",), "x")) is None
    assert setting.registry.data("/ids/a") is None


def test_an_isolated_server_sends_its_clients_away_when_its_patience_ends() -> None:
    setting = Setting(patience_ms=2_000)
    client = setting.client(1, timeout_ms=LONG_MS)
    setting.registry.isolate("r2", 10_000)
    setting.settle(1_900)
    assert client.connection.is_open
    setting.settle(200)
    assert not client.connection.is_open
    assert not setting.registry.servers[1].is_serving
    setting.settle(10_000)
    assert setting.registry.servers[1].is_serving


def test_an_isolated_leader_is_replaced_and_knows_nothing_of_it() -> None:
    setting = Setting(patience_ms=2_000, election_ms=300)
    old = setting.registry.leader
    setting.registry.isolate("r1", 10_000)
    setting.settle(2_400)
    assert setting.registry.leader is not old
    assert setting.client(1, timeout_ms=LONG_MS).ask(Create(("/ids/a",), "x")) == [True]
    assert old.tree.data("/ids/a") is None
    setting.settle(10_000)
    assert old.tree.data("/ids/a") == "x"


def test_without_a_majority_nobody_leads() -> None:
    setting = Setting(election_ms=300)
    setting.registry.fail_server("r2", 5_000)
    assert setting.registry.is_serving
    setting.registry.isolate("r3", 5_000)
    setting.settle(1_000)
    assert not setting.registry.is_serving
    setting.settle(6_000)
    assert setting.client(2).ask(Create(("/ids/a",), "x")) == [True]


def test_a_failover_keeps_sessions_and_nodes_and_moves_the_leader() -> None:
    setting = Setting()
    client = setting.client(0, timeout_ms=2_000)
    client.ask(Create(("/ids/a",), "x"))
    old = setting.registry.leader
    setting.registry.fail_over(5_000)
    setting.settle(5_100)
    assert setting.registry.leader is not old
    back = setting.client(1, session_id=client.session_id, timeout_ms=2_000)
    assert back.session_id == client.session_id
    assert back.ask(Children("/ids")) == ("a",)


def test_one_server_alone_is_a_registry_too() -> None:
    setting = Setting(servers=1)
    client = setting.client(0)
    assert client.ask(Create(("/ids/a",), "x")) == [True]
    assert setting.registry.between_servers == 0
    setting.registry.fail_server("r1", 1_000)
    setting.settle(1_100)
    assert setting.client(0, session_id=client.session_id).ask(Children("/ids")) == ("a",)


# --- the client ----------------------------------------------------------------------------------


def test_a_client_is_moved_when_its_server_fails_and_asks_again() -> None:
    setting = Setting()
    user = setting.user("a")
    setting.settle()
    first = user.client.server_name
    setting.registry.fail_server(first, 20_000)
    answers = user.ask(Create(("/ids/a",), "x"))
    setting.settle(2_000)
    assert answers == [[True]]
    assert user.client.server_name != first
    assert user.sessions == 1


def test_what_survives_a_session_is_asked_again_and_the_rest_is_void() -> None:
    setting = Setting(session_timeout_ms=1_000)
    user = setting.user("a")
    setting.settle()
    user.client.cut(3_000)
    void, kept = user.ask(Create(("/ids/a",), "x")), user.ask(Put((("/o", 1),)), survives=True)
    setting.settle(6_000)
    assert user.sessions == 2
    assert void == []
    assert kept == [True]


def test_a_client_that_closes_hears_no_more() -> None:
    setting = Setting()
    user, other = setting.user("a"), setting.user("b")
    user.ask(Children("/ids"))
    setting.settle()
    other.ask(Create(("/ids/b",), "x"))
    user.client.close()
    setting.settle()
    assert user.changes == []
    assert not user.client.is_alive


def test_a_registry_that_never_answers_is_left_for_the_next_one() -> None:
    setting = Setting(patience_ms=60_000)
    for _ in range(6):
        setting.registry.isolate("r2", 30_000)
        user = setting.user("a")
        setting.settle(5_000)
        assert user.sessions == 1, user.client.server_name


# --- over many seeds -----------------------------------------------------------------------------


@pytest.mark.parametrize("batch", range(4))
def test_notifications_equal_watchers_whatever_the_servers_do(batch: int) -> None:
    """Every watch that is due is told once: no change is missed, none is told twice."""
    for seed in range(25 * batch, 25 * batch + 25):
        setting = Setting(seed, lag_ms=seed % 3 * 100)
        chance = Random(seed)
        users = [setting.user(f"u{n}") for n in range(4)]
        setting.settle(100)
        for step in range(12):
            watchers = chance.sample(users, chance.randrange(1, 5))
            for user in users:
                user.changes.clear()
            for user in watchers:
                user.ask(Children("/ids"))
            setting.settle(400)
            act = chance.randrange(4)
            if act == 0:
                setting.registry.fail_server(chance.choice(("r1", "r2", "r3")), 300)
            elif act == 1:
                chance.choice(users).client.cut(300)
            chance.choice(users).ask(Create((f"/ids/{step}",), "x"))
            setting.settle(6_000)
            told = sum(len(user.changes) for user in users)
            assert told == len(watchers), (seed, step)
            assert {u.client.name for u in users if u.changes} == {w.client.name for w in watchers}
        # Nobody is left with a watch that is due.
        trees = [server.tree for server in setting.registry.servers]
        assert len({tuple(tree.nodes.items()) for tree in trees}) == 1, seed
