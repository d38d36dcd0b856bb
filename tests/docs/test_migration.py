"""The tables of ``docs/howto/migrate.md`` name calls that exist, here and there, and miss none.

What stands in backquotes in a table of calls is Python. Of ours, each call is looked up and its
arguments are held against the signature; so are theirs in the clients that are installed. Java's
column is not read: there is no Java client here to ask.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import shoal
from shoal import errors

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "migrate.md"
CODE = re.compile(r"`([^`]+)`")
OURS = {
    "consumer": (shoal.Consumer, shoal.AsyncConsumer),
    "producer": (shoal.Producer, shoal.AsyncProducer),
    "admin": (shoal.Admin, shoal.AsyncAdmin),
    "record": (shoal.Record,),
}
CLIENTS = tuple(kind for kinds in OURS.values() for kind in kinds)
#: Where the classes of other clients are.
PEERS = {
    "confluent-kafka": ("confluent_kafka", "confluent_kafka.admin", "confluent_kafka.aio"),
    "kafka-python": ("kafka", "kafka.consumer.fetcher", "kafka.errors", "kafka.producer.future"),
    "aiokafka": ("aiokafka", "aiokafka.admin", "aiokafka.errors"),
}
#: Backquotes around what is no Python: half a statement, or the name of a metric.
NO_PYTHON = {"async for", "last-poll-seconds-ago"}


class Table(NamedTuple):
    head: list[str]
    rows: list[list[str]]

    def column(self, start: str) -> list[str]:
        """The cells below the head that starts so; none if there is no such head."""
        return [
            row[at]
            for at, head in enumerate(self.head)
            if head.startswith(start)
            for row in self.rows
        ]

    @property
    def theirs(self) -> tuple[str, str]:
        """Whose methods, and of which class."""
        found = re.match(r"([\w-]+): `(\w+)`", self.head[0])
        assert found is not None, self.head
        return found[1], found[2]

    @property
    def ours(self) -> type:
        (name,) = CODE.findall(self.head[1])
        kind: type = getattr(shoal, name)
        return kind


def tables(section: str) -> list[Table]:
    text = PAGE.read_text(encoding="utf-8")
    (part,) = re.findall(rf"^## {section}\n(.*?)(?=^## )", text, re.DOTALL | re.MULTILINE)
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", part, re.MULTILINE):
        lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines()]
        assert all(len(line) == len(lines[0]) for line in lines), lines[0]
        found.append(Table(lines[0], lines[2:]))
    return found


CALLS = tables("Calls")
METHODS = tables("Every method")


class Use(NamedTuple):
    """A name that is called or asked for."""

    name: str
    of: str | None
    """The variable it is asked of; ``None``: none, ``""``: the result of something else."""
    call: ast.Call | None


def uses(code: str) -> Iterator[Use]:
    tree = parsed(code)
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=variable), attr=name):
                yield Use(name, variable, calls.get(id(node)))
            case ast.Attribute(attr=name):
                yield Use(name, "", calls.get(id(node)))
            case ast.Name(id=name) if id(node) in calls:
                yield Use(name, None, calls[id(node)])
            case ast.Expr(value=ast.Name(id=name)):
                yield Use(name, None, None)


def parsed(code: str) -> ast.AST:
    """What stands between backquotes, which need not be a whole statement."""
    for text in (code, f"{code.rstrip(':')}: pass"):
        for whole in (text, f"async def around():\n {text}"):
            try:
                return ast.parse(whole)
            except SyntaxError:
                continue
    raise AssertionError(f"`{code}` is not Python")


def takes(function: Any, call: ast.Call) -> bool:
    """Whether the arguments fit; ``...`` stands for any."""
    given = [one for one in call.args if not isinstance(one, ast.Constant) or one.value is not ...]
    names = [one.arg for one in call.keywords if one.arg is not None]
    try:
        signature = inspect.signature(function)
    except ValueError:  # written in C: its documentation begins with it
        return all(name in (function.__doc__ or "") for name in names)
    own = [None] if inspect.isfunction(function) else []  # self
    try:
        signature.bind_partial(*own, *[None] * len(given), **dict.fromkeys(names))
    except TypeError:
        return False
    return True


def public_methods(kind: type) -> set[str]:
    names = {name for name in dir(kind) if not name.startswith("_")}
    return {name for name in names if callable(getattr(kind, name))}


# --- ours ---


def results_have() -> set[str]:
    """The names that what our methods return has, such as ``member_id``."""
    found: set[str] = set()
    for kind in CLIENTS:
        for name in public_methods(kind):
            function = inspect.unwrap(getattr(kind, name))
            returned = re.match(r"\w+", str(function.__annotations__.get("return", "")))
            result = function.__globals__.get(returned[0]) if returned else None
            found.update(dir(result), getattr(result, "__annotations__", ()))
    return found


RESULTS_HAVE = results_have()


def check_ours(code: str, kinds: tuple[type, ...]) -> None:
    for name, variable, call in uses(code):
        places: tuple[Any, ...]
        match variable:
            case None:
                places = (*kinds, shoal, errors)
            case "":
                assert name in RESULTS_HAVE, f"`{code}`: no result has {name}"
                continue
            case "re":
                places = (re,)
            case _ if variable in OURS:
                places = OURS[variable]
            case _:
                places = (getattr(shoal, variable),)
        found = [getattr(place, name) for place in places if hasattr(place, name)]
        if variable == "record":
            found += [None] * (name in shoal.Record.__annotations__)
        assert found, f"`{code}`: there is no {name}"
        if call is not None:
            assert any(takes(one, call) for one in found), f"`{code}`: {name} takes other arguments"


@pytest.mark.parametrize("table", CALLS, ids=lambda table: table.head[-1])
def test_every_call_of_ours_that_is_compared_exists_with_its_arguments(table: Table) -> None:
    cells = table.column("here")
    assert cells
    for cell in cells:
        for code in CODE.findall(cell):
            check_ours(code, CLIENTS)


@pytest.mark.parametrize("table", METHODS, ids=lambda table: table.theirs[1])
def test_every_counterpart_of_their_methods_exists_with_its_arguments(table: Table) -> None:
    for theirs, ours in table.rows:
        if ours.startswith("the same"):
            for name in CODE.findall(theirs):
                assert name in public_methods(table.ours), f"{table.ours} has no {name}"
        elif ours.startswith("none: "):
            assert len(ours.split()) > 3, f"{theirs}: {ours} gives no reason"
        else:
            assert CODE.search(ours), f"{theirs}: {ours} names nothing"
        for code in CODE.findall(ours):
            if code not in NO_PYTHON:
                check_ours(code, (table.ours,))


# --- theirs ---


def peer_classes(client: str) -> list[Any]:
    """The public classes of a client that is installed, and its modules."""
    modules = [pytest.importorskip(name) for name in PEERS[client][:1]]
    modules += [importlib.import_module(name) for name in PEERS[client][1:]]
    classes = [one for module in modules for one in vars(module).values() if inspect.isclass(one)]
    return [*modules, *classes]


def check_theirs(code: str, places: list[Any]) -> None:
    for name, _, call in uses(code):
        found = [getattr(place, name) for place in places if hasattr(place, name)]
        assert found, f"`{code}`: there is no {name}"
        if call is not None:
            fits = any(takes(one, call) for one in found if callable(one))
            assert fits, f"`{code}`: {name} takes other arguments"


@pytest.mark.parametrize("client", PEERS)
def test_every_call_of_another_client_that_is_compared_exists(client: str) -> None:
    places = peer_classes(client)
    cells = [cell for table in CALLS for cell in table.column(client)]
    codes = [code for cell in cells for code in CODE.findall(cell) if code not in NO_PYTHON]
    assert len(codes) > 10
    for code in codes:
        check_theirs(code, places)


@pytest.mark.parametrize("table", METHODS, ids=lambda table: table.theirs[1])
def test_every_public_method_of_another_client_has_a_row_and_there_are_no_others(
    table: Table,
) -> None:
    client, name = table.theirs
    places = peer_classes(client)
    (kind,) = {getattr(place, name) for place in places if hasattr(place, name)}
    named = set()
    for theirs, _ in table.rows:
        for code in CODE.findall(theirs):
            if code == "None":
                continue
            check_theirs(code, places)
            named.add(code.partition("(")[0])
    assert named == public_methods(kind)


def test_every_class_that_people_migrate_from_has_a_table() -> None:
    assert [table.theirs for table in METHODS] == [
        ("confluent-kafka", "Consumer"),
        ("confluent-kafka", "Producer"),
        ("confluent-kafka", "AdminClient"),
        ("kafka-python", "KafkaConsumer"),
        ("kafka-python", "KafkaProducer"),
        ("aiokafka", "AIOKafkaConsumer"),
        ("aiokafka", "AIOKafkaProducer"),
    ]
