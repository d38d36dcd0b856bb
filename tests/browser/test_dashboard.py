"""The dashboard in a real browser: each page, live, by keyboard, and what must never happen."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme

from shoal import Admin, Consumer, Producer
from shoal.access.resources import Operation, ResourceType
from shoal.access.rules import Acl
from shoal.broker.config import Listener
from shoal.fleet.collector import ClusterCollector
from shoal.testing.broker import Broker
from shoal.types import TopicPartition
from shoal.web.cluster_watch import ClusterWatch
from shoal.web.server import WebServer, WebSettings
from tests.browser.chromium import Browser, Keys, browser
from tests.web.dashboard import Served, dashboard, running

pytestmark = [pytest.mark.peer, pytest.mark.slow]

HOSTILE = "<img src=x onerror=alert(1)>"
PAGES = (
    "/",
    "/rebalances",
    "/topics",
    "/topic?topic=orders",
    "/group?group=nightly",
    "/group?group=team",
    "/what-if?group=team",
    "/reset?group=nightly",
    "/lab?scenario=member-leaves",
)
# Short words that are cut into two lines, and times of an axis that lie upon each other.
UNREADABLE = r"""
const found = [], range = document.createRange();
for (const cell of document.querySelectorAll("main tbody th, .feed .line > *")) {
  const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    for (const word of texts.currentNode.data.matchAll(/(?<!\S)[\w:]{2,13}(?!\S)/g)) {
      range.setStart(texts.currentNode, word.index);
      range.setEnd(texts.currentNode, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
      if (lines.size > 1) found.push(word[0]);
    }
  }
}
for (const strip of document.querySelectorAll(".strip")) {
  const boxes = [...strip.querySelectorAll(".axis")].map((one) => one.getBoundingClientRect());
  boxes.forEach((box, i) => { if (i && box.left < boxes[i - 1].right) found.push(`axis ${i}`); });
}
return found;
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"orders": 4}, dead_connection_grace=1) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(40):
                producer.send(
                    "orders",
                    json.dumps({"id": number, "note": HOSTILE}).encode(),
                    HOSTILE.encode(),
                    partition=number % 4,
                    headers=[(HOSTILE, HOSTILE.encode())],
                )
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            for group in ("nightly", HOSTILE):
                admin.alter_group_offsets(group, {TopicPartition("orders", n): 2 for n in range(4)})
        yield broker


@pytest.fixture(scope="module")
def served(broker: Broker) -> Iterator[Served]:
    with dashboard(broker.bootstrap_servers, every_s=0.5, allow_writes=True) as served:
        yield served


@pytest.fixture(scope="module")
def shared() -> Iterator[Browser]:
    with browser() as one:
        yield one


@pytest.fixture
def page(shared: Browser, served: Served) -> Iterator[Browser]:
    shared.open("about:blank")
    shared.problems(), shared.requested()
    shared.open(served.server.url)
    shared.wait_for("nightly")
    yield shared
    assert shared.problems() == []
    assert shared.requested() <= {f"http://127.0.0.1:{served.port}"}


@pytest.fixture(scope="module")
def team(broker: Broker) -> Iterator[Any]:
    """Members that are processes, so that one can be killed."""
    running: dict[str, subprocess.Popen[str]] = {}

    def join(name: str, group: str = "team") -> None:
        running[name] = subprocess.Popen(
            [
                *(sys.executable, "-m", "shoal.cli.demo_member"),
                *(broker.bootstrap_servers, "orders", group, name, "6000"),
            ],
            stdout=subprocess.DEVNULL,
            text=True,
        )

    def end(name: str, number: int) -> None:
        process = running.pop(name)
        process.send_signal(number)
        process.wait(60)

    join("ann")
    try:
        yield SimpleNamespace(join=join, end=end)
    finally:
        for name in list(running):
            end(name, signal.SIGKILL)


def base(served: Served) -> str:
    return f"http://127.0.0.1:{served.port}"


def test_the_token_leaves_the_address_at_once(page: Browser, served: Served) -> None:
    assert page.run("return location.hash") == ""
    assert served.server.secret not in page.run("return document.documentElement.outerHTML")
    assert page.run("return document.cookie") == ""


def test_the_first_page_asks_nothing_it_was_told_when_it_logged_in(page: Browser) -> None:
    asked = "return performance.getEntriesByType('resource').map(one => new URL(one.name).pathname)"
    paths = page.run(asked)
    assert [path for path in paths if path.startswith("/api/")] == ["/api/session"]


def test_a_chart_waits_for_its_library_and_nothing_else_does(page: Browser, served: Served) -> None:
    slow = {"offline": False, "latency": 0, "downloadThroughput": 40_000, "uploadThroughput": -1}
    page.driver.execute_cdp_cmd("Network.enable", {})
    page.driver.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": True})
    page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", slow)
    try:
        page.open(f"{base(served)}/group?group=nightly")
        page.wait(lambda: page.run("return document.querySelector('.uplot canvas')"), "a chart")
        script = "return performance.getEntriesByType('resource').map(o => o.toJSON())"
        asked = {one["name"].rpartition("/")[2]: one for one in page.run(script)}
        assert asked["about"]["startTime"] < asked["uPlot.iife.min.js"]["responseEnd"]
    finally:
        fast = {**slow, "downloadThroughput": -1}
        page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", fast)
        page.driver.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": False})


def test_who_comes_without_a_token_is_asked_to_log_in(served: Served) -> None:
    with browser() as stranger:
        stranger.open(f"{base(served)}/")
        stranger.wait_for("Log in")
        stranger.type("#secret", served.server.secret)
        stranger.press(Keys.ENTER)
        stranger.wait_for("nightly")


def test_members_that_join_and_are_killed_show_without_a_reload(
    page: Browser, served: Served, team: Any
) -> None:
    page.wait_for("team")
    page.open(f"{base(served)}/group?group=team")
    page.wait_for("ann-")
    page.run("window.stays = true")
    team.join("ben")
    page.wait_for("ben-")
    page.wait_for("member joined")
    team.end("ben", signal.SIGKILL)
    page.wait(lambda: "expired" in page.text() or "left" in page.text(), "the end of ben")
    page.wait(lambda: page.texts(".facts dd")[2] == "1", "one member")
    assert page.run("return window.stays") is True
    page.run("document.querySelector('.strip .event').dispatchEvent(new MouseEvent('click'))")
    page.wait_for("Rebalance at")
    page.wait_for("Members join again")
    page.wait_for("a classic group does not write down when this began")
    assert "The leader assigns" in page.texts("main tbody th")
    assert page.texts("main caption").count("Who stood still") == 1


def test_a_group_of_the_new_protocol_shows_epochs_and_who_is_waited_for(
    page: Browser, served: Served, broker: Broker
) -> None:
    def member(name: str) -> Consumer:
        return Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            client_id=name,
            group_id="new-team",
            group_protocol="consumer",
        )

    stop = threading.Event()

    def second() -> None:
        with member("ben") as ben:
            ben.subscribe(["orders"])
            while not stop.is_set():
                ben.poll(0.1)

    thread = threading.Thread(target=second)
    with member("ann") as ann:
        ann.subscribe(["orders"])
        page.wait(lambda: (ann.poll(0.1), len(ann.assignment()) == 4)[1], "ann has everything")
        page.wait_for("new-team")
        thread.start()
        try:
            page.open(f"{base(served)}/group?group=new-team")
            # Ann does not poll, so she does not let go of what Ben is to have.
            page.wait_for("gives up orders")
            page.wait_for("waits for orders")
            assert {"group epoch", "target of epoch"} <= set(page.texts(".facts dt"))
            assert "consumer (KIP-848)" in page.texts(".facts dd")
            page.wait(
                lambda: (ann.poll(0.1), "waits for orders" not in page.text())[1],
                "Ben has his share",
            )
        finally:
            stop.set()
            thread.join()


def test_the_feed_tells_of_rebalances(page: Browser, served: Served, team: Any) -> None:
    team.join("cleo")
    page.open(f"{base(served)}/rebalances")
    page.wait_for("team")
    page.wait_for("joined")
    team.end("cleo", signal.SIGTERM)


def test_names_that_look_like_html_stay_text(page: Browser, served: Served) -> None:
    page.run("window.alert = () => { window.alerted = true }")
    page.wait_for(HOSTILE)
    page.click(f"a.name[href*={json.dumps('onerror')}]")
    page.wait(lambda: page.text("h1") == HOSTILE, "the group's page")
    page.open(f"{base(served)}/topic?topic=orders")
    page.wait_for("40 records shown")
    page.click("details.record summary")
    page.wait_for("Headers")
    assert HOSTILE in page.texts(".kv dt")
    assert page.run("return document.querySelectorAll('main img').length") == 0
    assert page.run("return window.alerted") is None


def test_filters_are_in_the_address_and_the_back_button_goes_back(
    page: Browser, served: Served
) -> None:
    page.type("#search", "night")
    page.wait(lambda: "q=night" in page.path(), "the filter in the address")
    page.wait(lambda: page.texts("a.name") == ["nightly"], "one row")
    page.click("a.name")
    page.wait(lambda: page.text("h1") == "nightly", "the group")
    page.driver.back()
    page.wait(lambda: page.texts("a.name") == ["nightly"], "the filtered list")
    assert page.run("return document.querySelector('#search').value") == "night"
    page.driver.forward()
    page.wait(lambda: page.text("h1") == "nightly", "the group again")


def test_everything_can_be_reached_by_keyboard(page: Browser, served: Served) -> None:
    page.press("/")
    assert page.run("return document.activeElement.id") == "search"
    page.press("nightly", Keys.ARROW_DOWN)
    page.wait(lambda: page.run("return document.activeElement.textContent") == "nightly")
    page.press(Keys.ENTER)
    page.wait(lambda: page.text("h1") == "nightly", "the group")
    page.run("document.activeElement.blur()")
    page.press("3")
    page.wait(lambda: page.path().startswith("/topics"), "topics")
    page.press("?")
    page.wait(lambda: page.run("return document.querySelector('#keys').open"), "the keys")
    page.press(Keys.ESCAPE)
    page.wait(lambda: not page.run("return document.querySelector('#keys').open"), "closed")


def test_a_rebalance_is_opened_by_keyboard_alone(page: Browser, served: Served, team: Any) -> None:
    page.wait_for("team")
    page.open(f"{base(served)}/group?group=team")
    team.join("kim")  # a rebalance that the dashboard sees from its beginning
    try:
        page.wait(lambda: page.run("return document.querySelectorAll('.strip .event').length"))
        is_mark = "return document.activeElement.classList.contains('event')"
        for _ in range(60):
            page.press(Keys.TAB)
            if page.run(is_mark):
                break
        assert page.run(is_mark)
        page.press(Keys.ENTER)
        page.wait_for("Rebalance at")
        # The picture is drawn again with every look; who stands on a mark stays there.
        page.run("document.activeElement.isOld = true")
        page.wait(lambda: page.run("return !document.activeElement.isOld"), "the next picture")
        assert page.run(is_mark)
        page.press(Keys.ENTER)
        page.wait(lambda: "Rebalance at" not in page.text(), "closed again")
    finally:
        team.end("kim", signal.SIGTERM)


def test_two_tabs_share_one_stream(page: Browser, served: Served) -> None:
    first = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    page.open(f"{base(served)}/")
    page.wait_for("nightly")
    # That of the page before goes when the server hears of it.
    page.wait(lambda: served.server.application.streams == 1, "one stream")
    page.driver.close()
    page.driver.switch_to.window(first)
    page.wait_for("nightly")


def test_a_group_is_planned_and_reset(page: Browser, served: Served, team: Any) -> None:
    page.wait_for("team")
    page.open(f"{base(served)}/what-if?group=team")
    page.wait_for("cooperative-sticky")
    page.wait_for("stops least")
    page.open(f"{base(served)}/reset?group=nightly")
    page.wait_for("Where to")
    page.click("form button.main")
    page.wait_for("8 read again")
    today = page.run("return new Date().getHours()")
    times = page.texts("main td .sub")
    assert len(times) == 8
    assert all(f"{(today - 1) % 24:02d}:" in one or f"{today:02d}:" in one for one in times), times
    button = "button.danger"
    assert page.run("return document.querySelector(arguments[0]).disabled", button) is True
    page.type("#confirm", "nightly")
    page.click(button)
    page.wait_for("nightly was reset in 4 partitions")
    offsets = served.admin.group_offsets("nightly").values()
    assert {one.offset for one in offsets if one is not None} == {0}


def test_the_lab_steps_through_messages(page: Browser, served: Served) -> None:
    page.open(f"{base(served)}/lab?scenario=member-leaves")
    page.wait_for("Message by message")
    page.wait_for("1 of ")
    page.click("main button.main")
    page.wait_for("2 of ")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_has_a_serious_finding_of_axe_or_is_wider_than_its_window(
    served: Served, team: Any, scheme: str, width: int
) -> None:
    with browser(width, scheme=scheme) as one:
        one.open(served.server.url)
        one.wait_for("nightly")
        one.wait_for("team")
        for path in PAGES:
            one.open(base(served) + path)
            one.wait(lambda: len(one.text()) > 60 and "running…" not in one.text(), path)
            open_up(one, path)
            assert one.axe() == [], path
            wide = one.run("return document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{path} is {wide} pixels too wide"
            assert one.run(UNREADABLE) == [], path
        assert one.problems() == []
        assert one.requested() <= {base(served)}


def open_up(one: Browser, path: str) -> None:
    """What a page shows only when it is asked for."""
    if path == "/group?group=team":
        one.wait_for("ann-")
        one.wait(lambda: one.run("return document.querySelectorAll('.strip .event').length"))
        one.run("document.querySelector('.strip .event').dispatchEvent(new MouseEvent('click'))")
        one.wait_for("Who stood still")
    elif path.startswith("/reset"):
        one.click("form button.main")
        one.wait_for("Type the name")
    elif path.startswith("/topic?"):
        one.click("details.record summary")


def test_a_broker_that_restarts_is_shown_as_away_and_back() -> None:
    with Broker(topics={"orders": 1}) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.alter_group_offsets("g", {TopicPartition("orders", 0): 0})
        with (
            dashboard(broker.bootstrap_servers, default_api_timeout_ms=1500) as served,
            browser() as one,
        ):
            one.open(served.server.url)
            one.wait_for("g")
            one.wait(lambda: "live" in one.text("#status"), "live")
            broker.stop()
            one.wait(lambda: "stale" in one.text("#status"), "stale")
            assert "the last look failed" in one.text("#notice")
            assert "g" in one.texts("a.name")
            broker.start()
            one.wait(lambda: "live" in one.text("#status"), "live again")


def test_five_thousand_groups_scroll_and_update_without_a_stutter(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The groups are the sweep's own, five thousand times: below it everything is as it is."""
    sweep = ClusterCollector.sweep

    def many(self: ClusterCollector, **more: Any) -> Any:
        facts = sweep(self, **more)
        pairs = list(zip(facts.survey.groups, facts.groups, strict=True))[:1]
        pairs = [
            (replace(group, group_id=f"g{n:05d}"), replace(one, group_id=f"g{n:05d}"))
            for group, one in pairs
            for n in range(5_000)
        ]
        survey = replace(facts.survey, groups=[group for group, _ in pairs])
        return replace(facts, survey=survey, groups=[one for _, one in pairs])

    monkeypatch.setattr(ClusterCollector, "sweep", many)
    with dashboard(broker.bootstrap_servers, every_s=2.0) as served, browser() as one:
        deadline = time.monotonic() + 60
        while served.watch.state.facts is None and time.monotonic() < deadline:
            time.sleep(0.1)
        one.open(served.server.url)
        one.wait_for("5,000 groups")
        assert one.run("return document.querySelectorAll('.fleet tbody tr').length") < 60
        one.run("document.querySelector('.rows').scrollTop = 52 * 4000")
        one.wait(lambda: "g04000" in one.text("tbody"), "row 4000")
        one.type("#search", "g04711")
        one.wait(lambda: one.texts("a.name") == ["g04711"], "one of five thousand")
        assert one.problems() == []


def test_every_page_can_be_printed_on_white_and_without_what_is_only_for_hands(
    served: Served, team: Any
) -> None:
    with browser(scheme="dark") as one:
        one.open(served.server.url)
        one.wait_for("nightly")
        one.wait_for("team")
        for path in PAGES:
            one.open(base(served) + path)
            one.wait(lambda: len(one.text()) > 60 and "running…" not in one.text(), path)
            one.media("print")
            one.wait(lambda: one.run("return matchMedia('print').matches"), "paper")
            style = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
            assert one.run(style, "nav", "display") == "none", path
            assert one.run(style, "body", "backgroundColor") == "rgb(255, 255, 255)", path
            assert one.run(style, "main", "overflow") == "visible", path
            hands = (
                "return [...document.querySelectorAll('main form, main button:not(.sort, .tile)')]"
            )
            assert one.run(hands + ".filter(e => e.checkVisibility()).length") == 0, path
            pdf = one.print()
            assert pdf.startswith(b"%PDF"), path
            assert len(pdf) > 5_000, path
            one.media("")
        assert one.problems() == []


def test_paper_has_every_group_though_a_screen_has_few(page: Browser, served: Served) -> None:
    offsets = {TopicPartition("orders", 0): 1}
    names = [f"many-{number:02d}" for number in range(60)]
    try:
        for name in names:
            served.admin.alter_group_offsets(name, offsets)
        page.wait_for("many-")
        page.type("#search", "many-")
        page.wait(lambda: "60 of" in page.text(), "all of them")
        assert len(page.texts("a.name")) < 60
        page.media("print")
        page.wait(lambda: len(page.texts("a.name")) == 60, "all rows on paper")
        page.media("")
        page.wait(lambda: len(page.texts("a.name")) < 60, "few rows on the screen")
    finally:
        page.media("")
        served.admin.delete_groups(*names)


def test_two_clusters_are_never_mixed() -> None:
    with ExitStack() as stack:
        watches = {}
        for name in ("east", "west"):
            broker = stack.enter_context(Broker(topics={"orders": 1, f"only-{name}": 1}))
            settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
            admin = stack.enter_context(Admin(**settings))
            admin.alter_group_offsets("same", {TopicPartition("orders", 0): 0})
            admin.alter_group_offsets(f"{name}-group", {TopicPartition("orders", 0): 0})
            watches[name] = ClusterWatch(name, admin, settings, every_s=0.5)
        server = stack.enter_context(running(WebServer(watches, WebSettings())))
        one = stack.enter_context(browser())
        one.open(server.url)
        one.wait_for("east-group")
        assert "west-group" not in one.text()
        first = one.driver.current_window_handle

        # Switched by its list: rows, address and every link are of the other.
        chosen = one.driver.find_element("css selector", "#clusters select")
        chosen.send_keys("west")
        one.wait(lambda: "cluster=west" in one.path(), "the other cluster")
        one.wait_for("west-group")
        assert "east-group" not in one.text()
        links = one.run("return [...document.querySelectorAll('.bar a, main a')].map(a => a.href)")
        assert len(links) > 7
        assert all("cluster=west" in link for link in links), links

        # A page of a group, as a link in another tab: the same name, the other cluster.
        link = next(link for link in links if "group=same" in link)
        one.driver.switch_to.new_window("tab")
        one.open(link)
        one.wait(lambda: one.text("h1") == "same", "the group")
        one.press("3")
        one.wait_for("only-west")
        assert "only-east" not in one.text()
        one.click("a[href*=only-west]")
        one.wait(lambda: one.path() == "/topic?topic=only-west&cluster=west", one.path())
        one.driver.back()
        one.wait_for("only-west")

        # The first tab goes back to where it began, and stays there while the other looks west.
        one.driver.switch_to.window(first)
        one.driver.back()
        one.wait_for("east-group")
        watches["west"].admin.alter_group_offsets("late-west", {TopicPartition("orders", 0): 0})
        watches["east"].admin.alter_group_offsets("late-east", {TopicPartition("orders", 0): 0})
        one.wait_for("late-east")
        assert "west" not in one.text()
        assert one.problems() == []
        assert one.requested() <= {f"http://127.0.0.1:{server.port}"}


def test_a_group_that_an_open_transaction_holds_up_says_whose(
    page: Browser, broker: Broker, served: Served
) -> None:
    servers: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
    served.admin.create_topic("payments", partitions=1)
    stop = threading.Event()

    def read() -> None:
        with Consumer(
            **servers,
            group_id="ledger",
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=200,
        ) as consumer:
            consumer.subscribe(["payments"])
            while not stop.is_set():
                consumer.poll(0.1)

    reader = threading.Thread(target=read)
    with Producer(**servers, transactional_id="settlement-7") as open_one:
        open_one.init_transactions()
        with Producer(**servers) as plain:
            plain.send("payments", b"before")
        reader.start()
        try:
            tp = TopicPartition("payments", 0)
            page.wait(
                lambda: (found := served.admin.group_offsets("ledger").get(tp)) and found.offset
            )
            open_one.begin_transaction()
            open_one.send("payments", b"held")
            open_one.flush()
            page.wait_for("ledger")
            page.open(f"{base(served)}/group?group=ledger")
            page.wait_for("the transaction of 'settlement-7'")
            page.wait_for("payments-0 ends at offset 1 for readers of committed records")
            page.wait_for("shoal transaction abort settlement-7")
            open_one.abort_transaction()
            page.wait(lambda: "settlement-7" not in page.text(), "nothing holds it up any more")
        finally:
            stop.set()
            reader.join(60)


def test_off_loopback_it_needs_tls_and_a_password_and_then_works(
    broker: Broker, tmp_path: Path
) -> None:
    name = "shoal.example"
    own = trustme.CA().issue_cert(name)
    own.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "both.pem"))
    web = {
        "host": "0.0.0.0",
        "certificate": tmp_path / "both.pem",
        "key": tmp_path / "both.pem",
        "password": "a password of some length",
        "public_name": name,
    }
    with dashboard(broker.bootstrap_servers, web=web) as served, browser(public_name=name) as one:
        assert served.server.url == f"https://{name}:{served.port}/"
        one.open(served.server.url)
        one.wait_for("Log in")
        assert [line for line in one.problems() if "401" not in line] == []
        one.type("#secret", "another password")
        one.press(Keys.ENTER)
        one.wait_for("this is not the secret")
        one.problems()  # the refusal
        one.run("document.querySelector('#secret').value = ''")
        one.type("#secret", "a password of some length")
        one.press(Keys.ENTER)
        one.wait_for("nightly")
        one.wait(lambda: "live" in one.text("#status"), "the stream")
        (cookie,) = one.driver.get_cookies()
        assert cookie["name"] == f"__Host-shoal_{served.port}"
        assert cookie["secure"]
        assert cookie["httpOnly"]
        assert cookie["sameSite"] == "Strict"
        assert one.problems() == []
        assert one.requested() <= {f"https://{name}:{served.port}"}
        # By another name of the same machine it does not answer.
        one.open(f"https://127.0.0.1:{served.port}/")
        assert "nightly" not in one.text("body")
        assert "Log in" not in one.text("body")


def test_without_the_right_to_read_the_offsets_topic_the_pages_say_so() -> None:
    allowed = [
        Acl(kind, name, "User:eve", Operation.DESCRIBE)
        for kind, name in (
            (ResourceType.CLUSTER, "kafka-cluster"),
            (ResourceType.TOPIC, "*"),
            (ResourceType.GROUP, "*"),
        )
    ]
    users = {"admin": "admin-password", "eve": "eve-password"}
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"}
    listeners = (Listener(port=0, sasl=("SCRAM-SHA-256",)),)
    with Broker(topics={"orders": 1}, users=users, listeners=listeners, acls=allowed) as broker:
        boss: dict[str, Any] = {
            **login,
            "sasl_username": "admin",
            "sasl_password": "admin-password",
        }
        with Admin(bootstrap_servers=broker.bootstrap_servers, **boss) as admin:
            admin.alter_group_offsets("g", {TopicPartition("orders", 0): 0})
        eve: dict[str, Any] = {**login, "sasl_username": "eve", "sasl_password": "eve-password"}
        with dashboard(broker.bootstrap_servers, **eve) as served, browser() as one:
            one.open(served.server.url)
            one.wait_for("Rebalances and their causes are not shown")
            for path, words in (
                ("/group?group=g", "cannot be known"),
                ("/rebalances", "Rebalances cannot be known"),
            ):
                one.open(base(served) + path)
                one.wait_for(words)
            assert one.problems() == []
