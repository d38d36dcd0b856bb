"""``shoal acl``, against a broker with rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from shoal.broker.config import Listener
from shoal.cli.commands import app
from shoal.errors import ConfigError
from shoal.testing.broker import Broker

Acl = Callable[..., Result]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    listener = Listener(port=0, sasl=("PLAIN",))
    with Broker(users={"admin": "secret"}, listeners=(listener,), acls=[]) as running:
        yield running


@pytest.fixture
def acl(broker: Broker, tmp_path: Path) -> Iterator[Acl]:
    password = tmp_path / "password"
    password.write_text("secret\n")
    login = ["--bootstrap", broker.bootstrap_servers, "--security-protocol", "SASL_PLAINTEXT"]
    login += ["--sasl-mechanism", "PLAIN", "--sasl-username", "admin"]
    login += ["--password-file", str(password)]

    def run(command: str, *arguments: str) -> Result:
        return CliRunner().invoke(app, ["acl", command, *arguments, *login], catch_exceptions=True)

    yield run
    run("remove", "--of", "User:ann", "--yes")
    run("remove", "--of", "User:bob", "--yes")


def rules(acl: Acl, *filters: str) -> list[str]:
    listed = acl("list", "--json", *filters)
    assert listed.exit_code == 0, listed.output
    return [
        f"{rule['permission']} {rule['principal']} {rule['operation']} "
        f"{rule['resource']} {rule['pattern']} {rule['name']} {rule['host']}"
        for rule in json.loads(listed.stdout)
    ]


def test_a_rule_is_added_listed_tried_and_removed(acl):
    added = acl("add", "--allow", "User:ann", "-o", "read", "--topic", "ord", "--prefix")
    assert added.exit_code == 0, added.output
    assert "ALLOW User:ann to READ TOPIC prefix ord from *" in added.output
    assert rules(acl) == ["allow User:ann read topic prefixed ord *"]
    assert "ord" in acl("list").output

    yes = acl("test", "User:ann", "describe", "topic", "orders", "--from", "10.0.0.5")
    assert yes.exit_code == 0
    assert "yes: allowed by a rule: ALLOW User:ann to READ TOPIC prefix ord from *" in yes.output
    no = acl("test", "User:ann", "write", "topic", "orders", "--json")
    assert no.exit_code == 3
    assert json.loads(no.stdout) == {"allowed": False, "reason": "no rule allows it", "rule": None}
    root = acl("test", "User:admin", "alter", "cluster")
    assert "yes: is a super user" in root.output

    # Of exactly this name and kind, or it stays.
    assert isinstance(acl("remove", "--topic", "ord", "--yes").exception, ConfigError)
    removed = acl("remove", "--topic", "ord", "--prefix", "--yes")
    assert "removed 1 rule" in removed.output
    assert rules(acl) == []


def test_what_a_producer_and_a_consumer_need_is_known(acl):
    acl("add", "--allow", "User:ann", "--producer", "--topic", "orders", "--transactional-id", "t")
    acl("add", "--allow", "User:bob", "--consumer", "--topic", "orders", "--group", "billing")
    assert rules(acl, "--of", "User:ann") == [
        "allow User:ann write topic literal orders *",
        "allow User:ann create topic literal orders *",
        "allow User:ann describe topic literal orders *",
        "allow User:ann write transactional_id literal t *",
        "allow User:ann describe transactional_id literal t *",
    ]
    assert rules(acl, "--of", "User:bob") == [
        "allow User:bob read topic literal orders *",
        "allow User:bob describe topic literal orders *",
        "allow User:bob read group literal billing *",
    ]


def test_a_list_for_a_resource_shows_what_would_be_asked(acl):
    acl("add", "--allow", "User:ann", "-o", "all", "--topic", "*", "--host", "10.0.0.5")
    acl("add", "--deny", "User:bob", "-o", "write", "--topic", "o", "--prefix")
    acl("add", "--allow", "User:bob", "-o", "read", "--topic", "payments")
    assert rules(acl, "--topic", "orders") == [
        "allow User:ann all topic literal * 10.0.0.5",
        "deny User:bob write topic prefixed o *",
    ]


def test_rules_travel_in_a_file(acl, tmp_path):
    acl("add", "--allow", "User:ann", "-o", "read", "--topic", "orders")
    exported = acl("export")
    assert exported.exit_code == 0
    file = tmp_path / "rules"
    file.write_text(exported.stdout)
    acl("remove", "--of", "User:ann", "--yes")
    acl("add", "--deny", "User:bob", "-o", "write", "--cluster")
    assert "added 1 rule, removed 0" in acl("import", str(file)).output
    assert "added 0 rules, removed 1" in acl("import", str(file), "--replace", "--yes").output
    assert rules(acl) == ["allow User:ann read topic literal orders *"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "line 1 is not an access rule"),
        ('{"resource": "topic"}', "line 1 is not an access rule: 'name'"),
        (
            '{"resource": "topic", "name": "", "principal": "User:a", "operation": "read", '
            '"permission": "allow"}',
            "line 1: the resource has no name",
        ),
    ],
)
def test_a_bad_file_is_refused_by_its_line(acl, tmp_path, line, why):
    file = tmp_path / "rules"
    file.write_text(line)
    assert why in str(acl("import", str(file)).exception)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["add", "-o", "read", "--topic", "t"], "nobody is named"),
        (["add", "--allow", "User:a", "--topic", "t"], "nothing to add"),
        (["add", "--allow", "User:a", "-o", "read"], "nothing to add"),
        (["add", "--allow", "a", "-o", "read", "--topic", "t"], "not of the form Type:name"),
        (["add", "--allow", "User:a", "-o", "reed", "--topic", "t"], "did you mean 'read'"),
        (["remove", "--yes"], "name the rules to remove"),
        (["test", "User:a", "read", "topc", "t"], "is not one of topic, group"),
        (["test", "User:a", "read", "topic"], "which topic? Add its name"),
        (["test", "User:a", "all", "topic", "t"], "test one operation"),
    ],
)
def test_a_mistake_is_answered_with_advice(acl, arguments, why):
    assert why in str(acl(*arguments).exception)
