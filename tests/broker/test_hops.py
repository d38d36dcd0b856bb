"""How many files a reader opens to follow a request from the socket to its rule."""

from __future__ import annotations

import threading
from types import FrameType
from typing import Any

from shoal.testing.broker import Broker
from shoal.wire.apis.join_group import JoinGroupRequest
from tests.broker.raw_client import RawClient

HOPS_MAX = 6


def test_a_join_reaches_the_rule_in_six_hops_from_dispatch():
    """A file more on the way costs every reader; ``DESIGN.md`` names those that are there."""
    ways: list[list[str]] = []

    def look(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_rule = code.co_filename.endswith("/classic_join.py") and code.co_name != "<module>"
        if event == "call" and is_rule and not ways:
            files = []
            caller: FrameType | None = frame
            while caller is not None:
                files.append(caller.f_code.co_filename.rpartition("/shoal/")[2])
                caller = caller.f_back
            ways.append(list(dict.fromkeys(reversed(files))))

    protocol = JoinGroupRequest.Protocol(name="range", metadata=b"")
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    threading.setprofile(look)  # for the broker's thread, which starts now
    try:
        with Broker() as broker, RawClient(broker.port) as raw:
            assert raw.ask(request, 3).error_code == 0
    finally:
        threading.setprofile(None)
    (way,) = ways
    way = way[way.index("broker/dispatch.py") :]
    assert way[0] == "broker/dispatch.py"
    assert way[-1] == "group/coordinator/classic_join.py"
    assert len(way) - 1 <= HOPS_MAX, " → ".join(way)
