"""What the shell offers for a half-typed name: topics, groups, scenarios, schemes.

Rule: completion never hangs, asks or complains. The cluster has ``LIMIT_S`` to answer, in a thread
that the program does not wait for; whatever goes wrong, nothing is offered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import typer

from shoal.cli.connecting import FLAG_NAMES, resolve

if TYPE_CHECKING:
    from shoal.client.admin import Admin

LIMIT_S: Final = 2.0


def topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of topics; internal ones when they are asked for by their underscores."""

    def ask(admin: Admin) -> list[str]:
        names = admin.list_topics(timeout=LIMIT_S)
        return [one for one in names if incomplete.startswith("__") or not one.startswith("__")]

    return _asked(ctx, incomplete, ask)


def groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of groups."""
    return _asked(
        ctx, incomplete, lambda admin: [g.group_id for g in admin.list_groups(timeout=LIMIT_S)]
    )


def scenarios(incomplete: str) -> list[str]:
    """The built-in scenarios of the lab."""
    from shoal.lab import BUILT_IN

    return [name for name in BUILT_IN if name.startswith(incomplete)]


def schemes(incomplete: str) -> list[str]:
    """The schemes of the lab."""
    from shoal.lab import SCHEMES

    return [name for name in SCHEMES if name.startswith(incomplete)]


def plan_examples(incomplete: str) -> list[str]:
    """The built-in groups of ``shoal plan``."""
    from shoal.assign.plan_document import EXAMPLES

    return [name for name in EXAMPLES if name.startswith(incomplete)]


def _asked(ctx: typer.Context, incomplete: str, ask: Callable[[Admin], list[str]]) -> list[str]:
    found: list[str] = []

    def work() -> None:
        with suppress(BaseException):  # nothing is offered, whatever it was
            found.extend(_answer(ctx.params, ask))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    return sorted(name for name in list(found) if name.startswith(incomplete))


def _answer(given: dict[str, Any], ask: Callable[[Admin], list[str]]) -> list[str]:
    from shoal.client.admin import Admin

    flags = {name: given.get(name) for name in FLAG_NAMES}
    settings = resolve(flags, given.get("profile"), given.get("password_file"), may_ask=False)
    with Admin(**settings, default_api_timeout_ms=int(LIMIT_S * 1000)) as admin:
        return ask(admin)
