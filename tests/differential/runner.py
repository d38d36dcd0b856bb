"""Drives both brokers through all cases in step and collects where their answers part."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from shoal.broker.config import BrokerConfig, BrokerLimits, GroupSettings, Listener
from shoal.testing.broker import Broker
from shoal.wire.apis.api_versions import ApiVersionsRequest
from shoal.wire.apis.produce import ProduceRequest
from shoal.wire.apis.registry import API
from tests.differential.accepted import accepted_by
from tests.differential.catalogue import SUBJECTS, Subject, prepare
from tests.differential.compare import ABSENT, Difference, differences
from tests.differential.conversations import conversation_cases
from tests.differential.edges import edges
from tests.differential.findings import Finding, Report
from tests.differential.place import (
    LONG_PATIENCE_S,
    PASSWORD,
    PATIENCE_S,
    SILENT,
    USER,
    Place,
)
from tests.differential.steps import Ask, Case, Raw, Receive, Send, Step, Talk, Together
from tests.peers.kafka import ApacheKafka

USERS = {USER: PASSWORD}
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
MISSING = {"outcome": "not reached"}
# Long, for busy machines: only a difference that is not accepted waits for its end.
_SETTLING_S = 10.0


# ---------------------------------------------------------------------- the two brokers


@contextmanager
def both() -> Iterator[tuple[Place, Place]]:
    """Apache Kafka and our broker, with the same users, settings, topics, records and groups."""
    config = BrokerConfig(
        groups=GroupSettings(initial_rebalance_delay_ms=0, max_size=1_000_000),
        limits=BrokerLimits(failed_authentication_delay_seconds=0.0),
    )
    listeners = (Listener(port=0), Listener(port=0, sasl=MECHANISMS))
    with (
        ApacheKafka(users=USERS) as kafka,
        Broker(config=config, listeners=listeners, users=USERS) as shoal,
    ):
        theirs = Place("Apache Kafka", kafka.port, kafka.guarded_port)
        ours = Place("Shoal", shoal.port, shoal.live.listeners[1].port)
        try:
            for place in (theirs, ours):
                prepare(place)
            yield theirs, ours
        finally:
            theirs.close()
            ours.close()


def served(places: tuple[Place, Place]) -> dict[int, tuple[int, int]]:
    """The APIs that both brokers advertise, with the versions that both do."""
    theirs, ours = (
        {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        for answer in (place.ask(ApiVersionsRequest(), 0) for place in places)
    )
    return {
        key: (max(low, ours[key][0], API[key].min_version), min(high, ours[key][1]))
        for key, (low, high) in theirs.items()
        if key in ours
    }


# ---------------------------------------------------------------------- cases


def subject_cases(versions: dict[int, tuple[int, int]]) -> Iterator[Case]:
    """Every subject in every version: the good request, and one for each edge of each field."""
    for subject in SUBJECTS:
        key = subject.build(Place("names"), 99).API_KEY
        assert key is not None
        if key not in versions:
            continue
        low, high = versions[key]
        for version in range(max(low, subject.since), high + 1):
            yield _case(subject, key, version, None)
            sketch = Place("names")
            for label, _ in edges(subject.build(sketch, version), version, subject.hints):
                yield _case(subject, key, version, label)


def _case(subject: Subject, key: int, version: int, label: str | None) -> Case:
    api = API[key].name

    def talk(place: Place) -> Talk:
        request: Any = subject.build(place, version)
        if label is not None:
            changes = edges(request, version, subject.hints)
            request = next(changed for found, changed in changes if found == label)
        try:
            request.encode(version)
        except ValueError:
            # Our own encoder will not write it; hostile.py sends what no encoder writes.
            return
        if isinstance(request, ProduceRequest) and request.acks == 0:
            # Nothing answers it: the next request on the connection tells how it went.
            yield Send(request, version, subject.on)
            yield Ask(ApiVersionsRequest(), 0, subject.on)
        else:
            yield Ask(request, version, subject.on)
        for question, at in subject.after(place, request, version):
            yield Ask(question, at, subject.on, settles=subject.settles)

    name = f"{api}{subject.name} v{version}"
    return Case(name if label is None else f"{name}: {label}", api, version, talk)


def chosen(cases: Iterable[Case], *, seed: int, share: int) -> list[Case]:
    """One of ``share`` cases, by their names: the same ones for the same seed."""
    return [case for case in cases if zlib.crc32(f"{seed} {case.name}".encode()) % share == 0]


# ---------------------------------------------------------------------- running


def run(places: tuple[Place, Place], cases: Iterable[Case], report: Report) -> None:
    """All cases, one after the other; what is found is added to the report."""
    for case in cases:
        report.cases += 1
        for place in places:
            place.new_case()
        _run_case(places, case, report)


def _run_case(places: tuple[Place, Place], case: Case, report: Report) -> None:
    talks = [case.talk(place) for place in places]
    answers: list[Any] = [None, None]
    while True:
        steps = [_next(talk, answer) for talk, answer in zip(talks, answers, strict=True)]
        if steps[0] is None and steps[1] is None:
            return
        if steps[0] is None or steps[1] is None:
            ends = [ABSENT if step is None else "goes on" for step in steps]
            report.findings.append(Finding(case, "the end", Difference("", *ends)))
            return
        answers = _step(places, case, steps, report)


def _next(talk: Talk, answer: Any) -> Step | None:
    try:
        return talk.send(answer)
    except StopIteration:
        return None


def _step(places: tuple[Place, Place], case: Case, steps: list[Any], report: Report) -> list[Any]:
    question = _question(steps[0])
    deadline = time.monotonic() + _SETTLING_S
    while True:
        for place, step in zip(places, steps, strict=True):
            _send(place, step)
        if isinstance(steps[0], Send):
            return [None, None]
        got = [_receive(place, step) for place, step in zip(places, steps, strict=True)]
        found = _findings(case, question, steps[0], got[0][0], got[1][0])
        if not all(map(accepted_by, found)) and SILENT in (got[0][0], got[1][0]):
            got = [
                _receive(place, step, LONG_PATIENCE_S) if one[0] == SILENT else one
                for place, step, one in zip(places, steps, got, strict=True)
            ]
            found = _findings(case, question, steps[0], got[0][0], got[1][0])
        again = isinstance(steps[0], Ask) and steps[0].settles and not all(map(accepted_by, found))
        if not again or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    if not isinstance(steps[0], Receive):
        for place, one in zip(places, got, strict=True):
            if one[0] == SILENT:
                # A late answer must not be taken for the next one.
                place.line(steps[0].on).close()
    report.questions[question.split(" ")[0]] += 1
    report.findings += found
    return [answer for _, answer in got]


def _findings(case: Case, question: str, step: Step, theirs: Any, ours: Any) -> list[Finding]:
    """Differences of one answer, or of all in a pipeline, each under its own API."""
    if not isinstance(step, Together):
        return [Finding(case, question, one) for one in differences(theirs, ours)]
    found = []
    for number, (request, version) in enumerate(step.requests):
        asked = _question(Ask(request, version))
        pair: list[Any]
        pair = [answers[number] if number < len(answers) else MISSING for answers in (theirs, ours)]
        found += [Finding(case, asked, one) for one in differences(*pair)]
    return found


def _question(step: Step) -> str:
    match step:
        case Ask() | Send():
            return f"{API[step.request.API_KEY or 0].name} v{step.version} {step.request!r}"
        case Receive() | Raw():
            name = API[step.key].name if step.key in API else f"API {step.key}"
            return f"{name} v{step.version}" + (
                f" bytes {step.data[:80].hex()}" if isinstance(step, Raw) else ""
            )
        case Together():
            return "pipelined " + ", ".join(
                f"{API[request.API_KEY or 0].name} v{version}" for request, version in step.requests
            )


def _send(place: Place, step: Step) -> None:
    match step:
        case Ask() | Send():
            place.send(step.on, (step.request, step.version))
        case Together():
            place.send(step.on, *step.requests)
        case Raw():
            place.send_raw(step.on, step.data)
        case Receive():
            pass


def _receive(place: Place, step: Any, patience_s: float | None = None) -> tuple[Any, Any]:
    line = place.line(step.on)
    match step:
        case Ask():
            patience_s = patience_s or step.patience_s
            return place.outcome(step.request.API_KEY or 0, step.version, line, patience_s)
        case Receive():
            return place.outcome(step.key, step.version, line, patience_s or step.patience_s)
        case Raw():
            return place.outcome(step.key, step.version, line, patience_s or PATIENCE_S)
        case Together():
            outcomes = []
            for request, version in step.requests:
                outcome, _ = place.outcome(request.API_KEY or 0, version, line, LONG_PATIENCE_S)
                outcomes.append(outcome)
                if outcome["outcome"] != "answered":
                    break
            return outcomes, None
    raise AssertionError(step)


def compared(*, seed: int, share: int, wanted: Callable[[Case], object] = bool) -> Report:
    """Start both brokers, run the cases that were asked for, and say what was seen."""
    report = Report()
    with both() as places:
        versions = served(places)
        report.versions = versions
        cases = [*subject_cases(versions), *conversation_cases(versions)]
        picked = chosen((case for case in cases if wanted(case)), seed=seed, share=share)
        run(places, picked, report)
    return report
