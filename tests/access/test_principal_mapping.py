"""Rules from subjects of certificates to names, as Kafka's own examples have them."""

from __future__ import annotations

import pytest

from shoal.access.principal_mapping import mapped_name, read_mapping_rules

SUBJECT = "CN=Duke,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown"
KAFKAS = (
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
    r"RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
    r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
    "DEFAULT",
)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        (SUBJECT, "Duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("O=SME,CN=duke", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_fits_names_the_client(subject, name):
    assert mapped_name(subject, read_mapping_rules(KAFKAS)) == name


def test_a_pattern_has_to_fit_the_whole_subject():
    rules = read_mapping_rules(["RULE:CN=(\\w+)/$1/"])
    assert mapped_name("CN=admin", rules) == "admin"
    assert mapped_name("CN=admin,O=Evil", rules) is None
    assert mapped_name("O=Evil,CN=admin", rules) is None


def test_a_subject_that_no_rule_fits_has_no_name():
    assert mapped_name(SUBJECT, read_mapping_rules(["RULE:^UID=(.*)$/$1/"])) is None
    assert mapped_name(SUBJECT, read_mapping_rules(["RULE:.*//"])) is None


@pytest.mark.parametrize(
    ("replacement", "name"),
    [
        ("svc-$1", "svc-Duke"),
        ("$1$1", "DukeDuke"),
        ("$2", "$2"),
        ("a\\/b", "a/b"),
        ("\\$1", "$1"),
        ("$", "$"),
    ],
)
def test_a_replacement_is_text_and_groups(replacement, name):
    rules = read_mapping_rules([f"RULE:CN=([^,]*).*/{replacement}/"])
    assert mapped_name(SUBJECT, rules) == name


@pytest.mark.parametrize(
    "rule",
    ["", "default", "DEFAULT,", "RULE:", "RULE:a", "RULE:a/b", "RULE:a/b/X", "RULE:a/b/LU"],
)
def test_what_is_no_rule_is_refused(rule):
    with pytest.raises(ValueError, match="neither DEFAULT nor RULE"):
        read_mapping_rules(["DEFAULT", rule])


def test_a_pattern_that_cannot_be_read_is_refused():
    with pytest.raises(ValueError, match="cannot be read"):
        read_mapping_rules(["RULE:(/b/"])
