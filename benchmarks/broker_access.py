"""What access control costs: produce and fetch with 1,000 rules, Metadata with 10,000, logins.

Two brokers run at once, one without rules and one with; the same requests go to one and the other
in turns, and each pair of turns gives a ratio of CPU per request. The peer of a row is the broker
without rules. Goal: at least 0.97x of its requests per second of CPU, by the mean of the pairs; the
interval that is printed holds that mean with 95 %. Of Metadata it is the CPU that 5,000 decisions
take, in a process of their own; of a login the broker's, from the connection to the last answer.

    python -m benchmarks broker_access
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.broker.raw_client import RawClient
from tests.broker.test_scram import prove
from tests.peers.identity_provider import AUDIENCE, ISSUER, key_set, shared_key

from benchmarks.broker_setting import (
    Target,
    create_topic,
    fetch_frame,
    pipelined,
    produce_frame,
    start,
    stop,
)
from benchmarks.measuring import Report, Row, json_argument
from shoal import Admin
from shoal.access.acl_authorizer import AclAuthorizer
from shoal.access.resources import Operation, ResourceType
from shoal.access.rules import Acl, PatternType
from shoal.broker.users import FILE_NAME, Users
from shoal.wire.apis.sasl_authenticate import SaslAuthenticateRequest
from shoal.wire.apis.sasl_handshake import SaslHandshakeRequest

PAIRS = 25
RULES = 1_000
NOBODY = "User:nobody"
CLIENT = "User:ANONYMOUS"
REQUESTS = 5_000
BATCH_BYTES = 16 << 10
LOGINS = 300


def rules(count: int, *, for_us: str) -> list[Acl]:
    """Rules of many users for many topics, and those of the client that is measured."""
    others = [
        Acl(
            ResourceType.TOPIC,
            f"team-{number % 97}-{number}",
            f"User:user-{number % 50}",
            Operation.READ,
            pattern=PatternType.PREFIXED if number % 3 == 0 else PatternType.LITERAL,
        )
        for number in range(count - 4)
    ]
    operations = (Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DESCRIBE)
    ours = [Acl(ResourceType.TOPIC, for_us, CLIENT, operation) for operation in operations]
    return others + ours


@contextmanager
def without_rules() -> Iterator[Target]:
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as directory:
        process, address, _ = start(directory, "--durability", "os")
        try:
            create_topic(address, "t")
            yield Target("without rules", address, process.pid)
        finally:
            stop(process)


@contextmanager
def with_rules() -> Iterator[Target]:
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as directory:
        flags = ("--durability", "os", "--authorize", "--super-user")
        process, address, _ = start(directory, *flags, CLIENT)
        create_topic(address, "t")
        with Admin(bootstrap_servers=f"{address[0]}:{address[1]}") as admin:
            admin.create_acls(*rules(RULES, for_us="t"))
        stop(process)
        # Now the client that is measured is nobody special: a rule lets it in.
        process, address, _ = start(directory, *flags, NOBODY)
        try:
            yield Target("with rules", address, process.pid)
        finally:
            stop(process)


def cpu_seconds(pid: int) -> float:
    """Of all threads, in nanoseconds' steps: the usual count goes in hundredths of a second."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in threads) / 1e9


def cpu_per_request(target: Target, frame: bytes, total: int) -> float:
    before = cpu_seconds(target.pid)
    pipelined(target.address, [frame], total)
    return (cpu_seconds(target.pid) - before) / total


def pairs(off: Target, on: Target, frame: bytes, total: int) -> tuple[float, float, list[float]]:
    """Microseconds of CPU per request without and with rules, and the ratio of each pair."""
    spent: dict[str, list[float]] = {off.name: [], on.name: []}
    for number in range(PAIRS + 1):
        order = (off, on) if number % 2 else (on, off)
        for target in order:
            found = cpu_per_request(target, frame, total) * 1e6
            if number:  # the first pair is for warming up
                spent[target.name].append(found)
    ratios = [a / b for a, b in zip(spent[off.name], spent[on.name], strict=True)]
    return statistics.mean(spent[off.name]), statistics.mean(spent[on.name]), ratios


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """The geometric mean of ratios, and between what it lies with 95 % (Student, 24 degrees)."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.mean(logs)
    half = 2.064 * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def decisions_ms(authorizer: AclAuthorizer, names: Sequence[str]) -> float:
    allows: Callable[..., bool] = authorizer.allows
    began = time.process_time()
    for name in names:
        allows(CLIENT, "127.0.0.1", Operation.DESCRIBE, ResourceType.TOPIC, name, audited=False)
    return (time.process_time() - began) * 1e3


def metadata() -> tuple[float, float]:
    """Milliseconds of CPU for 5,000 topics under 10,000 rules, cold and warm."""
    names = [f"team-{number % 97}-{number}" for number in range(5_000)]
    authorizer = AclAuthorizer((NOBODY,))
    authorizer.replace(rules(10_000, for_us="team-5-5"))
    cold = []
    extra = Acl(ResourceType.TOPIC, "another", CLIENT, Operation.READ)
    for number in range(7):
        # Every change of a rule makes the next question a cold one.
        authorizer.replace([extra] if number % 2 else (), () if number % 2 else [extra])
        cold.append(decisions_ms(authorizer, names))
    warm = [decisions_ms(authorizer, names) for _ in range(7)]
    return statistics.median(cold), statistics.median(warm)


def login_us(mechanism: str) -> float:
    """Microseconds of the broker's CPU for one login; of OAUTHBEARER always with one token."""
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as directory:
        (Path(directory) / "data").mkdir(mode=0o700)
        Users(Path(directory) / "data" / FILE_NAME).set_password("ann", "s3cret")
        key = shared_key()
        (Path(directory) / "keys.json").write_bytes(key_set(key))
        file = Path(directory) / "broker.toml"
        file.write_text(
            f"""[oauth]
            jwks = "{directory}/keys.json"
            issuer = "{ISSUER}"
            audience = ["{AUDIENCE}"]
            """
        )
        flags = ("--config", str(file), "--sasl", mechanism)
        process, (_, port), _ = start(f"{directory}/data", *flags)
        token = key.token()
        try:
            for _ in range(20):
                _log_in(port, mechanism, token)
            before = cpu_seconds(process.pid)
            for _ in range(LOGINS):
                _log_in(port, mechanism, token)
            return (cpu_seconds(process.pid) - before) / LOGINS * 1e6
        finally:
            stop(process)


def _log_in(port: int, mechanism: str, token: str) -> None:
    with RawClient(port) as client:
        client.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
        said = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
        if mechanism != "OAUTHBEARER":
            first = b"n,,n=ann,r=clientnonce"
            challenge = client.ask(SaslAuthenticateRequest(auth_bytes=first), 2)
            said, _ = prove(mechanism, "s3cret", first, bytes(challenge.auth_bytes))
        assert client.ask(SaslAuthenticateRequest(auth_bytes=said), 2).error_code == 0


def main(arguments: Sequence[str] = ()) -> None:
    report = Report("broker_access")
    cold, warm = metadata()
    what = "Metadata of 5,000 topics, 10,000 rules: decisions"
    report.add(Row(f"{what}, cold", "ms of CPU", cold, goal="<= 50", higher_is_better=False))
    report.add(Row(f"{what}, warm", "ms of CPU", warm, goal="<= 5", higher_is_better=False))
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"):
        known = ", a token that was checked before" if mechanism == "OAUTHBEARER" else ""
        report.add(
            Row(
                *(f"a login by {mechanism}{known}", "us of CPU", login_us(mechanism)),
                goal="<= 1,000",
                higher_is_better=False,
            )
        )
    with without_rules() as off, with_rules() as on:
        produce = produce_frame("t", 0, BATCH_BYTES, acks=1)
        for name, frame, total in (
            ("produce of 16 KiB", produce, REQUESTS),
            ("fetch of 64 KiB", fetch_frame("t", 0, 0, 64 << 10), REQUESTS),
        ):
            before, after, ratios = pairs(off, on, frame, total)
            mean, low, high = interval(ratios)
            what = f"{name}, {RULES:,} rules ({mean:.3f}x, {low:.3f} to {high:.3f})"
            report.add(
                Row(
                    what,
                    "us of CPU",
                    after,
                    before,
                    "without rules",
                    ">= 0.97x",
                    higher_is_better=False,
                )
            )
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main()
