"""Which way is chosen, and what the C of the extension modules does under sanitizers."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from shoal.errors import ConfigError
from shoal.records import extension as it
from shoal.records.extension import MODULES, chosen, extension
from tests.records.sanitizers import build
from tests.records.test_corruption import sanitizing_compiler

ROOT = Path(__file__).parents[2]
_SENDS = """
from shoal.client import producer_batch
from shoal.records import objects
print(producer_batch._native is not None, objects._native is not None)
"""


def test_python_is_chosen_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_EXTENSION", "python")
    assert [extension(name) for name in MODULES] == [None, None]
    assert chosen() == "python"


def test_a_wish_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_EXTENSION", "fast")
    with pytest.raises(ConfigError, match="SHOAL_EXTENSION='fast' is not one of auto, c, python"):
        extension(MODULES[0])


def test_what_was_not_built_is_done_by_python_unless_c_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(it, "MODULES", ("shoal.records._objects_not_built",))
    assert chosen() == "python"
    monkeypatch.setenv("SHOAL_EXTENSION", "c")
    with pytest.raises(ConfigError, match=r"_objects_not_built was not built .*make setup"):
        chosen()


def test_a_python_without_its_lock_does_its_own_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert [extension(name) for name in MODULES] == [None, None]
    monkeypatch.setenv("SHOAL_EXTENSION", "c")
    with pytest.raises(ConfigError, match="a free-threaded Python cannot load it"):
        extension(MODULES[0])


@pytest.mark.parametrize("wish", ["python", "auto"])
def test_the_choice_is_made_at_import(wish: str) -> None:
    is_built = wish == "auto" and chosen() == "c"
    environment = {**os.environ, "SHOAL_EXTENSION": wish}
    done = subprocess.run(
        [sys.executable, "-c", _SENDS], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(is_built)] * 2


_BESIDE = """
import sys
sys.path[:0] = {path}
from shoal.client import producer_batch
from shoal.records import objects
from shoal.records.batch import encode_batch
from shoal.records.encoding import Stamp
from shoal.types import TopicPartition
assert producer_batch._native is not None and objects._native is not None
batch = producer_batch.ProducerBatch(TopicPartition("t", 0), 0.0)
batch.base_offset = 5
batch.finish(None)
assert producer_batch.SendFuture(batch, 1, 2).result(0).offset == 6
builder = producer_batch.Builder(1000)
assert builder.append(b"k", b"v", (), 5)
data = builder.encoded(Stamp())
((record,),) = objects.iter_records(("t", 0, data, 0, None))
assert record.value == b"v"
"""
_FIRST = """
import sys
import _xxsubinterpreters as interpreters
code = {code!r}.replace("{{path}}", repr(sys.path))
exec(code)
for _ in range(3):
    beside = interpreters.create(isolated=False)
    interpreters.run_string(beside, code)
    interpreters.destroy(beside)
    exec(code)
"""


@pytest.mark.slow
@pytest.mark.skipif(chosen() != "c", reason="the extension modules were not built")
@pytest.mark.skipif(find_spec("_xxsubinterpreters") is None, reason="of Python 3.11 and 3.12")
def test_an_interpreter_beside_the_first_has_modules_of_its_own_and_takes_nothing_away() -> None:
    """Its modules come and go with it; those of the first go on, with types of their own."""
    code = _FIRST.format(code=_BESIDE)
    command = [sys.executable, "-X", "faulthandler", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.long
def test_the_c_parts_stay_within_their_bounds_under_sanitizers(tmp_path: Path) -> None:
    """The tests of this package and those that compare C with Python, with every access watched."""
    environment = build(sanitizing_compiler(tmp_path), tmp_path)
    tests = ["tests/records", "tests/client/test_compiled_sending.py"]
    tests.append("tests/spark/test_json_readers.py")
    plugin = ["-p", "tests.records.sanitized", "-m", "not long and not peer and not kafka"]
    command = [sys.executable, "-m", "pytest", "-q", *plugin, *tests]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.long
def test_lifetimes_are_right_under_sanitizers() -> None:
    command = [sys.executable, "-m", "tests.client.lifetimes", "--sanitize", "--seconds", "20"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "references: as many as before" in done.stdout
