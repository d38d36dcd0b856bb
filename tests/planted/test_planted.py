"""The tests notice every bug planted in what they test."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.planted.bugs import ROOT, PlantedBug, bugs_of, packages

EVERY_BUG = [bug for package in packages() for bug in bugs_of(package)]


@pytest.mark.parametrize("bug", EVERY_BUG, ids=lambda bug: bug.name.replace(" ", "-"))
def test_every_planted_bug_has_its_place_and_a_test_that_exists(bug: PlantedBug) -> None:
    changed = bug.planted()
    if bug.file.endswith(".py"):
        compile(changed, bug.file, "exec")
    for argument in shlex.split(bug.test):
        if argument.startswith("tests/"):
            assert (ROOT / argument.partition("::")[0]).is_file()


def test_every_planted_bug_has_a_name_of_its_own() -> None:
    names = [bug.name for bug in EVERY_BUG]
    assert len(set(names)) == len(names)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_planted_bug_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    # In a process of its own: a bug can only be planted where nothing of Shoal was imported.
    done = subprocess.run(
        [sys.executable, "-m", "tests.planted"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    with capsys.disabled():  # how long it took, and which was slowest, is for everybody to see
        print("", *done.stdout.splitlines()[-2:], sep="\n")
    # What escaped, and not the thousand that did not: reports are cut, and from either end.
    caught = re.compile(r"^caught .*\n", re.MULTILINE)
    assert done.returncode == 0, caught.sub("", done.stdout) + done.stderr[-2_000:]


def test_a_bug_that_nobody_looks_for_escapes_and_is_told(tmp_path: Path) -> None:
    told = _told(
        tmp_path,
        "from tests.planted.bugs import PlantedBug\n"
        "from tests.planted.runner import run\n"
        "harmless = PlantedBug('a comment', 'types.py', 'from __future__ import annotations\\n',\n"
        "    'from __future__ import annotations\\n# changed\\n', 'tests/test_errors.py')\n"
        "missing = harmless._replace(name='no test', test='tests/test_errors.py -k none')\n"
        "broken = harmless._replace(name='no Python', new='from __future__ import\\n')\n"
        "outcomes = run([harmless, missing, broken])\n",
    )
    assert told["a comment"] == "nobody noticed"
    assert told["no test"] == "there is no such test"
    assert told["no Python"].startswith("pytest ended with")


def test_a_test_that_hangs_or_is_only_slow_has_not_noticed(tmp_path: Path) -> None:
    slow = tmp_path / "test_slow.py"
    slow.write_text(
        "import time\n"
        "import pytest\n"
        "@pytest.mark.timeout(0.2)\n"
        "def test_slowly():\n"
        "    time.sleep(0.5)\n"
    )
    told = _told(
        tmp_path,
        "from tests.planted.bugs import PlantedBug\n"
        "from tests.planted.runner import run\n"
        "first = 'from __future__ import annotations\\n'\n"
        "hangs = PlantedBug('hangs', 'types.py', first, first + 'import time; time.sleep(99)\\n',\n"
        "    'tests/test_errors.py')\n"
        f"slow = PlantedBug('slow', 'types.py', first, first, {str(slow)!r})\n"
        "outcomes = [*run([hangs], hang_seconds=3), *run([slow])]\n",
    )
    assert told["hangs"].startswith("its test hung for 3 s")
    assert told["slow"] == "nobody noticed"


def _told(directory: Path, script: str) -> dict[str, str]:
    """What became of the bugs of a script that leaves ``outcomes``, by name."""
    script += "for outcome in outcomes:\n    print(outcome.bug.name, '|', outcome.problem)\n"
    file = directory / "hunt.py"
    file.write_text(script)
    done = subprocess.run(
        [sys.executable, str(file)],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(directory)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(line.split(" | ") for line in done.stdout.splitlines())
