"""Ctrl-C in the middle of a call: quiet, whatever the engine was about to do."""

from __future__ import annotations

import gc
import signal
import threading

import pytest


@pytest.mark.slow
def test_an_interrupt_just_before_the_work_begins_is_quiet(consumer, topic, caplog):
    one = consumer()
    one.subscribe([topic])
    loop = one._engine.loop
    before, between, reached = threading.Event(), threading.Event(), threading.Event()

    def stand_still() -> None:
        reached.set()
        between.wait(10)

    def interrupt(*_: object) -> None:
        # The call is posted and the engine stands before it: make it stand once more, between
        # the task that may be woken and the work that task has made.
        one._engine.post(loop.call_soon, stand_still)
        before.set()
        assert reached.wait(10)
        raise KeyboardInterrupt

    one._engine.post(before.wait, 10)
    old = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            one.commit_sync({})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        between.set()
    one.poll(0)
    one.close()
    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupt_before_the_call_is_posted_leaves_nothing_to_be_run(
    consumer, topic, monkeypatch, recwarn, error
):
    one = consumer()
    one.subscribe([topic])

    def interrupted(call: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(one._engine, "call", interrupted)
        with pytest.raises(error):
            one.commit_sync({})
    one.poll(0)  # so the engine has come to what was posted
    gc.collect()
    assert not [str(each.message) for each in recwarn if "never awaited" in str(each.message)]
