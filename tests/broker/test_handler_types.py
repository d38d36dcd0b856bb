"""mypy sees which request a handler gets, and that it answers with that request's response."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker.handler_types import source

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_handler_with_the_wrong_request_or_response_is_an_error(tmp_path):
    text = source()
    wrong = {
        "takes(HeartbeatRequest, heartbeat)": "takes(HeartbeatRequest, sync_group)",
        "answers(MetadataRequest, metadata)": "answers(MetadataRequest, fetch)",
        "answers(DeleteTopicsRequest, delete_topics)": "answers(DeleteTopicsRequest, metadata)",
    }
    for right, mistake in wrong.items():
        assert right in text
        text = text.replace(right, mistake)
    path = tmp_path / "mistakes.py"
    path.write_text(text)
    run = subprocess.run(
        [sys.executable, "-m", "mypy", str(path)], cwd=ROOT, capture_output=True, text=True
    )
    found = {int(line.split(":")[1]) for line in run.stdout.splitlines() if ": error:" in line}
    assert found == {
        number for number, line in enumerate(text.splitlines(), 1) if line in wrong.values()
    }, run.stdout
