"""franz-go's and kafka-python's own integration tests against our broker (``make test-all``)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from shoal.broker.config import Listener
from shoal.testing.broker import Broker
from tests.conformance.suites import (
    FAILED,
    PASSED,
    SKIPPED,
    Outcome,
    explained,
    from_go_events,
    from_junit,
    section,
    write_section,
)
from tests.conformance.table import TABLE_VARIABLE
from tests.peers import need
from tests.peers.suites import (
    FRANZ_GO,
    franz_go_tests,
    go_events,
    kafka_python_sources,
    python_codecs,
)

SCRIPTS = Path(__file__).parent / "scripts"
USER, PASSWORD = "ada", "horse"

REASON = "share groups are not supported yet"


def tell(title: str, text: str) -> None:
    if target := os.environ.get(TABLE_VARIABLE):
        write_section(Path(target).with_name("conformance-suites.md"), title, text)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_kafka_pythons_integration_tests_pass(tmp_path):
    sources, codecs = need(kafka_python_sources), need(python_codecs)
    report = tmp_path / "junit.xml"
    path = os.pathsep.join(map(str, (SCRIPTS, codecs)))
    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(sources)),
            *("-p", "kafka_python_broker", "-p", "no:cacheprovider", "-W", "ignore", "-q"),
            *("--timeout", "120", "--junitxml", str(report), "test/integration"),
        ],
        cwd=sources,
        # Our broker looks to it like this release.
        env={**os.environ, "PYTHONPATH": path, "KAFKA_VERSION": "4.3"},
        timeout=1500,
        check=False,
    )
    outcomes = from_junit(report)
    reasons = explained(outcomes, {})
    assert len(outcomes) - len(reasons) > 60
    tell(f"kafka-python {version('kafka-python')}: test/integration", section(outcomes, reasons))


SPEAKS = re.compile(
    r"newTestClient\(|testClientOpts\(|tmpTopic|getSeedBrokers\(|scramSeeds|adm\(\)"
)


def speaking(directory: Path) -> list[str]:
    """The tests that speak to a broker: their bodies name one of the ways to it."""
    found = []
    for file in directory.glob("*_test.go"):
        for body in file.read_text().split("\nfunc ")[1:]:
            if body.startswith("Test") and SPEAKS.search(body):
                found.append(body.partition("(")[0])
    return found


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_franz_gos_kgo_tests_pass(tmp_path):
    tests = need(lambda: franz_go_tests(SCRIPTS / "balancers_test.go"))
    directory = tests / "module" / "pkg" / "kgo"
    listeners = (Listener(port=0), Listener(port=0, sasl=("SCRAM-SHA-256", "SCRAM-SHA-512")))
    outcomes = []
    for selected, seconds in (("-test.skip=^TestTxnEtl$", 1500), ("-test.run=^TestTxnEtl$", 600)):
        with Broker(
            data_dir=tmp_path / str(seconds), listeners=listeners, users={USER: PASSWORD}
        ) as broker:
            guarded = broker.live.listeners[1]
            environment = {
                **os.environ,
                "KGO_SEEDS": broker.bootstrap_servers,
                "KGO_TEST_RF": "1",
                "KGO_TEST_RECORDS": os.environ.get("SHOAL_KGO_RECORDS", "50000"),
                "KGO_TEST_SCRAM": f"{USER}:{PASSWORD}",
                "KGO_TEST_SCRAM_SEEDS": f"{guarded.host}:{guarded.port}",
                "KGO_LOG_LEVEL": "none",
            }
            done = subprocess.run(
                go_events(tests / "kgo.test", selected, f"-test.timeout={seconds}s"),
                cwd=directory,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                timeout=seconds + 60,
                check=False,
            )
        outcomes += from_go_events(done.stdout.splitlines())
    reasons = explained(outcomes, {})
    passed = {each.name for each in outcomes if each.result == PASSED}
    for balancer in ("ETL/range", "ETL/cooperative-sticky", "ETL/cooperative-sticky/static"):
        assert f"TestGroup{balancer}" in passed
    for balancer in ("ETL/range/848", "ETL/sticky/848", "ETL/sticky/848/static", "Simple/848"):
        assert f"TestGroup{balancer}" in passed
    for balancer in ("range", "cooperative-sticky", "cooperative-sticky/static", "range/848"):
        assert f"TestTxnEtl/{balancer}" in passed
    for balancer in ("roundrobin", "sticky"):
        assert f"TestGroupETLOfOtherBalancers/{balancer}" in passed
    title = f"franz-go {FRANZ_GO[1]}: pkg/kgo"
    tell(title, section(outcomes, reasons, speaking(directory)))


GO_EVENTS = """
{"Action":"run","Test":"TestA"}
{"Action":"output","Test":"TestA","Output":"    a_test.go:3: FAILED TESTING -- NOT DELETING t\\n"}
{"Action":"output","Test":"TestA","Output":"    a_test.go:7: lost a record\\n"}
{"Action":"fail","Test":"TestA"}
{"Action":"run","Test":"TestB"}
{"Action":"output","Test":"TestB","Output":"    b_test.go:9: no KIP-848\\n"}
{"Action":"skip","Test":"TestB"}
{"Action":"run","Test":"TestC"}
{"Action":"pass","Test":"TestC"}
{"Action":"run","Test":"TestD"}
panic: out of time
"""


def test_events_of_go_tests_are_read_with_their_reasons():
    assert from_go_events(GO_EVENTS.splitlines()) == [
        Outcome("TestA", FAILED, "lost a record"),
        Outcome("TestB", SKIPPED, "no KIP-848"),
        Outcome("TestC", PASSED),
        Outcome("TestD", FAILED, "did not end"),
    ]


def test_a_failure_without_an_accepted_reason_is_an_error():
    outcomes = [Outcome("TestA", FAILED, "lost"), Outcome("TestTxn", FAILED), Outcome("B", PASSED)]
    with pytest.raises(AssertionError, match="TestA: lost"):
        explained(outcomes, {"^TestTxn": REASON})
    assert explained(outcomes[1:], {"^TestTxn": REASON}) == {"TestTxn": REASON}


def test_a_reason_that_is_not_needed_any_more_is_an_error():
    with pytest.raises(AssertionError, match="any more"):
        explained([Outcome("TestTxn", PASSED)], {"^TestTxn": REASON})


def test_a_section_is_replaced_and_the_others_stay(tmp_path):
    page = tmp_path / "page.md"
    write_section(page, "b", "old\n\nmore\n")
    write_section(page, "a", section([Outcome("TestC", PASSED)], {}))
    write_section(page, "b", "new\n")
    text = page.read_text()
    assert text.endswith(
        "## a\n\n1 passed, 0 failed, 0 skipped.\n\n| test | result | why |\n|---|---|---|\n"
        "| `TestC` | passed |  |\n\n## b\n\nnew\n"
    )
