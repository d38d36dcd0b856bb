"""Credentials in their file: only derived keys, only for the owner, read again when changed."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from shoal.broker.scram import make_credential, password_matches
from shoal.broker.users import Users
from shoal.errors import ConfigError


def test_a_password_set_by_one_process_is_seen_by_another(tmp_path):
    path = tmp_path / "users.json"
    running = Users(path)
    assert running.any_of("ada") is None
    Users(path).set_password("ada", "correct horse", iterations=4096)
    found = running.any_of("ada")
    assert found is not None
    assert password_matches(found, "correct horse")
    assert running.names() == ["ada"]
    assert [c.mechanism for c in running.of("ada")] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]


def test_a_password_changed_by_one_process_counts_at_once_in_another(tmp_path):
    path = tmp_path / "users.json"
    running = Users(path)
    for password in ("first", "other"):
        Users(path).set_password("ada", password, iterations=4096)
        found = running.any_of("ada")
        assert found is not None
        assert password_matches(found, password)


def test_the_file_holds_no_password_and_is_private(tmp_path):
    path = tmp_path / "users.json"
    Users(path).set_password("ada", "correct horse", iterations=4096)
    assert b"correct" not in path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
def test_a_file_others_can_read_is_refused_with_the_command_that_mends_it(tmp_path, mode):
    path = tmp_path / "users.json"
    Users(path).set_password("ada", "correct horse", iterations=4096)
    path.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        Users(path)


def test_removing_one_mechanism_leaves_the_other(tmp_path):
    users = Users(tmp_path / "users.json")
    users.set_password("ada", "correct horse", iterations=4096)
    assert users.remove("ada", "SCRAM-SHA-256")
    assert users.lookup("ada", "SCRAM-SHA-256") is None
    assert users.lookup("ada", "SCRAM-SHA-512") is not None
    assert users.remove("ada")
    assert not users.remove("ada")


def test_a_damaged_file_is_named_and_its_content_is_not_shown(tmp_path):
    path = tmp_path / "users.json"
    path.touch(mode=0o600)
    path.write_text('{"users": [{"user": "ada", "salt": "topsecret"}]}')
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=r"users\.json is not a user file") as caught:
        Users(path)
    assert "topsecret" not in str(caught.value)


def test_changes_at_once_are_all_kept(tmp_path):
    """Every thread has a view of the file of its own, as other processes do."""

    def add(number):
        Users(tmp_path / "users.json").set_password(f"user-{number}", "secret", iterations=4096)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(16)))
    assert len(Users(tmp_path / "users.json").names()) == 16


def test_a_change_through_the_broker_keeps_what_the_command_line_added(tmp_path):
    running, command = Users(tmp_path / "users.json"), Users(tmp_path / "users.json")
    command.set_password("ann", "secret", iterations=4096)
    running.put("ben", make_credential("SCRAM-SHA-256", "secret", b"salt", 4096))
    assert Users(tmp_path / "users.json").names() == ["ann", "ben"]


def test_a_file_that_is_taken_away_takes_its_users_away(tmp_path):
    path = tmp_path / "users.json"
    Users(path).set_password("ada", "correct horse", iterations=4096)
    running = Users(path)
    assert running.names() == ["ada"]
    path.unlink()
    assert running.any_of("ada") is None
    assert running.names() == []
