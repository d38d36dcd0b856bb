"""What users install: built, checked, installed where nothing else is, and tried."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata as installed
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from tests.packaging import distribution
from tests.packaging.distribution import EXTENSIONS, KERNELS, ROOT, Distribution
from tests.peers import PeerMissingError, need
from tests.peers.cache import program

pytestmark = pytest.mark.slow

needs_compiler = pytest.mark.skipif(
    shutil.which(os.environ.get("CC", "cc")) is None, reason="no C compiler"
)

TRIAL = """
import sys
import shoal
from shoal import Consumer, Producer
from shoal.records import extension, kernel
from shoal.testing import Broker

assert shoal.__file__.startswith(sys.prefix), shoal.__file__
with Broker(topics=["orders"]) as broker:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("orders", b"first").result(30)
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="trial",
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.subscribe(["orders"])
        record = next(iter(consumer))
print(record.value.decode(), record.offset, kernel.NAME, extension.chosen())
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    """As on a machine with a compiler, if this is one."""
    return distribution.build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def built_without_compiler(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    return distribution.build(tmp_path_factory.mktemp("dist"), environment={"CC": "false"})


@needs_compiler
def test_a_wheel_with_c_is_for_this_platform_and_every_cpython(built: Distribution) -> None:
    (tag,) = parse_wheel_filename(built.wheel.name)[3]
    assert (tag.interpreter, tag.abi) == ("cp311", "abi3")
    assert tag.platform != "any"
    assert distribution.files_of(built.wheel) >= KERNELS | EXTENSIONS
    assert distribution.wheel_facts(built.wheel)["Root-Is-Purelib"] == "false"
    distribution.check(built)


def test_a_wheel_without_c_is_for_every_machine(
    built_without_compiler: Distribution,
) -> None:
    wheel = built_without_compiler.wheel
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [name for name in distribution.files_of(wheel) if name.endswith(".so")]
    assert distribution.wheel_facts(wheel)["Root-Is-Purelib"] == "true"
    distribution.check(built_without_compiler)


def test_a_wheel_whose_name_lies_is_refused(
    built_without_compiler: Distribution, tmp_path: Path
) -> None:
    sdist, wheel = built_without_compiler
    renamed = tmp_path / wheel.name.replace("any", "linux_x86_64")
    shutil.copy(wheel, renamed)
    with pytest.raises(AssertionError, match="says"):
        distribution.check(Distribution(sdist, renamed))


def test_an_index_would_take_what_is_built(built: Distribution) -> None:
    facts = distribution.metadata(built)
    assert facts.description_content_type == "text/markdown"
    assert facts.description == (ROOT / "README.md").read_text(encoding="utf-8")
    assert facts.license_expression == "Apache-2.0 AND MIT"
    assert str(facts.requires_python) == ">=3.11"


def test_both_hold_every_module_and_file_of_the_package(built: Distribution) -> None:
    git = need(lambda: program("git", "to know every file of the repository"))
    tracked = subprocess.run(
        [git, "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = {name.removeprefix("src/") for name in tracked.stdout.splitlines()}
    in_wheel = {name for name in distribution.files_of(built.wheel) if ".dist-info/" not in name}
    assert in_wheel - (KERNELS | EXTENSIONS) == files


def test_the_wheel_brings_its_licence_and_its_bill_of_materials(built: Distribution) -> None:
    with ZipFile(built.wheel) as archive:
        (licence,) = [one for one in archive.namelist() if one.endswith("licenses/LICENSE")]
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
        (path,) = [one for one in archive.namelist() if "/sboms/" in one]
        bill = json.loads(archive.read(path))
    facts = distribution.metadata(built)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    own = bill["metadata"]["component"]
    assert (own["name"], own["version"]) == (facts.name, str(facts.version))
    needed = {canonicalize_name(one.name) for one in facts.requires_dist or ()}
    assert {one["name"] for one in bill["components"]} == needed
    required = {one["name"] for one in bill["components"] if one["scope"] == "required"}
    plain = {canonicalize_name(one.name) for one in facts.requires_dist or () if one.marker is None}
    assert required == plain
    references = {one["bom-ref"] for one in bill["components"]} | {own["bom-ref"]}
    for entry in bill["dependencies"]:
        assert {entry["ref"], *entry.get("dependsOn", ())} <= references


# --- installed where nothing else is ------------------------------------------------------------


def pinned_dependencies(extra: str = "") -> str:
    """The lines of the lock for what the package needs with an extra, and for what that needs."""
    wanted, found = ["shoal"], set()
    while wanted:
        name = wanted.pop()
        for line in installed.requires(name) or ():
            needed = Requirement(line)
            chosen = extra if name == "shoal" else ""
            if needed.marker is None or needed.marker.evaluate({"extra": chosen}):
                key = canonicalize_name(needed.name)
                if key not in found:
                    found.add(key)
                    wanted.append(key)
    blocks = re.split(r"\n(?=\S)", (ROOT / "requirements.lock").read_text(encoding="utf-8"))
    return "\n".join(block for block in blocks if block.split("==")[0] in found)


def pip(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(python), "-m", "pip", "-q", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def empty_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A virtual environment with the pinned dependencies of the package and nothing else."""
    directory = tmp_path_factory.mktemp("empty")
    subprocess.run([sys.executable, "-m", "venv", str(directory / "venv")], check=True)
    python = directory / "venv" / "bin" / "python"
    lock = directory / "requirements.lock"
    lock.write_text(pinned_dependencies(), encoding="utf-8")

    def fetch() -> None:
        run = pip(python, "install", "--require-hashes", "-r", str(lock))
        if run.returncode:
            lines = run.stderr.strip().splitlines() or ["no output"]
            raise PeerMissingError(f"pinned packages could not be fetched: {lines[-1][:160]}")

    need(fetch)
    yield python
    shutil.rmtree(directory)


def environment_of_a_user() -> dict[str, str]:
    """Without what a developer may have set: the sources must not be found by accident."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def tried(python: Path, wheel: Path, directory: Path) -> str:
    run = pip(python, "install", "--no-index", "--force-reinstall", "--no-deps", str(wheel))
    assert run.returncode == 0, run.stderr
    # Nothing that is installed lacks anything: the declared dependencies are those that are needed.
    run = pip(python, "check")
    assert run.returncode == 0, run.stdout
    shown = subprocess.run(
        [str(python.with_name("shoal")), "--help"],
        cwd=directory,
        env=environment_of_a_user(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert shown.returncode == 0, shown.stderr
    assert "Usage: shoal" in shown.stdout
    trial = subprocess.run(
        [str(python), "-W", "error", "-c", TRIAL],
        cwd=directory,
        env=environment_of_a_user(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert trial.returncode == 0, trial.stderr
    assert trial.stderr == ""
    return trial.stdout.strip()


@needs_compiler
def test_the_wheel_works_where_nothing_else_is_installed(
    built: Distribution, empty_environment: Path, tmp_path: Path
) -> None:
    assert tried(empty_environment, built.wheel, tmp_path) == "first 0 c c"


def test_the_wheel_without_the_kernel_works_as_well(
    built_without_compiler: Distribution, empty_environment: Path, tmp_path: Path
) -> None:
    assert (
        tried(empty_environment, built_without_compiler.wheel, tmp_path) == "first 0 python python"
    )


# What each extra is for: a program that does it, with records that went through a broker.
_STORED = """
from shoal import Consumer, Producer
from shoal.testing import Broker

broker = Broker(topics=["orders"]).__enter__()
servers = broker.bootstrap_servers
producer = Producer(bootstrap_servers=servers)
"""
EXTRAS = {
    "arrow": f"""{_STORED}
producer.send("orders", b"first").result(30)
consumer = Consumer(bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest")
consumer.subscribe(["orders"])
while not (batch := consumer.poll_arrow(1.0)).num_rows:
    pass
assert batch.column("value").to_pylist() == [b"first"]
""",
    "spark": f"""{_STORED}
from shoal.spark import session

producer.send("orders", b"first").result(30)
spark = session()
read = spark.read.format("shoal").option("kafka.bootstrap.servers", servers)
rows = read.option("subscribe", "orders").load().collect()
assert [bytes(row.value) for row in rows] == [b"first"]
spark.stop()
""",
    "draw": "from shoal.drawing import Canvas; assert b'PNG' in Canvas(8, 8).to_png()[:8]",
    "oauth": """
import base64, json
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
import shoal.broker.oauth
from shoal.access.bearer_tokens import TokenRules, check_token
from shoal.access.json_web_keys import read_key_set

def text(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

key = ec.generate_private_key(ec.SECP256R1())
point = key.public_key().public_numbers()
x, y = (text(one.to_bytes(32, "big")) for one in (point.x, point.y))
jwk = {"kty": "EC", "crv": "P-256", "alg": "ES256", "kid": "1", "x": x, "y": y}
keys = read_key_set(json.dumps({"keys": [jwk]}).encode())
claims = {"sub": "ann", "iss": "https://idp", "aud": "kafka", "iat": 1_000, "exp": 2_000}
parts = ({"alg": "ES256", "kid": "1"}, claims)
signed = ".".join(text(json.dumps(one).encode()) for one in parts)
r, s = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(SHA256())))
token = f"{signed}.{text(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"
rules = TokenRules(issuer="https://idp", audience=("kafka",))
assert "ann" in str(check_token(token, keys, rules, 1_500_000))
""",
    "web": """
import re, subprocess, sys, urllib.request
command = [sys.executable, "-m", "shoal", "ui", "--demo", "--port", "0", "--no-browser"]
shown = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
try:
    for line in shown.stdout:
        if found := re.search(r"http://127[.]0[.]0[.]1:[0-9]+/", line):
            break
    page = urllib.request.urlopen(found[0], timeout=60).read()
    assert b"<html" in page.lower()
finally:
    shown.terminate()
    shown.communicate(timeout=60)
""",
    "otel": f"""{_STORED}
from shoal.client.opentelemetry import instrument

instrument(producer)
assert producer.send("orders", b"first").result(30).offset == 0
""",
    "prometheus": f"""{_STORED}
from prometheus_client import REGISTRY, generate_latest
from shoal.client.prometheus import ClientCollector

producer.send("orders", b"first").result(30)
ClientCollector(REGISTRY).add(producer, name="trial")
assert b'record_send_total{{client="trial"' in generate_latest()
""",
}


def test_every_extra_is_tried(built: Distribution) -> None:
    assert set(EXTRAS) == set(distribution.metadata(built).provides_extra or ())


@pytest.mark.peer
@pytest.mark.timeout(1200)  # pip fetches hundreds of megabytes for some
@pytest.mark.parametrize(
    "extra",
    [pytest.param(name, marks=[pytest.mark.long] if name == "spark" else []) for name in EXTRAS],
)
def test_the_wheel_works_with_each_extra(
    built_without_compiler: Distribution, extra: str, tmp_path: Path
) -> None:
    """As people do it: the file's name with the extra in brackets, versions by the lock."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    lock = tmp_path / "constraints.txt"
    pinned = pinned_dependencies(extra)
    # With their markers: the lock is for every Python.
    lines = [line.rstrip(" \\") for line in pinned.splitlines() if re.match(r"[\w.-]+==", line)]
    lock.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def fetch() -> None:
        wheel = f"{built_without_compiler.wheel}[{extra}]"
        run = pip(python, "install", "--constraint", str(lock), wheel)
        if run.returncode:
            assert "ResolutionImpossible" not in run.stderr, run.stderr
            lines = run.stderr.strip().splitlines() or ["no output"]
            raise PeerMissingError(f"packages of [{extra}] could not be fetched: {lines[-1][:160]}")

    need(fetch)
    assert pip(python, "check").returncode == 0
    tried_out = subprocess.run(
        [str(python), "-c", EXTRAS[extra]],
        cwd=tmp_path,
        env=environment_of_a_user(),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert tried_out.returncode == 0, tried_out.stderr
