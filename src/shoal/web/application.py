"""Everything that may be asked of the dashboard, as one table, and the answers.

Rule: a row of ``routes`` is the only way in, and says what it needs; ``gate`` asks. Whatever waits
for the cluster runs in a thread, a few at a time: a slow cluster holds up its own page, not all.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shoal._version import __version__
from shoal.errors import ConfigError, ShoalError
from shoal.web.actions import Actions
from shoal.web.assets import Asset, assets
from shoal.web.cluster_watch import ClusterWatch
from shoal.web.event_stream import Bell, Encoded, EventStream
from shoal.web.gate import Gate, GateSettings, RouteNeed, WebRoute, session_of
from shoal.web.group_history import storms
from shoal.web.group_view import NotThereError, group_view
from shoal.web.lab_view import LabRuns, scenarios
from shoal.web.record_peek import PeekOrder, peek
from shoal.web.sessions import LIFE_S, WebSessions
from shoal.web.topic_view import topic_view, topics_view
from shoal.web.what_if import what_if

BODY_MAX: Final = 64 * 1024
AT_ONCE: Final = 4
"""Questions to clusters that pages may have under way."""


@dataclass(frozen=True)
class Dashboard:
    """What the pages are about."""

    watches: Mapping[str, ClusterWatch]
    actions: Actions
    sessions: WebSessions
    is_demo: bool = False
    runs: LabRuns = field(default_factory=LabRuns)


class Application:
    """The dashboard as an ASGI application, behind its gate."""

    def __init__(self, dashboard: Dashboard, settings: GateSettings) -> None:
        self._dashboard = dashboard
        self._settings = settings
        self._asking = asyncio.Semaphore(AT_ONCE)
        self._bells: dict[str, Bell] = {}
        self._encoded = {name: Encoded() for name in dashboard.watches}
        self._streams: set[object] = set()
        self._is_closing = False
        self.routes = self._routes(assets())
        inner = Starlette(
            routes=[
                Route(one.path, partial(_answer, one.endpoint), methods=[one.method])
                for one in self.routes
            ]
        )
        self.gated = Gate(inner, self.routes, dashboard.sessions, settings)

    def close(self) -> None:
        """End every stream. From any thread."""
        self._is_closing = True
        for bell in list(self._bells.values()):
            bell.ring()

    @property
    def streams(self) -> int:
        """How many browsers listen."""
        return len(self._streams)

    def _routes(self, files: Mapping[str, Asset]) -> list[WebRoute]:
        rows: list[tuple[str, str, RouteNeed, Callable[..., Any]]] = [
            ("POST", "/api/session", RouteNeed.NOTHING, self._log_in),
            ("POST", "/api/session/end", RouteNeed.READ, self._log_out),
            ("GET", "/api/about", RouteNeed.READ, self._about),
            ("GET", "/api/stream", RouteNeed.READ, self._stream),
            ("GET", "/api/group", RouteNeed.READ, self._group),
            ("GET", "/api/rebalances", RouteNeed.READ, self._rebalances),
            ("GET", "/api/topics", RouteNeed.READ, self._topics),
            ("GET", "/api/topic", RouteNeed.READ, self._topic),
            ("POST", "/api/records", RouteNeed.READ, self._records),
            ("POST", "/api/what-if", RouteNeed.READ, self._what_if),
            ("POST", "/api/reset/preview", RouteNeed.READ, self._preview),
            ("POST", "/api/reset", RouteNeed.WRITE, self._reset),
            ("GET", "/api/lab", RouteNeed.READ, self._lab),
            ("POST", "/api/lab/run", RouteNeed.READ, self._lab_run),
        ]
        return [
            *(WebRoute(*row) for row in rows),
            *(
                WebRoute("GET", path, RouteNeed.NOTHING, partial(_file, one))
                for path, one in files.items()
            ),
        ]

    # --- who is there ---

    async def _log_in(self, request: Request) -> Response:
        given = await _json(request)
        name = await self._dashboard.sessions.open(str(given.get("secret", "")))
        if name is None:
            return JSONResponse({"error": "this is not the secret of this server"}, 403)
        # What every page asks next comes with it: one round less before the first page.
        answer = JSONResponse(self._known())
        answer.set_cookie(
            self._settings.cookie,
            name,
            max_age=int(LIFE_S),
            path="/",
            secure=self._settings.is_tls,
            httponly=True,
            samesite="strict",
        )
        return answer

    async def _log_out(self, request: Request) -> Response:
        self._dashboard.sessions.close(session_of(request.headers, self._settings.cookie))
        answer = JSONResponse({"ok": True})
        answer.delete_cookie(
            self._settings.cookie,
            path="/",
            secure=self._settings.is_tls,
            httponly=True,
            samesite="strict",
        )
        return answer

    async def _about(self, request: Request) -> Response:  # noqa: ARG002 - an endpoint's form
        return JSONResponse(self._known())

    def _known(self) -> dict[str, Any]:
        """What holds as long as this server runs."""
        return {
            "version": __version__,
            "clusters": list(self._dashboard.watches),
            "allow_writes": self._dashboard.actions.allow_writes,
            "demo": self._dashboard.is_demo,
        }

    # --- what is going on ---

    async def _stream(self, request: Request) -> Any:
        watch = self._watch(request)
        bell = self._bells.get(watch.name)
        if bell is None:
            bell = self._bells[watch.name] = Bell(asyncio.get_running_loop())
            watch.on_change(bell.ring)
        session = session_of(request.headers, self._settings.cookie)
        return EventStream(
            watch,
            bell,
            self._encoded[watch.name],
            is_welcome=lambda: not self._is_closing and self._dashboard.sessions.knows(session),
            opened=self._streams,
        )

    async def _group(self, request: Request) -> Response:
        group_id = request.query_params.get("group", "")
        return await self._ask(lambda: group_view(self._watch(request), group_id))

    async def _rebalances(self, request: Request) -> Response:
        watch = self._watch(request)
        return JSONResponse({"feed": storms(watch.feed()), "blind": watch.blind})

    async def _topics(self, request: Request) -> Response:
        return await self._ask(lambda: topics_view(self._watch(request)))

    async def _topic(self, request: Request) -> Response:
        name = request.query_params.get("topic", "")
        return await self._ask(lambda: topic_view(self._watch(request), name))

    async def _records(self, request: Request) -> Response:
        order = PeekOrder.of(await _json(request))
        return await self._ask(lambda: peek(self._watch(request), order))

    async def _what_if(self, request: Request) -> Response:
        given = await _json(request)
        return await self._ask(lambda: what_if(self._watch(request), given))

    # --- what changes something ---

    async def _preview(self, request: Request) -> Response:
        given = await _json(request)
        group_id, to, topics = given.get("group"), given.get("to"), given.get("topics")
        if not isinstance(group_id, str) or not isinstance(to, str) or not group_id:
            raise ConfigError("name a group, and where it is to go")
        if topics is not None and not _are_texts(topics):
            raise ConfigError("topics are a list of names")
        actions = self._dashboard.actions
        return await self._ask(
            lambda: actions.preview(self._watch(request), group_id, to, topics or None)
        )

    async def _reset(self, request: Request) -> Response:
        given = await _json(request)
        number, confirmed = given.get("plan"), given.get("confirm")
        if not isinstance(number, str) or not isinstance(confirmed, str):
            raise ConfigError("send the number of a preview, and the name of its group")
        actions = self._dashboard.actions
        return await self._ask(lambda: actions.reset(self._watch(request), number, confirmed))

    # --- the lab ---

    async def _lab(self, request: Request) -> Response:  # noqa: ARG002 - an endpoint's form
        return JSONResponse(scenarios())

    async def _lab_run(self, request: Request) -> Response:
        name = (await _json(request)).get("scenario")
        return await self._ask(lambda: self._dashboard.runs.of(name))

    def _watch(self, request: Request) -> ClusterWatch:
        """The cluster a request is about: one of those this server was started with."""
        watches = self._dashboard.watches
        name = request.query_params.get("cluster") or next(iter(watches))
        if name not in watches:
            raise NotThereError(f"this dashboard does not watch {name!r}")
        return watches[name]

    async def _ask(self, question: Callable[[], Any]) -> Response:
        async with self._asking:
            return JSONResponse(await asyncio.to_thread(question))


async def _answer(endpoint: Callable[[Request], Any], request: Request) -> Any:
    """What an endpoint says; and what went wrong, in one line."""
    try:
        return await endpoint(request)
    except NotThereError as error:
        return JSONResponse({"error": str(error)}, 404)
    except PermissionError as error:
        return JSONResponse({"error": str(error)}, 403)
    except ConfigError as error:
        return JSONResponse({"error": " ".join(str(error).split())}, 400)
    except ShoalError as error:
        return JSONResponse({"error": f"the cluster: {' '.join(str(error).split())}"}, 502)


async def _file(asset: Asset, request: Request) -> Response:
    headers = {"etag": asset.etag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == asset.etag:
        return Response(status_code=304, headers=headers)
    return Response(asset.data, headers=headers, media_type=asset.content_type)


async def _json(request: Request) -> dict[str, Any]:
    """The body of a request, which is one JSON object of a bounded size.

    Raises:
        ConfigError: it is not.
    """
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > BODY_MAX:
            raise ConfigError(f"a request has at most {BODY_MAX} bytes")
    try:
        found = json.loads(bytes(body))
    except (ValueError, RecursionError):
        raise ConfigError("the request is not JSON") from None
    if not isinstance(found, dict):
        raise ConfigError("the request is not a JSON object")
    return found


def _are_texts(given: object) -> bool:
    return isinstance(given, Sequence) and all(isinstance(one, str) for one in given)
