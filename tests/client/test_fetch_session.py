"""Fetch sessions against a model of the broker's side."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shoal.client.fetch_session import FetchSession
from shoal.types import TopicPartition

PARTITIONS = [TopicPartition("t", n) for n in range(5)]


class _BrokerSide:
    """What a broker keeps: id, epoch and the partitions it was told of."""

    def __init__(self):
        self.sessions = {}
        self.next_id = 1

    def handle(self, request):
        if request.epoch == 0:
            self.sessions.pop(request.session_id, None)
            session_id, self.next_id = self.next_id, self.next_id + 1
            self.sessions[session_id] = [1, dict(request.send)]
            return session_id, dict(request.send)
        session = self.sessions.get(request.session_id)
        if session is None or session[0] != request.epoch:
            return None, None
        session[0] += 1
        for tp in request.forget:
            session[1].pop(tp)
        session[1].update(request.send)
        return request.session_id, dict(session[1])


steps = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 3)),
        st.sampled_from(["ok", "ok", "ok", "lost", "forgotten"]),
    ),
    max_size=30,
)


@given(steps)
def test_whatever_happens_the_broker_fetches_what_is_wanted(steps):
    session: FetchSession[Any] = FetchSession()
    broker = _BrokerSide()
    for wanted, fate in steps:
        if fate == "forgotten":
            broker.sessions.clear()
        session_id, fetched = broker.handle(session.next_request(wanted))
        if session_id is None:
            session.reset()
            session_id, fetched = broker.handle(session.next_request(wanted))
        assert fetched == wanted
        if fate == "lost":
            session.reset()
        else:
            session.answered(session_id)


def test_an_unchanged_partition_is_not_sent_again():
    session: FetchSession[Any] = FetchSession()
    one, two = PARTITIONS[:2]
    session.next_request({one: 1, two: 1})
    session.answered(7)
    request = session.next_request({one: 2, two: 1})
    assert (request.session_id, request.epoch) == (7, 1)
    assert request.send == {one: 2}
    assert request.forget == {}
    session.answered(7)
    assert session.next_request({one: 2}).forget == {two: 1}


def test_a_broker_without_sessions_gets_everything_each_time():
    session: FetchSession[Any] = FetchSession()
    for _ in range(2):
        request = session.next_request({PARTITIONS[0]: 1})
        assert (request.session_id, request.epoch) == (0, 0)
        assert request.send == {PARTITIONS[0]: 1}
        session.answered(0)
    assert session.final_request() is None


def test_the_last_request_closes_the_session():
    session: FetchSession[Any] = FetchSession()
    session.next_request({})
    session.answered(9)
    request = session.final_request()
    assert request is not None
    assert (request.session_id, request.epoch) == (9, -1)


def test_a_partition_that_replaces_another_of_its_name_is_sent_and_the_other_forgotten():
    session: FetchSession[Any] = FetchSession(lambda old, new: old[0] != new[0])
    one = PARTITIONS[0]
    session.next_request({one: ("old", 5)})
    session.answered(7)
    request = session.next_request({one: ("new", 0)})
    assert (request.send, request.forget) == ({one: ("new", 0)}, {one: ("old", 5)})
    session.answered(7)
    request = session.next_request({one: ("new", 1)})
    assert (request.send, request.forget) == ({one: ("new", 1)}, {})
