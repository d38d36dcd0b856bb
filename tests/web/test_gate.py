"""The gate: every route with every kind of visitor, and what a stranger's page may not do."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest

from shoal.web.actions import Actions
from shoal.web.application import Application, Dashboard
from shoal.web.gate import HEADERS, POLICY, GateSettings, RouteNeed
from shoal.web.sessions import SESSIONS_MAX, WAITING_MAX, WebSessions

HOST = "127.0.0.1:8787"
ORIGIN = f"http://{HOST}"


def application(*, allow_writes: bool = False) -> tuple[Application, WebSessions]:
    sessions = WebSessions("the right secret", wrong_s=0.0)
    settings = GateSettings(frozenset({HOST}), "shoal_8787", allow_writes=allow_writes)
    watches: dict[str, Any] = {"test": None}
    return Application(
        Dashboard(watches, Actions(allow_writes=allow_writes), sessions), settings
    ), sessions


def headers(session: str = "", **more: str | None) -> list[tuple[bytes, bytes]]:
    """What a page of ours sends."""
    sent: dict[str, str | None] = {
        "host": HOST,
        "origin": ORIGIN,
        "sec-fetch-site": "same-origin",
        "x-shoal": "1",
        "content-type": "application/json",
        "cookie": f"shoal_8787={session}" if session else None,
    }
    sent |= {name.replace("_", "-"): value for name, value in more.items()}
    return [(n.encode(), v.encode()) for n, v in sent.items() if v is not None]


APP, SESSIONS = application()
SESSION = asyncio.run(SESSIONS.open("the right secret")) or ""
GATE = APP.gated
ROUTES = APP.routes
GUARDED = [route for route in ROUTES if route.need is not RouteNeed.NOTHING]
OPEN = [route for route in ROUTES if route.need is RouteNeed.NOTHING]


def status(method: str, path: str, given: list[tuple[bytes, bytes]]) -> int:
    denial = GATE.denial(method, path, given)
    return 200 if denial is None else denial.status


def opened(sessions: WebSessions, secret: str) -> str:
    session = asyncio.run(sessions.open(secret))
    assert session is not None
    return session


def name(route: Any) -> str:
    return f"{route.method} {route.path}"


@pytest.mark.parametrize("route", GUARDED, ids=name)
@pytest.mark.parametrize(
    "cookie",
    [
        None,
        "",
        "shoal_8787=",
        "shoal_8787=wrong",
        "shoal_8787=the right secret",
        f"shoal_9999={SESSION}",
        f"other={SESSION}",
        f"shoal_8787={SESSION}x",
        f"shoal_8787=wrong; shoal_8787={SESSION}",
        "\x00\xff",
    ],
)
def test_no_data_without_an_open_session(route, cookie):
    assert status(route.method, route.path, headers(cookie=cookie)) == 401


@pytest.mark.parametrize("route", GUARDED, ids=name)
def test_every_guarded_route_answers_who_is_logged_in(route):
    expected = 403 if route.need is RouteNeed.WRITE else 200
    assert status(route.method, route.path, headers(SESSION)) == expected


@pytest.mark.parametrize("route", ROUTES, ids=name)
@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example",
        "127.0.0.1",
        "127.0.0.1:1",
        "localhost:8787.evil.example",
        f"x@{HOST}",
    ],
)
def test_another_host_name_gets_nothing_whatever_it_asks(route, host):
    """DNS rebinding: a page of evil.example whose name now leads to this machine."""
    assert status(route.method, route.path, headers(SESSION, host=host)) == 421


@pytest.mark.parametrize("route", ROUTES, ids=name)
def test_two_host_headers_are_none(route):
    given = [*headers(SESSION), (b"host", b"evil.example")]
    assert status(route.method, route.path, given) == 421


@pytest.mark.parametrize("route", ROUTES, ids=name)
@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", f"https://{HOST}", "http://127.0.0.1:1"]
)
def test_a_page_of_another_origin_is_refused(route, origin):
    assert status(route.method, route.path, headers(SESSION, origin=origin)) == 403


@pytest.mark.parametrize("route", [r for r in ROUTES if r.path.startswith("/api/")], ids=name)
@pytest.mark.parametrize("site", ["cross-site", "same-site", "none"])
def test_a_browser_that_says_it_comes_from_elsewhere_is_believed(route, site):
    assert status(route.method, route.path, headers(SESSION, sec_fetch_site=site)) == 403


@pytest.mark.parametrize("route", [r for r in ROUTES if r.method == "POST"], ids=name)
@pytest.mark.parametrize(
    ("missing", "expected"), [("origin", 403), ("x_shoal", 403), ("content_type", 415)]
)
def test_what_a_form_cannot_send_is_needed_to_post(route, missing, expected):
    assert status("POST", route.path, headers(SESSION, **{missing: None})) == expected


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "text/json"])
def test_posts_are_json_and_nothing_that_a_form_sends(kind):
    assert status("POST", "/api/records", headers(SESSION, content_type=kind)) == 415


def test_writing_is_refused_unless_the_server_was_told_otherwise():
    writes = [route for route in ROUTES if route.need is RouteNeed.WRITE]
    assert [route.path for route in writes] == ["/api/reset"]
    assert status("POST", "/api/reset", headers(SESSION)) == 403
    allowed, sessions = application(allow_writes=True)
    session = opened(sessions, "the right secret")
    assert allowed.gated.denial("POST", "/api/reset", headers(session)) is None


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_a_method_that_is_not_in_the_table_is_refused(method):
    assert status(method, "/api/reset", headers(SESSION)) == 405


@pytest.mark.parametrize(
    "path",
    [
        "/api/unknown",
        "/static/../gate.py",
        "/static/%2e%2e/gate.py",
        "//api/about",
        "/api/about/",
        "",
    ],
)
def test_what_is_not_in_the_table_does_not_exist(path):
    assert status("GET", path, headers(SESSION)) == 404
    assert status("GET", path, headers()) == 401


def test_nothing_but_the_shell_of_the_pages_is_open():
    allowed = {"/", "/group", "/rebalances", "/topics", "/topic", "/what-if", "/reset", "/lab"}
    for route in OPEN:
        assert route.path in allowed | {"/api/session"} or route.path.startswith("/static/")


def test_the_policy_is_strict():
    assert "unsafe" not in POLICY
    assert "*" not in POLICY
    for needed in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"):
        assert needed in POLICY.split("; ")
    assert "require-trusted-types-for 'script'" in POLICY
    assert HEADERS["x-content-type-options"] == "nosniff"
    assert HEADERS["referrer-policy"] == "no-referrer"


def test_a_wrong_secret_opens_nothing():
    sessions = WebSessions("right", wrong_s=0.0)
    for wrong in ("", "righ", "right ", "RIGHT", "ri\udcff"):
        assert asyncio.run(sessions.open(wrong)) is None


def test_a_session_ends_by_itself_and_when_it_is_closed():
    now = 0.0
    sessions = WebSessions("right", clock=lambda: now)
    one = opened(sessions, "right")
    other = opened(sessions, "right")
    assert sessions.knows(one)
    sessions.close(one)
    assert not sessions.knows(one)
    assert sessions.knows(other)
    now = 8 * 86_400.0
    assert not sessions.knows(other)


def test_sessions_are_not_kept_without_end():
    now = count()
    sessions = WebSessions("right", clock=lambda: float(next(now)))
    names = [opened(sessions, "right") for _ in range(SESSIONS_MAX + 5)]
    assert not any(map(sessions.knows, names[:5])), "the oldest go first"
    assert all(map(sessions.knows, names[5:]))


def test_wrong_secrets_wait_for_each_other():
    async def guess() -> float:
        sessions = WebSessions("right", wrong_s=0.02)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.gather(*(sessions.open("wrong") for _ in range(4)))
        return loop.time() - began

    assert asyncio.run(guess()) >= 0.08 * 0.9


def test_a_wrong_secret_waits_however_many_came_before():
    async def guess() -> float:
        sessions = WebSessions("right", wrong_s=0.005)
        loop = asyncio.get_running_loop()
        for _ in range(2):
            await asyncio.gather(*(sessions.open("wrong") for _ in range(WAITING_MAX + 3)))
        began = loop.time()
        await sessions.open("wrong")
        return loop.time() - began

    assert asyncio.run(guess()) >= 0.005 * 0.9
