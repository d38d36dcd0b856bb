"""The dashboard over HTTP, on a real broker: what pages are told, and what they cannot do."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any

import pytest

from shoal import Admin, Consumer, Producer
from shoal.access.resources import Operation, ResourceType
from shoal.access.rules import Acl
from shoal.broker.config import Listener
from shoal.errors import ConfigError
from shoal.testing.broker import Broker
from shoal.types import TopicPartition
from shoal.web.application import BODY_MAX
from shoal.web.server import WebServer, WebSettings
from tests.peers import need
from tests.peers.jars import kafka_jars
from tests.web.dashboard import Served, Visitor, dashboard

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"orders": 2, "quiet": 1}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(30):
                value = json.dumps({"id": number, "shop": "Porto" if number % 3 else "Split"})
                headers = [("source", HOSTILE.encode()), ("n", str(number).encode())]
                producer.send(
                    "orders", value.encode(), b"k%d" % number, partition=number % 2, headers=headers
                )
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            for group, at in (("nightly", 5), (HOSTILE, 0), ("ahead", 15)):
                admin.alter_group_offsets(group, {TopicPartition("orders", n): at for n in (0, 1)})
        yield broker


@pytest.fixture(scope="module")
def served(broker: Broker) -> Iterator[Served]:
    with dashboard(broker.bootstrap_servers) as served:
        wait(lambda: served.watch.state.facts is not None)
        yield served


@pytest.fixture(scope="module")
def visitor(served: Served) -> Visitor:
    return served.visitor()


def wait(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (met := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return met


def events(visitor: Visitor) -> Generator[dict[str, Any]]:
    """What the stream of one browser tells."""
    connection = http.client.HTTPConnection("127.0.0.1", visitor.port, timeout=60)
    headers = {"Cookie": visitor.cookie, "Sec-Fetch-Site": "same-origin"}
    connection.request("GET", "/api/stream", headers=headers)
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream"
    try:
        while line := answer.readline():
            if line.startswith(b"data: "):
                yield json.loads(line[6:])
    finally:
        connection.close()


def test_the_shell_of_a_page_is_open_and_carries_the_policy(served: Served) -> None:
    for path in ("/", "/group", "/lab", "/static/app.js"):
        reply = served.stranger().get(path)
        assert reply.status == 200
        assert "require-trusted-types-for" in reply.headers["content-security-policy"]
        assert reply.headers["x-frame-options"] == "DENY"
    assert served.stranger().get("/", headers={"Host": "evil.example"}).status == 421


def test_data_needs_the_session_and_refusals_carry_the_policy_too(served: Served) -> None:
    reply = served.stranger().get("/api/about")
    assert reply.status == 401
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert reply.headers["cache-control"] == "no-store"


def test_a_wrong_secret_gets_no_cookie_and_the_right_one_a_strict_one(served: Served) -> None:
    stranger = served.stranger()
    refused = stranger.log_in("wrong")
    assert refused.status == 403
    assert "set-cookie" not in refused.headers
    cookie = stranger.log_in(served.server.secret).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert cookie.startswith(f"shoal_{served.port}=")
    assert served.server.secret.lower() not in cookie


def test_who_logs_in_is_told_at_once_what_a_page_asks_first(served: Served) -> None:
    stranger = served.stranger()
    assert "clusters" not in stranger.log_in("wrong").json
    told = stranger.log_in(served.server.secret).json
    assert told["clusters"] == ["test"]
    assert told == stranger.get("/api/about").json


def test_logging_out_ends_the_session_for_who_kept_the_cookie(served: Served) -> None:
    visitor = served.visitor()
    assert visitor.get("/api/about").status == 200
    assert visitor.post("/api/session/end", {}).status == 200
    assert visitor.get("/api/about").status == 401


def test_a_request_without_end_is_refused(visitor: Visitor) -> None:
    reply = visitor.post("/api/records", {"topic": "x" * BODY_MAX})
    assert (reply.status, reply.json) == (400, {"error": f"a request has at most {BODY_MAX} bytes"})


def test_a_stream_ends_with_its_session(served: Served) -> None:
    visitor = served.visitor()
    stream = events(visitor)
    next(stream)
    visitor.post("/api/session/end", {})
    assert list(stream) is not None  # it ends: else this would wait for ever


def test_a_stream_begins_with_everything_and_goes_on_with_what_changed(
    broker: Broker, served: Served, visitor: Visitor
) -> None:
    stream = events(visitor)
    first = next(one for one in stream if one["status"].get("swept_ms"))
    assert first["whole"]
    assert {"nightly", HOSTILE, "ahead"} <= {row["group"] for row in first["rows"]}
    served.admin.alter_group_offsets("newcomer", {TopicPartition("orders", 0): 1})
    change = next(one for one in stream if any(r["group"] == "newcomer" for r in one["rows"]))
    assert not change["whole"]
    served.admin.delete_groups("newcomer")
    gone = next(one for one in stream if "newcomer" in one["gone"])
    assert all(row["group"] != "newcomer" for row in gone["rows"])
    stream.close()


def test_a_group_has_its_lag_its_verdict_and_its_partitions(visitor: Visitor) -> None:
    reply = visitor.get("/api/group?group=nightly")
    assert reply.status == 200, reply.body
    found = reply.json
    assert found["row"]["lag"] == 20
    assert found["row"]["members"] == 0
    assert [(p["partition"], p["committed"], p["end"]) for p in found["partitions"]] == [
        (0, "5", "15"),
        (1, "5", "15"),
    ]
    assert found["findings"]
    assert found["lag"]["orders"]["at_ms"]
    assert visitor.get("/api/group?group=ahead").json["row"]["lag"] == 0


def test_what_is_not_there_says_so(visitor: Visitor) -> None:
    for path in ("/api/group?group=nobody", "/api/topic?topic=nothing", "/api/group?cluster=x"):
        reply = visitor.get(path)
        assert reply.status == 404
        assert "error" in reply.json


def test_topics_tell_who_reads_them(visitor: Visitor) -> None:
    topics = {one["topic"]: one for one in visitor.get("/api/topics").json["topics"]}
    assert topics["orders"]["records"] == 30
    assert topics["orders"]["groups"] == 3
    assert topics["quiet"]["groups"] == 0
    assert topics["__consumer_offsets"]["internal"]
    found = visitor.get("/api/topic?topic=orders").json
    assert [one["end"] for one in found["partitions"]] == ["15", "15"]
    assert {one["group"] for one in found["groups"]} == {"nightly", HOSTILE, "ahead"}


def look(visitor: Visitor, *filters: tuple[str, str, str], **more: Any) -> Any:
    names = ("field", "operator", "value")
    given = [dict(zip(names, one, strict=True)) for one in filters]
    order = {"topic": "orders", "order": "newest", "filters": given, **more}
    return visitor.post("/api/records", order).json


def test_records_are_the_newest_or_the_oldest(visitor: Visitor) -> None:
    newest = look(visitor)
    assert newest["complete"]
    assert (newest["matched"], newest["scanned"], newest["total"]) == (30, 30, 30)
    times = [one["at_ms"] for one in newest["records"]]
    assert times == sorted(times, reverse=True)
    oldest = look(visitor, order="oldest", partition=1)
    assert [one["offset"] for one in oldest["records"]][:2] == ["0", "1"]
    assert {one["partition"] for one in oldest["records"]} == {1}


def test_records_are_found_by_key_value_header_and_field(visitor: Visitor) -> None:
    assert look(visitor, ("key", "is", "k7"))["matched"] == 1
    assert look(visitor, ("value", "contains", "SPLIT"))["matched"] == 10
    assert look(visitor, ("header:n", "begins with", "2"))["matched"] == 11
    assert look(visitor, ("json:shop", "is not", "Split"))["matched"] == 20
    assert look(visitor, ("json:id", "is", "4"))["matched"] == 1
    assert look(visitor, ("json:shop", "is", "Split"), ("json:id", "is", "4"))["matched"] == 0
    assert look(visitor, ("header:none", "is not", "x"))["matched"] == 0


def test_a_record_is_shown_as_text_however_it_is_spelt(visitor: Visitor) -> None:
    (one,) = look(visitor, ("key", "is", "k0"))["records"]
    assert one["headers"][0]["text"] == HOSTILE
    assert one["value"]["kind"] == "json"
    assert one["value"]["pretty"].splitlines()[1] == '  "id": 0,'


@pytest.mark.parametrize(
    "order",
    [
        {},
        {"topic": 1, "order": "newest"},
        {"topic": "orders", "order": "sideways"},
        {"topic": "orders", "order": "newest", "partition": "0"},
        {"topic": "orders", "order": "newest", "partition": 9},
        {"topic": "orders", "order": "newest", "filters": ["value"]},
        {"topic": "orders", "order": "newest", "filters": [{}] * 9},
        {
            "topic": "orders",
            "order": "newest",
            "filters": [{"field": "eval", "operator": "is", "value": "1"}],
        },
        {
            "topic": "orders",
            "order": "newest",
            "filters": [{"field": "value", "operator": "matches", "value": "(a+)+"}],
        },
    ],
)
def test_an_order_that_is_none_is_refused_in_a_line(visitor: Visitor, order: object) -> None:
    reply = visitor.post("/api/records", order)
    assert reply.status == 400
    assert "\n" not in reply.json["error"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"x"', b"[" * 30_000, b'{"a":' * 9_000])
def test_a_body_that_is_no_object_is_refused(served: Served, visitor: Visitor, body: bytes) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    headers = {
        "Cookie": visitor.cookie,
        "Origin": f"http://127.0.0.1:{served.port}",
        "X-Shoal": "1",
        "Content-Type": "application/json",
    }
    connection.request("POST", "/api/records", body, headers)
    assert connection.getresponse().status == 400
    connection.close()


def test_a_large_body_is_not_read_to_its_end(visitor: Visitor) -> None:
    assert visitor.post("/api/records", {"topic": "x" * 70_000}).status == 400


def test_a_read_only_dashboard_previews_and_refuses(served: Served, visitor: Visitor) -> None:
    shown = visitor.post("/api/reset/preview", {"group": "nightly", "to": "latest"}).json
    assert "--allow-writes" in shown["obstacle"]
    assert [(r["from"], r["to"], r["skipped"]) for r in shown["rows"]] == [("5", "15", 10)] * 2
    reply = visitor.post("/api/reset", {"plan": shown["plan"], "confirm": "nightly"})
    assert reply.status == 403
    # Below the transport, too: whoever calls it.
    actions = served.server.application._dashboard.actions
    with pytest.raises(PermissionError, match="only looks"):
        actions.reset(served.watch, shown["plan"], "nightly")
    offsets = served.admin.group_offsets("nightly")
    assert {one.offset for one in offsets.values() if one is not None} == {5}


def test_what_if_takes_assignors_from_a_list_only(visitor: Visitor) -> None:
    for assignor in ("os:system", "shoal.assign.range:RangeAssignor", "", 1):
        reply = visitor.post("/api/what-if", {"group": "nightly", "assignor": assignor})
        assert reply.status == 400


def test_the_lab_runs_what_is_built_in(visitor: Visitor) -> None:
    assert "large" not in {one["name"] for one in visitor.get("/api/lab").json["scenarios"]}
    for name in ("large", "../x.yaml", None, 7):
        assert visitor.post("/api/lab/run", {"scenario": name}).status == 400


@pytest.mark.slow
def test_the_lab_shows_five_schemes(visitor: Visitor) -> None:
    runs = visitor.post("/api/lab/run", {"scenario": "member-leaves"}).json["runs"]
    assert [one["scheme"] for one in runs] == [
        "watchers",
        "central",
        "eager",
        "cooperative",
        "incremental",
    ]
    assert all(one["messages"] and one["spans"] for one in runs)


@pytest.fixture(scope="module")
def writing(broker: Broker) -> Iterator[Served]:
    with dashboard(broker.bootstrap_servers, allow_writes=True) as served:
        wait(lambda: served.watch.state.facts is not None)
        yield served


def preview(visitor: Visitor, group: str, to: str = "latest") -> Any:
    return visitor.post("/api/reset/preview", {"group": group, "to": to}).json


@pytest.mark.slow
def test_a_reset_does_what_was_shown_once(writing: Served) -> None:
    visitor = writing.visitor()
    writing.admin.alter_group_offsets("moved", {TopicPartition("orders", 0): 3})
    shown = preview(visitor, "moved")
    assert shown["obstacle"] == ""
    order = {"plan": shown["plan"], "confirm": "moved"}
    assert visitor.post("/api/reset", order).json == {"group": "moved", "partitions": 1}
    (found,) = writing.admin.group_offsets("moved").values()
    assert found is not None
    assert found.offset == 15
    assert visitor.post("/api/reset", order).status == 400


@pytest.mark.slow
def test_another_name_resets_nothing(writing: Served) -> None:
    visitor = writing.visitor()
    shown = preview(visitor, "nightly")
    for name in ("", "Nightly", "ahead"):
        reply = visitor.post("/api/reset", {"plan": shown["plan"], "confirm": name})
        assert reply.status == 400


@pytest.mark.slow
def test_a_commit_after_the_preview_is_not_undone(writing: Served) -> None:
    visitor = writing.visitor()
    tp = TopicPartition("orders", 0)
    writing.admin.alter_group_offsets("busy", {tp: 3})
    shown = preview(visitor, "busy", "earliest")
    writing.admin.alter_group_offsets("busy", {tp: 9})
    reply = visitor.post("/api/reset", {"plan": shown["plan"], "confirm": "busy"})
    assert reply.status == 400
    assert "committed since" in reply.json["error"]


@pytest.mark.slow
def test_a_live_group_is_never_reset(broker: Broker, writing: Served) -> None:
    visitor = writing.visitor()
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="live",
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.subscribe(["orders"])
        wait(lambda: len(consumer.poll(0.2)))
        consumer.commit_sync()
        shown = preview(visitor, "live", "earliest")
        assert "stop its members first" in shown["obstacle"]
        order = {"plan": shown["plan"], "confirm": "live"}
        reply = visitor.post("/api/reset", order)
        assert reply.status == 400
        assert "live" in reply.json["error"]


@pytest.mark.slow
def test_members_that_come_and_go_are_rebalances_with_causes(broker: Broker) -> None:
    with dashboard(broker.bootstrap_servers) as served:
        visitor = served.visitor()
        wait(lambda: served.watch.state.facts is not None)
        settings: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "group_id": "team",
            "heartbeat_interval_ms": 200,
        }
        stop = threading.Event()

        def work(consumer: Consumer) -> None:
            while not stop.is_set():
                consumer.poll(0.1)

        with Consumer(client_id="ann", **settings) as ann:
            ann.subscribe(["orders"])
            thread = threading.Thread(target=work, args=(ann,))
            thread.start()
            try:
                known = lambda: visitor.get("/api/group?group=team")  # noqa: E731
                wait(lambda: known().status == 200 and known().json["row"]["members"] == 1)
                with Consumer(client_id="ben", **settings) as ben:
                    ben.subscribe(["orders"])
                    wait(lambda: (ben.poll(0.1), len(ben.assignment()))[1])

                def causes() -> list[str]:
                    return [one["cause"] for one in known().json["rebalances"]]

                wait(lambda: any("left" in cause for cause in causes()))
                found = known().json
                assert any("joined" in cause for cause in causes())
                assert {len(row["spans"]) > 1 for row in found["strip"]} & {True}
                planned = visitor.post("/api/what-if", {"group": "team", "join": 1}).json
                assert {one["assignor"] for one in planned["outcomes"]} >= {"range", "sticky"}
            finally:
                stop.set()
                thread.join()


@pytest.mark.slow
def test_a_group_of_the_new_protocol_tells_epochs_topics_and_who_changed_over(
    broker: Broker,
) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": "new-team",
        "group_protocol": "consumer",
        "auto_commit_interval_ms": 2000,
    }
    stop = threading.Event()
    visitor: Visitor

    def work(name: str) -> None:
        with Consumer(client_id=name, **settings) as consumer:
            consumer.subscribe(["parcels"])
            while not stop.is_set():
                consumer.poll(0.1)

    def feed() -> None:
        """Members commit what they have read."""
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for partition in range(2):
                producer.send("parcels", value=b"x", partition=partition)

    def committed() -> int:
        feed()
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            return min(one.committed or 0 for one in admin.group_lag("new-team").values())

    def newest(members: int) -> Any:
        shown = visitor.get("/api/group?group=new-team").json["rebalances"]
        return next((one for one in shown if one["members"] == members), None)

    def is_done() -> bool:
        one = newest(2)
        return one is not None and one["phases"][1]["end_ms"] is not None

    def has_stood_still() -> bool:
        feed()
        one = newest(3)
        return one is not None and any(row["still_ms"] for row in one["by_member"])

    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("parcels", partitions=2)
    with dashboard(broker.bootstrap_servers) as served:
        visitor = served.visitor()
        threads = [threading.Thread(target=work, args=(name,)) for name in ("ann", "ben", "kim")]
        try:
            for number, thread in enumerate(threads[:2]):
                thread.start()
                wait(partial(has_members, visitor, "new-team", number + 1))
            wait(is_done)
            one = newest(2)
            assert [phase["name"] for phase in one["phases"]] == [
                "The broker assigns",
                "Members change over",
            ]
            assert one["phases"][1]["waits_for"] == []
            assert all(row["done_ms"] is not None for row in one["by_member"])
            assert [move["partition"].startswith("parcels-") for move in one["moves"]] == [True]
            # How long a member did not commit is known if the dashboard saw a commit before and one
            # after.
            seen = committed()
            wait(lambda: committed() > seen)
            threads[2].start()
            wait(has_stood_still)
            found = visitor.get("/api/group?group=new-team").json
            assert found["about"]["group_epoch"] == found["about"]["assignment_epoch"]
            assert {row["topic"] for row in found["strip"]} == {"parcels"}
        finally:
            stop.set()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
            with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
                admin.delete_topics("parcels")


def has_members(visitor: Visitor, group: str, count: int) -> bool:
    reply = visitor.get(f"/api/group?group={group}")
    return reply.status == 200 and bool(reply.json["row"]["members"] == count)


@pytest.mark.slow
def test_without_the_right_to_read_the_offsets_topic_a_page_says_what_it_cannot_know() -> None:
    allowed = [
        Acl(ResourceType.CLUSTER, "kafka-cluster", "User:eve", Operation.DESCRIBE),
        Acl(ResourceType.TOPIC, "*", "User:eve", Operation.DESCRIBE),
        Acl(ResourceType.GROUP, "*", "User:eve", Operation.DESCRIBE),
    ]
    users = {"admin": "admin-password", "eve": "eve-password"}
    listeners = (Listener(port=0, sasl=("SCRAM-SHA-256",)),)
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"}
    with Broker(topics={"orders": 1}, users=users, listeners=listeners, acls=allowed) as broker:
        boss: dict[str, Any] = {
            **login,
            "sasl_username": "admin",
            "sasl_password": "admin-password",
        }
        with Admin(bootstrap_servers=broker.bootstrap_servers, **boss) as admin:
            admin.alter_group_offsets("g", {TopicPartition("orders", 0): 0})
        eve: dict[str, Any] = {**login, "sasl_username": "eve", "sasl_password": "eve-password"}
        with dashboard(broker.bootstrap_servers, **eve) as served:
            visitor = served.visitor()
            wait(lambda: served.watch.state.facts is not None)
            assert "__consumer_offsets cannot be read" in served.watch.state.status["blind"]
            found = visitor.get("/api/group?group=g").json
            assert found["blind"]
            assert found["row"]["cause"] is None
            assert found["rebalances"] == []
            assert visitor.get("/api/rebalances").json["blind"]


@pytest.mark.slow
def test_a_cluster_that_is_away_leaves_what_was_known_with_its_age() -> None:
    with Broker(topics={"orders": 1}) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.alter_group_offsets("g", {TopicPartition("orders", 0): 0})
        with dashboard(broker.bootstrap_servers, default_api_timeout_ms=1500) as served:
            visitor = served.visitor()
            wait(lambda: "g" in served.watch.state.rows)
            broker.stop()
            wait(lambda: served.watch.state.status["problem"])
            status = served.watch.state.status
            assert "g" in served.watch.state.rows
            assert status["swept_ms"] < time.time() * 1000
            assert visitor.get("/api/about").status == 200
            broker.start()
            wait(lambda: not served.watch.state.status["problem"])


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({"host": "0.0.0.0"}, "--certificate"),
        ({"host": "::", "password": "long enough for it"}, "--certificate"),
        ({"host": "192.0.2.1", "certificate": "c", "key": "k"}, "--login-password-file"),
        (
            {"host": "0.0.0.0", "certificate": "c", "key": "k", "password": "long enough for it"},
            "--public-name",
        ),
        ({"certificate": "c"}, "--key"),
        ({"password": "short"}, "short"),
    ],
)
def test_a_server_that_strangers_could_use_does_not_start(
    settings: dict[str, Any], missing: str
) -> None:
    with pytest.raises(ConfigError, match=missing):
        WebServer(dict[str, Any](x=None), WebSettings(**settings))


def test_a_taken_port_is_said_in_a_line(served: Served) -> None:
    with pytest.raises(ConfigError, match="cannot listen"):
        WebServer({"x": served.watch}, WebSettings(port=served.port))


def test_the_address_keeps_the_token_out_of_what_is_sent(served: Served) -> None:
    before, _, fragment = served.server.url.partition("#")
    assert served.server.secret not in before
    assert fragment == f"token={served.server.secret}"
    assert len(served.server.secret) >= 43


@pytest.mark.slow
@pytest.mark.kafka
def test_a_dashboard_of_apache_kafka_shows_groups_rebalances_and_records() -> None:
    from tests.peers.kafka import ApacheKafka

    need(kafka_jars)
    with ApacheKafka(heap="512m") as theirs:
        settings: dict[str, Any] = {"bootstrap_servers": theirs.bootstrap_servers}
        with Admin(**settings) as admin:
            admin.create_topic("orders", partitions=2)
        with Producer(**settings) as producer:
            for number in range(10):
                producer.send("orders", b"%d" % number, partition=number % 2)
        with dashboard(theirs.bootstrap_servers) as served:
            visitor = served.visitor()
            with Consumer(**settings, group_id="g", auto_offset_reset="earliest") as consumer:
                consumer.subscribe(["orders"])
                wait(lambda: len(consumer.poll(0.2)))
                consumer.commit_sync()
                wait(lambda: (consumer.poll(0.1), served.watch.state.rows.get("g"))[1])
                wait(lambda: (consumer.poll(0.1), served.watch.feed())[1])
                found = visitor.get("/api/group?group=g").json
                assert found["row"]["members"] == 1
                assert found["row"]["state"] == "Stable"
            wait(lambda: served.watch.state.rows["g"]["members"] == 0)
            assert visitor.get("/api/rebalances").json["feed"]
            assert look(visitor)["matched"] == 10
            assert visitor.get("/api/topics").json["sizes_unknown"] == ""
            shown = visitor.post("/api/reset/preview", {"group": "g", "to": "earliest"}).json
            assert {row["to"] for row in shown["rows"]} == {"0"}
