"""Every API as users with different rights, against Apache Kafka with its StandardAuthorizer.

Both brokers get the same rules; each user asks every subject's good request in its newest version.
What is compared are whole answers: codes, which entries are there, authorized operations, effects.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shoal.access.resources import Operation, ResourceType
from shoal.access.rules import Acl, PatternType, Permission
from shoal.broker.config import (
    AuthorizationSettings,
    BrokerConfig,
    BrokerLimits,
    GroupSettings,
    Listener,
)
from shoal.testing.broker import Broker
from shoal.wire.apis.create_acls import CreateAclsRequest
from shoal.wire.apis.registry import API
from shoal.wire.apis.sasl_authenticate import SaslAuthenticateRequest
from shoal.wire.apis.sasl_handshake import SaslHandshakeRequest
from tests.differential.catalogue import LIVELY, RESTED, SEEN, SUBJECTS, Subject, prepare
from tests.differential.findings import Report
from tests.differential.place import Place
from tests.differential.runner import MECHANISMS, chosen, run, served
from tests.differential.steps import Ask, Case, Talk
from tests.peers.kafka import ApacheKafka

ALL = 2
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
CLUSTER, TRANSACTIONAL_ID = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
SUPER_USERS = ("User:root", "User:ANONYMOUS")
_STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


# They would change the defaults of every topic for all users that follow.
_FOR_ALL_TOPICS = (" of one broker",)


def _everything(who: str, host: str = "*") -> list[Acl]:
    return [
        Acl(TOPIC, "*", who, ALL, host=host),
        Acl(GROUP, "*", who, ALL, host=host),
        Acl(TRANSACTIONAL_ID, "*", who, ALL, host=host),
        Acl(CLUSTER, "kafka-cluster", who, ALL, host=host),
    ]


RULES: dict[str, list[Acl]] = {
    "root": [],
    "nobody": [],
    "all": _everything("User:all"),
    "here": _everything("User:here", "127.0.0.1"),
    "elsewhere": _everything("User:elsewhere", "10.9.8.7"),
    "looker": [
        Acl(TOPIC, "*", "User:looker", Operation.DESCRIBE),
        Acl(TOPIC, "*", "User:looker", Operation.DESCRIBE_CONFIGS),
        Acl(GROUP, "*", "User:looker", Operation.DESCRIBE),
        Acl(CLUSTER, "kafka-cluster", "User:looker", Operation.DESCRIBE),
    ],
    "consumer": [
        Acl(TOPIC, SEEN, "User:consumer", Operation.READ),
        Acl(GROUP, LIVELY, "User:consumer", Operation.READ),
    ],
    "producer": [
        Acl(TOPIC, "t", "User:producer", Operation.WRITE, pattern=PatternType.PREFIXED),
        Acl(TOPIC, "t", "User:producer", Operation.CREATE, pattern=PatternType.PREFIXED),
    ],
    "changer": [
        Acl(TOPIC, "*", "User:changer", Operation.ALTER),
        Acl(TOPIC, "*", "User:changer", Operation.ALTER_CONFIGS),
        Acl(TOPIC, "*", "User:changer", Operation.DELETE),
        Acl(GROUP, "*", "User:changer", Operation.DELETE),
        Acl(CLUSTER, "kafka-cluster", "User:changer", Operation.CREATE),
    ],
    "outcast": [
        *_everything("User:outcast"),
        Acl(TOPIC, SEEN[:2], "User:outcast", ALL, Permission.DENY, PatternType.PREFIXED),
        Acl(GROUP, RESTED, "User:outcast", Operation.READ, Permission.DENY),
        Acl(CLUSTER, "kafka-cluster", "User:outcast", Operation.ALTER, Permission.DENY),
    ],
}
USERS = dict.fromkeys(RULES, "correct horse")


@contextmanager
def both() -> Iterator[tuple[Place, Place]]:
    """Apache Kafka and our broker, with the same users, rules, topics, records and groups."""
    config = BrokerConfig(
        groups=GroupSettings(initial_rebalance_delay_ms=0, max_size=1_000_000),
        limits=BrokerLimits(failed_authentication_delay_seconds=0.0),
        authorization=AuthorizationSettings(SUPER_USERS),
    )
    settings = {"authorizer.class.name": _STANDARD, "super.users": ";".join(SUPER_USERS)}
    listeners = (Listener(port=0), Listener(port=0, sasl=MECHANISMS))
    with (
        ApacheKafka(users=USERS, settings=settings) as kafka,
        Broker(config=config, listeners=listeners, users=USERS) as shoal,
    ):
        theirs = Place("Apache Kafka", kafka.port, kafka.guarded_port)
        ours = Place("Shoal", shoal.port, shoal.live.listeners[1].port)
        try:
            for place in (theirs, ours):
                prepare(place)
                _create(place, [acl for acls in RULES.values() for acl in acls])
            yield theirs, ours
        finally:
            theirs.close()
            ours.close()


def _create(place: Place, acls: list[Acl]) -> None:
    creations = [
        CreateAclsRequest.AclCreation(
            resource_type=acl.resource,
            resource_name=acl.name,
            resource_pattern_type=acl.pattern,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        for acl in acls
    ]
    answer = place.ask(CreateAclsRequest(creations=creations))
    assert not any(result.error_code for result in answer.results), answer


def cases(versions: dict[int, tuple[int, int]]) -> Iterator[Case]:
    """Every subject in its newest version, asked by every user."""
    for user in RULES:
        for subject in SUBJECTS:
            key = subject.build(Place("names"), 99).API_KEY
            assert key is not None
            if subject.name in _FOR_ALL_TOPICS:
                continue
            if key in versions and versions[key][1] >= subject.since:
                yield _case(user, subject, key, versions[key][1])


def _case(user: str, subject: Subject, key: int, version: int) -> Case:
    on = f"sasl {user}"

    def talk(place: Place) -> Talk:
        yield Ask(SaslHandshakeRequest(mechanism="PLAIN"), 1, on)
        token = f"\0{user}\0{USERS[user]}".encode()
        yield Ask(SaslAuthenticateRequest(auth_bytes=token), 2, on)
        request = subject.build(place, version)
        yield Ask(request, version, on)
        # Whether something was done is asked by somebody who may see everything.
        for question, at in subject.after(place, request, version):
            yield Ask(question, at, settles=subject.settles)

    return Case(f"{API[key].name}{subject.name} v{version} by {user}", API[key].name, version, talk)


def compared(*, share: int = 1) -> Report:
    """Start both brokers, run one of ``share`` cases, and say what was seen."""
    report = Report()
    with both() as places:
        report.versions = served(places)
        run(places, chosen(cases(report.versions), seed=1, share=share), report)
    return report
