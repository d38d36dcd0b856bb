"""Histories of transactional ids whose epochs are nearly used up: 32,765, 32,766, and then?

An id gets there as it does in life, only faster: by asking for it again and again. The last epoch a
client is given is 32,766; the one above is for the coordinator alone, which fences with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from shoal.errors import ErrorCode
from shoal.wire.apis.init_producer_id import InitProducerIdRequest
from shoal.wire.apis.registry import ApiKey
from tests.broker.transactional import NEW, OLD, Transactional, read
from tests.differential.transactions import Stage, Teller, patiently

LAST: Final = 32_766
"""The last epoch that is given to a client."""
_AT_ONCE: Final = 64
_VERSION: Final = 5


class OldStage(Stage):
    """Where producers have been through nearly all of their epochs.

    Args:
        age: how an id gets so old that the next one who asks for it gets an epoch; by default
            by asking for it as often.
    """

    def __init__(self, stage: Stage, age: Callable[[Stage, str, int], None] | None = None) -> None:
        self.raw, self.topic, self.heard = stage.raw, stage.topic, stage.heard
        self._age = age or age_by_asking
        self._ids: dict[tuple[str, int], str] = {}

    def aged(self, flow: int, epoch: int, *, timeout_ms: int = 60_000) -> Teller:
        one = self.producer(flow)
        self._age(self, one.name, epoch)
        assert patiently(lambda: super(Teller, one).init(timeout_ms=timeout_ms)) is ErrorCode.NONE
        assert one.epoch == epoch
        self.who(one)
        return one

    def who(self, one: Teller) -> None:
        """Which of its producer ids it has now, counted from a."""
        mine = [known for known in self._ids if known[0] == one.name]
        name = self._ids.setdefault((one.name, one.producer_id), "abcdef"[len(mine)])
        self.note("is", (name, one.epoch))


def age_by_asking(at: Stage, name: str, epoch: int) -> None:
    """Ask for an id until the next one who asks gets ``epoch``."""
    request = InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    reached = -1
    while reached < epoch - 1:
        count = min(_AT_ONCE, epoch - 1 - reached)
        for _ in range(count):
            at.raw.send(request, _VERSION)
        for _ in range(count):
            answer = at.raw.receive(ApiKey.INIT_PRODUCER_ID, _VERSION)
            if answer.error_code == 0:
                reached = answer.producer_epoch


# --- Histories -----------------------------------------------------------------------------------


def asked_for_again(at: OldStage) -> None:
    one = at.aged(OLD, LAST - 1)
    one.init()
    at.who(one)
    one.init()
    at.who(one)
    one.init()
    at.who(one)
    one.write(at.topic, b"x")
    one.end(commit=True)
    at.note("state", at.settle(one.name))


def asked_for_again_by_who_it_was(at: OldStage) -> None:
    one = at.aged(OLD, LAST - 1)
    first = one.producer_id
    one.init(expected=(first, LAST - 1))
    at.who(one)
    one.init(expected=(first, LAST))
    at.who(one)
    one.init(expected=(first, LAST))
    at.who(one)
    one.init(expected=(first, LAST - 1))
    one.as_of(first, LAST)
    one.add((at.topic, 0))
    one.end(commit=False)


def asked_for_again_when_the_answer_was_lost(at: OldStage) -> None:
    one = at.aged(OLD, LAST - 1)
    one.init(expected=(one.producer_id, LAST - 1))
    at.who(one)
    code = Transactional.init(one, expected=(one.producer_id, LAST - 1))
    at.note("again", code.name)
    at.who(one)


def ends_in_the_old_flow(at: OldStage) -> None:
    one = at.aged(OLD, LAST)
    first = one.producer_id
    for commit in (True, False):
        one.write(at.topic, b"x")
        one.end(commit=commit)
        at.note("state", at.settle(one.name))
        one.end(commit=commit)
    one.init()
    at.who(one)
    one.write(at.topic, b"y")
    second, epoch = one.producer_id, one.epoch
    one.as_of(first, LAST)
    one.produce(at.topic, b"late", version=11)
    one.end(commit=True)
    one.as_of(second, epoch)
    one.end(commit=True)
    at.note("state", at.settle(one.name))
    at.note("read", read(at.raw, at.topic))


def _ends_in_the_new_flow(at: OldStage, *, commit: bool) -> None:
    one = at.aged(NEW, LAST - 1)
    first = one.producer_id
    for _ in range(3):
        before = one.producer_id, one.epoch
        one.write(at.topic, b"x")
        one.end(commit=commit)
        at.who(one)
        at.note("state", at.settle(one.name))
        now = one.producer_id, one.epoch
        one.as_of(*before)
        one.end(commit=commit)  # sent again
        at.who(one)
        one.as_of(*now)
    one.as_of(first, LAST)
    one.produce(at.topic, b"late", version=12, partition=1)
    one.add((at.topic, 0))
    one.end(commit=not commit)
    one.init(expected=(first, LAST))
    at.note("state", at.settle(one.name))


def commits_in_the_new_flow(at: OldStage) -> None:
    _ends_in_the_new_flow(at, commit=True)


def aborts_in_the_new_flow(at: OldStage) -> None:
    _ends_in_the_new_flow(at, commit=False)


def aborts_of_nothing(at: OldStage) -> None:
    one = at.aged(NEW, LAST - 1)
    for _ in range(3):
        before = one.producer_id, one.epoch
        one.end(commit=False)
        at.who(one)
        at.note("state", at.settle(one.name))
        now = one.producer_id, one.epoch
        one.as_of(*before)
        one.end(commit=False)
        at.who(one)
        one.as_of(*now)
    one.write(at.topic, b"x")
    one.end(commit=True)
    at.who(one)


def _taken_over(at: OldStage, flow: int) -> None:
    one = at.aged(flow, LAST)
    one.write(at.topic, b"x")
    two = at.producer(flow)
    two.init()
    at.who(two)
    at.note("state", at.settle(one.name))
    one.produce(at.topic, b"late")
    one.end(commit=True)
    one.init(expected=(one.producer_id, LAST))
    two.write(at.topic, b"y")
    two.end(commit=True)
    at.who(two)
    at.note("state", at.settle(one.name))
    at.note("read", read(at.raw, at.topic))


def taken_over_in_the_old_flow(at: OldStage) -> None:
    _taken_over(at, OLD)


def taken_over_in_the_new_flow(at: OldStage) -> None:
    _taken_over(at, NEW)


def _timed_out(at: OldStage, flow: int) -> None:
    """The broker of this history looks for transactions that take too long every 200 ms."""
    one = at.aged(flow, LAST, timeout_ms=300)
    one.write(at.topic, b"x")
    while at.settle(one.name) == "Ongoing":
        time.sleep(0.05)
    at.note("state", at.settle(one.name))
    one.produce(at.topic, b"late")
    one.add((at.topic, 0))
    one.end(commit=True)
    one.init(expected=(one.producer_id, LAST))
    at.who(one)
    one.init()
    at.who(one)
    one.write(at.topic, b"y")
    one.end(commit=True)
    at.who(one)
    at.note("state", at.settle(one.name))


def timed_out_in_the_old_flow(at: OldStage) -> None:
    _timed_out(at, OLD)


def timed_out_in_the_new_flow(at: OldStage) -> None:
    _timed_out(at, NEW)


HISTORIES: Final[tuple[Callable[[OldStage], None], ...]] = (
    asked_for_again,
    asked_for_again_by_who_it_was,
    asked_for_again_when_the_answer_was_lost,
    ends_in_the_old_flow,
    commits_in_the_new_flow,
    aborts_in_the_new_flow,
    aborts_of_nothing,
    taken_over_in_the_old_flow,
    taken_over_in_the_new_flow,
    timed_out_in_the_old_flow,
    timed_out_in_the_new_flow,
)
