"""Access rules: the index decides as a plain loop over all rules does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.access.acl_authorizer import AclAuthorizer
from shoal.access.resources import Operation, ResourceType
from shoal.access.rules import Acl, AclFilter, PatternType, Permission, acl_problem, filter_problem

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ALL = 2


def rule(**changes: Any) -> Acl:
    plain = Acl(TOPIC, "orders", "User:ann", READ)
    return plain._replace(**changes)


def allows(
    *rules: Acl,
    who: str = "User:ann",
    host: str = "10.0.0.5",
    operation: Operation = READ,
    name: str = "orders",
    **settings: Any,
) -> bool:
    authorizer = AclAuthorizer(**settings)
    authorizer.replace(rules)
    return authorizer.allows(who, host, operation, TOPIC, name, audited=True)


def test_nothing_is_allowed_without_a_rule():
    assert not allows()
    assert allows(rule())
    assert not allows(rule(), who="User:bob")
    assert not allows(rule(), operation=WRITE)
    assert not allows(rule(resource=GROUP))
    assert not allows(rule(), name="orders-2")


def test_a_denial_wins_however_exact_the_permission_is():
    assert not allows(rule(), rule(name="o", pattern=PREFIXED, permission=DENY))
    assert not allows(rule(), rule(name="*", permission=DENY, operation=ALL))
    assert not allows(rule(), rule(principal="User:*", permission=DENY))
    assert allows(rule(), rule(permission=DENY, host="10.0.0.6"))


def test_a_prefix_covers_what_begins_with_it_and_a_star_everything():
    prefix = rule(name="ord", pattern=PREFIXED)
    assert allows(prefix)
    assert allows(prefix, name="ord")
    assert not allows(prefix, name="or")
    assert allows(rule(name="*"))
    # A star in a prefix is a letter.
    assert not allows(rule(name="*", pattern=PREFIXED))
    assert allows(rule(name="*", pattern=PREFIXED), name="*orders")


@pytest.mark.parametrize("operation", ["READ", "WRITE", "DELETE", "ALTER"])
def test_who_may_do_more_may_look(operation):
    given_right = Operation[operation]
    assert allows(rule(operation=given_right), operation=DESCRIBE)
    assert not allows(rule(operation=given_right), operation=Operation.DESCRIBE_CONFIGS)
    # A denial implies nothing.
    looking = rule(operation=DESCRIBE)
    assert allows(looking, rule(operation=given_right, permission=DENY), operation=DESCRIBE)


def test_who_may_change_settings_may_see_them():
    altering = rule(operation=Operation.ALTER_CONFIGS)
    assert allows(altering, operation=Operation.DESCRIBE_CONFIGS)
    assert not allows(altering, operation=DESCRIBE)


def test_a_super_user_is_asked_for_no_rule():
    everything_denied = rule(name="*", operation=ALL, permission=DENY)
    assert allows(everything_denied, super_users=["User:ann"])
    # The whole text counts: neither another kind nor a part of the name.
    assert not allows(everything_denied, super_users=["ann", "Group:ann", "User:an"])


def test_what_no_rule_is_about_is_open_if_the_settings_say_so():
    assert allows(allow_everyone=True)
    others = rule(principal="User:bob", operation=WRITE)
    assert not allows(others, allow_everyone=True)
    assert allows(others, name="payments", allow_everyone=True)
    assert not allows(rule(name="*", principal="User:bob"), name="payments", allow_everyone=True)


@pytest.mark.parametrize(
    ("ruled", "coming"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),
        ("10.0.0.5", "::ffff:10.0.0.5"),
        ("2001:db8::1", "2001:0db8:0:0:0:0:0:1"),
    ],
)
def test_an_address_is_the_same_however_it_is_written(ruled, coming):
    assert allows(rule(host=ruled), host=coming)
    assert not allows(rule(host=ruled, permission=DENY), rule(), host=coming)
    assert not allows(rule(host="10.0.0.0/8"), host="10.0.0.5")


def test_every_principal_is_everybody_whatever_its_kind():
    assert allows(rule(principal="User:*"), who="Service:x")


def test_a_verdict_names_its_rule():
    authorizer = AclAuthorizer()
    deciding = rule(name="ord", pattern=PREFIXED)
    authorizer.replace([deciding])
    verdict = authorizer.verdict("User:ann", "10.0.0.5", READ, TOPIC, "orders")
    assert verdict == (True, deciding, "allowed by a rule")
    assert authorizer.verdict("User:x", "10.0.0.5", READ, TOPIC, "orders").rule is None


def test_a_rule_counts_from_its_change_on_and_leaves_the_others_alone():
    # CVE-2024-27309: removing one of several rules took the others with it.
    authorizer = AclAuthorizer()
    one, other = rule(), rule(host="10.0.0.5")
    authorizer.replace([one, other, one])
    assert authorizer.count == 2
    # Somebody may write `authorizer or everything_is_allowed`.
    assert AclAuthorizer()
    before = authorizer.version

    def may_read() -> bool:
        return authorizer.allows("User:ann", "10.0.0.5", READ, TOPIC, "orders", audited=False)

    assert may_read()
    authorizer.replace(removed=[one])
    assert may_read()
    authorizer.replace(removed=[other, other])
    assert not may_read()
    assert authorizer.version > before
    authorizer.replace(added=[rule(permission=DENY)], removed=[])
    assert list(authorizer) == [rule(permission=DENY)]


def test_decisions_about_what_was_named_are_told():
    told: list[Any] = []
    authorizer = AclAuthorizer(audit=lambda *decision: told.append(decision))
    authorizer.allows("User:ann", "10.0.0.5", READ, TOPIC, "orders", audited=False)
    assert told == []
    authorizer.allows("User:ann", "10.0.0.5", READ, TOPIC, "orders", audited=True)
    ((principal, host, operation, resource, name, verdict),) = told
    assert (principal, host, operation, resource, name) == (
        ("User:ann", "10.0.0.5", READ, TOPIC, "orders")
    )
    assert not verdict.is_allowed


# --- any resource of a type -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], False),
        ([rule(operation=WRITE)], True),
        ([rule(operation=READ)], False),
        ([rule(operation=ALL)], True),
        ([rule(operation=WRITE), rule(operation=WRITE, permission=DENY)], False),
        ([rule(operation=WRITE), rule(operation=READ, permission=DENY)], True),
        ([rule(operation=WRITE), rule(name="or", pattern=PREFIXED, operation=ALL, permission=DENY)], False),  # noqa: E501
        ([rule(operation=WRITE), rule(name="pa", pattern=PREFIXED, operation=ALL, permission=DENY)], True),  # noqa: E501
        ([rule(name="or", pattern=PREFIXED, operation=WRITE), rule(operation=WRITE, permission=DENY)], True),  # noqa: E501
        ([rule(name="*", operation=WRITE), rule(name="o", pattern=PREFIXED, operation=ALL, permission=DENY)], True),  # noqa: E501
        ([rule(name="*", operation=WRITE), rule(name="*", operation=WRITE, permission=DENY)], False),  # noqa: E501
        ([rule(operation=WRITE), rule(name="*", operation=ALL, permission=DENY)], False),
        ([rule(operation=WRITE, host="10.0.0.6")], False),
        ([rule(operation=WRITE, principal="User:*")], True),
        ([rule(operation=WRITE, resource=GROUP)], False),
    ],
)  # fmt: skip
def test_whether_any_topic_may_be_written(rules, expected):
    authorizer = AclAuthorizer()
    authorizer.replace(rules)
    assert authorizer.allows_some("User:ann", "10.0.0.5", WRITE, TOPIC) is expected


def test_any_topic_may_be_written_by_a_super_user_and_where_everybody_may():
    root = AclAuthorizer(["User:ann"])
    root.replace([rule(name="*", operation=ALL, permission=DENY)])
    assert root.allows_some("User:ann", "10.0.0.5", WRITE, TOPIC)
    everybody = AclAuthorizer(allow_everyone=True)
    assert everybody.allows_some("User:ann", "10.0.0.5", WRITE, TOPIC)
    everybody.replace([rule(name="*", principal="User:bob")])
    assert not everybody.allows_some("User:ann", "10.0.0.5", WRITE, TOPIC)


# --- against a plain loop -----------------------------------------------------------------------

NAMES = ["a", "ab", "abc", "b", "*", "*a"]
PRINCIPALS = ["User:ann", "User:bob", "User:*"]
HOSTS = ["*", "10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2"]
acls = st.builds(
    Acl,
    st.sampled_from([2, 3]),
    st.sampled_from(NAMES),
    st.sampled_from(PRINCIPALS),
    st.sampled_from([2, 3, 4, 7, 8, 10, 11]),
    st.sampled_from([ALLOW, DENY]),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(HOSTS),
)
questions = st.tuples(
    st.sampled_from(["User:ann", "User:bob"]),
    st.sampled_from(["10.0.0.1", "10.0.0.2"]),
    st.sampled_from([Operation(code) for code in (3, 4, 8, 10)]),
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from(NAMES),
)


def by_a_plain_loop(rules: set[Acl], everyone: bool, who, host, operation, resource, name) -> bool:
    covering = [
        acl
        for acl in rules
        if acl.resource == resource
        and (
            (acl.pattern == LITERAL and acl.name in (name, "*"))
            or (acl.pattern == PREFIXED and name.startswith(acl.name))
        )
    ]
    mine = [
        acl
        for acl in covering
        if acl.principal in (who, "User:*") and acl.host.removeprefix("::ffff:") in (host, "*")
    ]
    if any(acl.permission == DENY and acl.operation in (2, operation) for acl in mine):
        return False
    enough = {2, operation} | {8: {3, 4, 6, 7}, 10: {11}}.get(operation, set())
    if any(acl.permission == ALLOW and acl.operation in enough for acl in mine):
        return True
    return everyone and not covering


@given(st.sets(acls, max_size=12), st.sets(acls, max_size=4), questions, st.booleans())
def test_the_index_decides_as_a_plain_loop_does(rules, removed, question, everyone):
    authorizer = AclAuthorizer(allow_everyone=everyone)
    authorizer.replace(rules)
    authorizer.allows(*question, audited=False)
    authorizer.replace(removed=removed)
    expected = by_a_plain_loop(rules - removed, everyone, *question)
    assert authorizer.allows(*question, audited=False) is expected
    assert set(authorizer) == rules - removed


# --- filters and bad rules ----------------------------------------------------------------------

STORED = [
    rule(),
    rule(name="ord", pattern=PREFIXED),
    rule(name="*"),
    rule(name="orders", pattern=PREFIXED),
    rule(name="payments", principal="User:bob"),
]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (AclFilter(), [0, 1, 2, 3, 4]),
        (AclFilter(name="orders"), [0, 3]),
        (AclFilter(name="orders", pattern=LITERAL), [0]),
        (AclFilter(name="orders", pattern=PREFIXED), [3]),
        (AclFilter(pattern=PREFIXED), [1, 3]),
        (AclFilter(name="orders", pattern=PatternType.MATCH), [0, 1, 2, 3]),
        (AclFilter(name="ord", pattern=PatternType.MATCH), [1, 2]),
        (AclFilter(pattern=PatternType.MATCH), [0, 1, 2, 3, 4]),
        (AclFilter(principal="User:bob"), [4]),
        (AclFilter(host="10.0.0.5"), []),
        (AclFilter(operation=WRITE), []),
        (AclFilter(permission=ALLOW, resource=TOPIC), [0, 1, 2, 3, 4]),
    ],
)
def test_a_filter_finds(asked, found):
    assert [number for number, acl in enumerate(STORED) if asked.matches(acl)] == found


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (rule(resource=1), "resource type 1"),
        (rule(resource=8), "resource type 8"),
        (rule(pattern=PatternType.MATCH), "pattern type 2"),
        (rule(operation=1), "operation 1"),
        (rule(permission=1), "permission type 1"),
        (rule(name=""), "no name"),
        (rule(resource=4), "kafka-cluster"),
        (rule(principal="ann"), "'ann' is not of the form Type:name"),
        (rule(principal=":ann"), "Type:name"),
        (rule(host=""), "host is empty"),
    ],
)
def test_there_is_no_such_rule(bad, why):
    assert why in acl_problem(bad)


def test_good_rules_and_filters_have_no_problem():
    assert acl_problem(rule()) == acl_problem(rule(resource=4, name="kafka-cluster")) == ""
    assert filter_problem(AclFilter()) == ""
    each: list[dict[str, Any]]
    each = [{"resource": 9}, {"pattern": 0}, {"operation": 15}, {"permission": 4}]
    for bad in each:
        assert "is not known" in filter_problem(AclFilter(**bad))


def test_a_rule_reads_as_a_sentence():
    assert rule().text == "ALLOW User:ann to READ TOPIC orders from *"
    denied = rule(name="o", pattern=PREFIXED, permission=DENY, operation=ALL, host="10.0.0.5")
    assert denied.text == "DENY User:ann to ALL TOPIC prefix o from 10.0.0.5"


def test_decisions_that_are_kept_have_a_limit(monkeypatch):
    monkeypatch.setattr("shoal.access.acl_authorizer._KEPT_MAX", 10)
    authorizer = AclAuthorizer()
    authorizer.replace([rule(name="t", pattern=PREFIXED)])
    for number in range(100):
        assert authorizer.allows("User:ann", "::1", READ, TOPIC, f"t{number}", audited=False)
    assert len(authorizer._kept) <= 10
