"""``shoal ui``: the dashboard, for any Kafka cluster."""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli.connecting import ClusterTarget, for_cluster, resolve, utf8_text
from shoal.cli.output import tell, warn
from shoal.errors import ConfigError, missing_extra

if TYPE_CHECKING:
    from shoal.web.cluster_watch import ClusterWatch
    from shoal.web.server import BackgroundJob, WebServer, WebSettings

app = typer.Typer(rich_markup_mode=None)


@app.command("ui")
@for_cluster
def ui(
    target: ClusterTarget,
    demo: Annotated[
        bool, typer.Option("--demo", help="A broker of its own, with groups that rebalance.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Where to listen; 0 takes a free one.")
    ] = 8787,
    host: Annotated[
        str, typer.Option(help="Beyond this machine only with TLS and a password.")
    ] = "127.0.0.1",
    allow_writes: Annotated[
        bool, typer.Option("--allow-writes", help="Let pages reset offsets; else they only look.")
    ] = False,
    record: Annotated[
        Path | None, typer.Option(help="Keep the history of all groups in this directory.")
    ] = None,
    also: Annotated[
        list[str] | None, typer.Option(metavar="PROFILE", help="Another cluster, by its profile.")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", "-g", help="Only these; * and ? are patterns.")
    ] = None,
    every: Annotated[
        float, typer.Option(min=1, max=3_600, help="Seconds between looks at the cluster.")
    ] = 5.0,
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = True,
    certificate: Annotated[Path | None, typer.Option(help="TLS: PEM.")] = None,
    key: Annotated[Path | None, typer.Option(help="TLS: its key.")] = None,
    login_password_file: Annotated[
        Path | None, typer.Option(help="Log in with the password in this file, not by a token.")
    ] = None,
    public_name: Annotated[
        str, typer.Option(metavar="HOST", help="The name others reach it by.")
    ] = "",
    with_parent: Annotated[bool, typer.Option("--with-parent", hidden=True)] = False,
) -> None:
    """Watch consumer groups in a browser: lag, rebalances and their causes, what to do; until
    Ctrl-C.

    Looks at the cluster in the background and changes nothing, unless --allow-writes is given.
    """
    _need_web()
    from shoal.web.cluster_watch import ClusterWatch
    from shoal.web.server import WebServer, WebSettings

    settings = WebSettings(
        host=host,
        port=port,
        allow_writes=allow_writes,
        certificate=certificate,
        key=key,
        password=_password(login_password_file),
        public_name=public_name,
        is_demo=demo,
    )
    settings.check()
    with ExitStack() as stack:
        if demo:
            from shoal.cli.ui_demo import demo_cluster

            target = replace(target, settings=stack.enter_context(demo_cluster()))
        watches: dict[str, ClusterWatch] = {}
        for name, one in _clusters(target, also or ()).items():
            admin = stack.enter_context(one.admin())
            patterns = tuple(group or ("*",))
            watches[name] = ClusterWatch(name, admin, one.settings, every_s=every, groups=patterns)
        jobs = [_recording(next(iter(watches.values())), record)] if record is not None else []
        server = WebServer(watches, settings, jobs)
        if with_parent:
            threading.Thread(target=_end_with_parent, args=(server,), daemon=True).start()
        _serve(server, settings, opens_browser=browser)


def _need_web() -> None:
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise missing_extra("the dashboard's web server", "web") from None


def _password(path: Path | None) -> str:
    if path is None:
        return ""
    password = utf8_text(path).strip()
    if not password:
        raise ConfigError(f"--login-password-file {path} is empty; write a password into it")
    return password


def _clusters(target: ClusterTarget, profiles: Sequence[str]) -> dict[str, ClusterTarget]:
    """The clusters to watch, by the names pages show."""
    found = {str(target.settings["bootstrap_servers"]): target}
    for name in profiles:
        if name in found:
            raise ConfigError(f"--also {name} was given twice")
        # A profile of its own: nothing of the first cluster's flags, least of all its password.
        found[name] = replace(target, settings=resolve({}, name, None))
    return found


def _recording(watch: ClusterWatch, directory: Path) -> BackgroundJob:
    from shoal.records.arrow import need_arrow

    need_arrow()
    from shoal.web.recording import RecordingKeeper

    keeper = RecordingKeeper(watch, directory)
    keeper.load()
    return keeper


def _end_with_parent(server: WebServer) -> None:
    sys.stdin.read()
    server.stop()


def _serve(server: WebServer, settings: WebSettings, *, opens_browser: bool) -> None:
    def end(*_: Any) -> None:
        server.stop()

    with ExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGTERM):
            stack.callback(signal.signal, number, signal.signal(number, end))
        if opens_browser:
            stack.enter_context(_opened(server.url))

        def ready() -> None:
            tell(f"dashboard at {server.url}")
            if settings.allow_writes:
                warn("pages may reset offsets of groups without members (--allow-writes)")

        server.run(ready)


@contextmanager
def _opened(url: str) -> Iterator[None]:
    """Open a browser by a file that only we can read: every user sees the arguments of programs,
    and the token is in the address."""
    with tempfile.TemporaryDirectory(prefix="shoal-ui-") as directory:
        page = Path(directory) / "open.html"
        page.touch(mode=0o600)
        target = escape(url, quote=True)
        page.write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={target}">'
            f'<a href="{target}">Shoal</a>',
            encoding="utf-8",
        )
        webbrowser.open(page.as_uri())
        yield
