"""Scenarios from YAML files.

    name: nightly
    members: 4
    topics: {orders: 12}
    work: {records_per_second: 50, processing_ms: 10}
    timing: {session_timeout_ms: 45000}
    duration: 2m
    events:
      - {at: 10s, crash: m2}
      - {at: 40s, add-partitions: orders, to: 24}

Rule: every mistake is answered with the line and the field it is in. The file is read into nodes,
never into objects, so it can neither run anything nor grow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, NoReturn

import yaml

from shoal.errors import ConfigError
from shoal.lab.scenario import (
    BROKER_ACTS,
    SERVER_ACTS,
    WATCHER_VERSIONS,
    Act,
    Event,
    RegistrySettings,
    Scenario,
    Timing,
    Work,
    member_name,
)

MEMBERS_MAX: Final = 2_000
PARTITIONS_MAX: Final = 20_000
DURATION_MAX_MS: Final = 24 * 3_600_000
FILE_SIZE_MAX: Final = 1 << 20
SERVERS_MAX: Final = 9
BROKERS_MAX: Final = 100

_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


def load(path: str) -> Scenario:
    """Read a scenario file.

    Raises:
        ConfigError: something in it is wrong; the text names line and field.
    """
    file = Path(path)
    if file.stat().st_size > FILE_SIZE_MAX:
        raise ConfigError(f"{path} is larger than {FILE_SIZE_MAX} bytes: is it a scenario?")
    return parse(file.read_text(encoding="utf-8", errors="replace"), path)


def parse(text: str, path: str = "scenario") -> Scenario:
    """Read a scenario out of YAML text."""
    try:
        # What safe_load builds on, one step earlier: nodes still know their lines.
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigError(f"{path}{line}: not YAML: {' '.join(problem.split())}") from None
    except RecursionError:
        raise ConfigError(f"{path}: not a scenario: nested too deeply") from None
    if root is None:
        raise ConfigError(f"{path}: the file is empty")
    return _Reader(path).scenario(root)


class _Reader:
    """Walks the nodes of one file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def _fail(self, node: yaml.Node, field: str, problem: str) -> NoReturn:
        raise ConfigError(f"{self._path}:{node.start_mark.line + 1}: {field}: {problem}")

    # --- values --------------------------------------------------------------------------------

    def _mapping(self, node: yaml.Node, field: str) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        if not isinstance(node, yaml.MappingNode):
            self._fail(node, field, "a mapping was expected (name: value)")
        found: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            name = self._text(key, field)
            if name in found:
                self._fail(key, name, "given twice")
            found[name] = (key, value)
        return found

    def _list(self, node: yaml.Node, field: str) -> list[yaml.Node]:
        if not isinstance(node, yaml.SequenceNode):
            self._fail(node, field, "a list was expected")
        return list(node.value)

    def _text(self, node: yaml.Node, field: str) -> str:
        if not isinstance(node, yaml.ScalarNode) or not node.value:
            self._fail(node, field, "a name was expected")
        return str(node.value)

    def _number(self, node: yaml.Node, field: str, *, least: int, most: int) -> int:
        text = self._text(node, field)
        if not re.fullmatch(r"-?\d{1,15}", text):
            self._fail(node, field, f"a whole number was expected, not {text!r}")
        if not least <= int(text) <= most:
            self._fail(node, field, f"{text} is not between {least} and {most}")
        return int(text)

    def _decimal(self, node: yaml.Node, field: str) -> float:
        text = self._text(node, field)
        if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text):
            self._fail(node, field, f"a number was expected, not {text!r}")
        return float(text)

    def _flag(self, node: yaml.Node, field: str) -> bool:
        text = self._text(node, field).lower()
        if text not in ("true", "false", "yes", "no"):
            self._fail(node, field, f"true or false was expected, not {text!r}")
        return text in ("true", "yes")

    def _time_ms(self, node: yaml.Node, field: str) -> int:
        text = self._text(node, field)
        match = _TIME.fullmatch(text.replace(" ", ""))
        if match is None:
            self._fail(node, field, f"a time was expected, as 10s, 500ms or 2m, not {text!r}")
        # A number alone is seconds.
        time_ms = int(float(match[1]) * _UNITS_MS[match[2] or "s"])
        if time_ms > DURATION_MAX_MS:
            self._fail(node, field, f"{text} is longer than a day")
        return time_ms

    def _known(
        self, given: Mapping[str, tuple[yaml.Node, yaml.Node]], known: list[str], where: str
    ) -> None:
        for name, (key, _) in given.items():
            if name not in known:
                self._fail(key, name, f"unknown {where}; there are {', '.join(known)}")

    # --- parts ---------------------------------------------------------------------------------

    def scenario(self, root: yaml.Node) -> Scenario:
        given = self._mapping(root, "scenario")
        readers: dict[str, Callable[[yaml.Node, str], Any]] = {
            "name": self._text,
            "description": self._text,
            "members": lambda n, f: self._number(n, f, least=0, most=MEMBERS_MAX),
            "topics": self._topics,
            "subscriptions": self._subscriptions,
            "static": self._flag,
            "seed": lambda n, f: self._number(n, f, least=0, most=2**31),
            "duration": self._time_ms,
            "warmup": self._time_ms,
            "work": lambda n, f: Work(**self._settings(n, f, Work)),
            "timing": lambda n, f: Timing(**self._settings(n, f, Timing)),
            "registry": lambda n, f: RegistrySettings(**self._settings(n, f, RegistrySettings)),
            "watcher_version": self._watcher_version,
            "brokers": lambda n, f: self._number(n, f, least=1, most=BROKERS_MAX),
            "racks": self._flag,
            "events": self._events,
        }
        self._known(given, list(readers), "field")
        for needed in ("members", "topics"):
            if needed not in given:
                self._fail(root, needed, "is missing")
        values = {name: readers[name](value, name) for name, (_, value) in given.items()}
        for name in ("duration", "warmup"):
            if name in values:
                values[f"{name}_ms"] = values.pop(name)
        values.setdefault("name", Path(self._path).stem)
        scenario = Scenario(**values)
        self._check_names(scenario, given)
        return scenario

    def _watcher_version(self, node: yaml.Node, field: str) -> str:
        text = self._text(node, field)
        if text not in WATCHER_VERSIONS:
            self._fail(node, field, f"there are {' and '.join(WATCHER_VERSIONS)}, not {text!r}")
        return text

    def _topics(self, node: yaml.Node, field: str) -> dict[str, int]:
        topics = {
            name: self._number(value, f"{field}.{name}", least=1, most=PARTITIONS_MAX)
            for name, (_, value) in self._mapping(node, field).items()
        }
        if not topics:
            self._fail(node, field, "there is nothing to read")
        if sum(topics.values()) > PARTITIONS_MAX:
            self._fail(node, field, f"more than {PARTITIONS_MAX} partitions")
        for name, (key, _) in self._mapping(node, field).items():
            if len(name.encode()) > 16:
                self._fail(key, f"{field}.{name}", "names have at most 16 bytes here")
        return topics

    def _subscriptions(self, node: yaml.Node, field: str) -> dict[str, tuple[str, ...]]:
        return {
            name: self._names(value, f"{field}.{name}")
            for name, (_, value) in self._mapping(node, field).items()
        }

    def _names(self, node: yaml.Node, field: str) -> tuple[str, ...]:
        names = tuple(self._text(each, field) for each in self._list(node, field))
        if not names:
            self._fail(node, field, "at least one topic was expected")
        return names

    def _settings(self, node: yaml.Node, field: str, kind: type[Any]) -> dict[str, Any]:
        known = {each.name: each.type for each in fields(kind)}
        given = self._mapping(node, field)
        self._known(given, list(known), f"setting of {field}")
        return {
            name: self._setting(value, f"{field}.{name}", known[name], name)
            for name, (_, value) in given.items()
        }

    def _setting(self, node: yaml.Node, field: str, kind: Any, name: str) -> Any:
        if kind == "float":
            return self._decimal(node, field)
        if kind == "bool":
            return self._flag(node, field)
        most = SERVERS_MAX if name == "servers" else DURATION_MAX_MS
        return self._number(node, field, least=_least(name), most=most)

    def _events(self, node: yaml.Node, field: str) -> tuple[Event, ...]:
        return tuple(
            self._event(each, f"{field}[{index}]")
            for index, each in enumerate(self._list(node, field))
        )

    def _event(self, node: yaml.Node, field: str) -> Event:
        given = self._mapping(node, field)
        acts = [act for act in Act if act.value in given]
        names = ", ".join(act.value for act in Act)
        if len(acts) != 1:
            self._fail(node, field, f"exactly one of {names} was expected")
        act = acts[0]
        self._known(
            given, [act.value, "at", "jitter", *_EXTRAS.get(act, ())], f"field of {act.value}"
        )
        for needed in ("at", *(name for name in _EXTRAS.get(act, ()) if name != "for")):
            if needed not in given:
                self._fail(node, f"{field}.{needed}", "is missing")
        values: dict[str, Any] = {"at_ms": self._time_ms(given["at"][1], f"{field}.at"), "act": act}
        subject = given[act.value][1]
        where = f"{field}.{act.value}"
        if act in (Act.FAILOVER, Act.CUT_COORDINATOR):
            values["for_ms"] = self._time_ms(subject, where)
        elif act is Act.ADD_PARTITIONS:
            values["topic"] = self._text(subject, where)
            values["partitions"] = self._number(
                given["to"][1], f"{field}.to", least=1, most=PARTITIONS_MAX
            )
        elif act in SERVER_ACTS or act in BROKER_ACTS:
            values["node"] = self._text(subject, where)
        else:
            values["member"] = self._text(subject, where)
        if "by" in given:
            values["by_ms"] = self._time_ms(given["by"][1], f"{field}.by")
        if "for" in given:
            values["for_ms"] = self._time_ms(given["for"][1], f"{field}.for")
        elif "for" in _EXTRAS.get(act, ()):
            self._fail(node, f"{field}.for", f"is missing: how long does the {act.value} last?")
        if "jitter" in given:
            values["jitter_ms"] = self._time_ms(given["jitter"][1], f"{field}.jitter")
        if "topics" in given:
            values["topics"] = self._names(given["topics"][1], f"{field}.topics")
        return Event(**values)

    def _check_names(
        self, scenario: Scenario, given: Mapping[str, tuple[yaml.Node, yaml.Node]]
    ) -> None:
        """Events and subscriptions speak of members and topics that are there."""
        known = set(scenario.names) | {
            event.member or "" for event in scenario.events if event.act is Act.JOIN
        }
        for name, topics in scenario.subscriptions.items():
            node = self._mapping(given["subscriptions"][1], "subscriptions")[name][0]
            self._check_member(node, f"subscriptions.{name}", name, known)
            self._check_topics(node, f"subscriptions.{name}", topics, scenario)
        if not scenario.events:
            return
        nodes = self._list(given["events"][1], "events")
        for index, (node, event) in enumerate(zip(nodes, scenario.events, strict=True)):
            where = f"events[{index}].{event.act.value}"
            if event.member is not None:
                self._check_member(node, where, event.member, known)
            self._check_node(node, where, event, scenario)
            self._check_topics(node, where, event.topics, scenario)
            if event.topic is not None:
                self._check_topics(node, where, (event.topic,), scenario)
                if event.partitions <= scenario.topics[event.topic]:
                    has = scenario.topics[event.topic]
                    self._fail(
                        node, f"events[{index}].to", f"{event.topic} has {has}; it can only grow"
                    )
            if event.at_ms >= scenario.duration_ms:
                self._fail(node, f"events[{index}].at", "is after the end (duration)")

    def _check_member(self, node: yaml.Node, field: str, name: str, known: set[str]) -> None:
        if name not in known:
            first, last = member_name(1), member_name(len(known))
            self._fail(node, field, f"there is no member {name!r}; they are {first} to {last}")

    def _check_node(self, node: yaml.Node, field: str, event: Event, scenario: Scenario) -> None:
        if event.act in SERVER_ACTS:
            names, what = [f"r{n + 1}" for n in range(scenario.registry.servers)], "server"
        elif event.act in BROKER_ACTS:
            names, what = [f"b{n + 1}" for n in range(scenario.brokers)], "broker"
            names += [e.node or "" for e in scenario.events if e.act is Act.BROKER_JOINS]
        else:
            return
        if event.node not in names:
            self._fail(
                node,
                field,
                f"there is no {what} {event.node!r}; they are {names[0]} to {names[-1]}",
            )

    def _check_topics(
        self, node: yaml.Node, field: str, topics: tuple[str, ...], scenario: Scenario
    ) -> None:
        for topic in topics:
            if topic not in scenario.topics:
                there = ", ".join(scenario.topics)
                self._fail(node, field, f"there is no topic {topic!r}; there is {there}")


_EXTRAS: Final[dict[Act, tuple[str, ...]]] = {
    Act.RESTART: ("for",),
    Act.STALL: ("for",),
    Act.PAUSE: ("for",),
    Act.CUT: ("for",),
    Act.ADD_PARTITIONS: ("to",),
    Act.SUBSCRIBE: ("topics",),
    Act.LAG: ("by", "for"),
    Act.ISOLATE: ("for",),
    Act.SERVER_FAILS: ("for",),
}


def _least(setting: str) -> int:
    """Zero means "at once" for a delay and nothing sensible for the rest."""
    zero = ("delay_ms", "lag_ms", "_us", "retries_max", "spread_ms")
    return 0 if setting.endswith(zero) else 1
