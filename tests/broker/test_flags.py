"""The quick way to read flags: it agrees with the parser that explains, or leaves it to it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.broker.__main__ import _explained
from shoal.broker.flags import FLAGS, Flag, build_config, defaults, quick
from shoal.errors import ConfigError


def test_no_flag_means_the_defaults():
    assert quick([]) == defaults() == _explained([])


def test_values_come_behind_a_flag_or_an_equals_sign():
    wanted = {
        **defaults(),
        "listen": ["127.0.0.1:0", "[::1]:1"],
        "durability": "os",
        "partitions": 3,
    }
    spoken = ["--listen", "127.0.0.1:0", "--listen=[::1]:1", "--durability=os", "--partitions", "3"]
    assert quick(spoken) == wanted == _explained(spoken)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--lissten", "x"],
        ["--list", "x"],
        ["serve"],
        ["--listen"],
        ["--listen", "--json"],
        ["--json=yes"],
        ["--partitions", "0"],
        ["--partitions", "-1"],
        ["--partitions", "²"],
        ["--log-level", "loud"],
        ["--log-format", "xml"],
    ],
)
def test_what_is_unusual_is_left_to_a_parser_that_can_explain(arguments):
    assert quick(arguments) is None


_WORDS = st.sampled_from([*FLAGS, "3", "os", "info", "json", "a=b", "--json=", "--key=k", "-", ""])


@given(st.lists(_WORDS, max_size=6))
def test_whatever_is_read_quickly_is_what_the_parser_says(arguments):
    found = quick(arguments)
    if found is not None:
        assert found == _explained(arguments)


_ADDED = """
import sys
from shoal.broker import flags

flags.FLAGS["--rack"] = flags.Flag(
    "rack", "value", "Where it stands.", lambda config, name: config._replace(rack=name), "NAME"
)
from shoal.broker.__main__ import main
from shoal.cli.serve import app

(app if sys.argv[2:] == ["typer"] else main)(sys.argv[1:2])
"""


@pytest.mark.parametrize("parser", ["typer", "argparse"])
def test_a_row_is_all_that_a_new_flag_needs(parser):
    told = subprocess.run(
        [sys.executable, "-c", _ADDED, "--help", parser], capture_output=True, text=True, check=True
    )
    assert re.search(r"--rack NAME +Where it stands\.", told.stdout)


def test_a_row_says_what_its_flag_changes(monkeypatch):
    row = Flag("rack", "value", "", lambda config, name: config._replace(rack=name))
    monkeypatch.setitem(FLAGS, "--rack", row)
    assert build_config(**(quick(["--rack=b"]) or {})).rack == "b"


def test_flags_win_over_the_file_and_leave_the_rest_of_it(tmp_path):
    file = tmp_path / "broker.toml"
    file.write_text(
        'rack = "r"\ndurability = "each"\n[topics]\npartitions = 5\n'
        '[[listener]]\naddress = "127.0.0.1:1"\nsasl = ["PLAIN"]\n'
    )
    options = quick(["--durability=os", "--no-auto-create", f"--config={file}", "--advertise=h:7"])
    config = build_config(**(options or {}))
    assert (config.rack, config.durability, config.topics.partitions) == ("r", "os", 5)
    assert not config.topics.auto_create
    assert config.data_dir == "shoal-data"
    (listener,) = config.listeners
    assert (listener.port, listener.sasl, listener.advertised) == (1, ("PLAIN",), ("h", 7))
    assert build_config(**(quick(["--data-dir="]) or {})).data_dir == "shoal-data"


def test_a_number_that_is_none_is_refused_not_forgotten():
    with pytest.raises(ConfigError, match=r"topics\.partitions must be at least 1"):
        build_config(**_explained(["--partitions", "0"]))
