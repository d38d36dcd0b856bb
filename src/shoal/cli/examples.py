"""The examples below each command's help: what people most often want from it.

Rule: every command has one, and each is a line that can be typed as it stands (a test runs their
arguments through the parser). At most 76 characters, so that it fits a terminal of 80 columns.
"""

from __future__ import annotations

from typing import Final

EXAMPLES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "": (
        ("shoal demo", "a broker, a group that rebalances, a picture of it"),
        ("shoal why billing", "what is wrong with a group, and what to do"),
    ),
    "demo": (
        ("shoal demo --fast", "the same story in about ten seconds, without Spark"),
        ("shoal demo -o /tmp/demo", "with the picture in a directory of your choice"),
    ),
    "serve": (
        ("shoal serve", "a broker on localhost:9092 with its data in ./shoal-data"),
        ("shoal serve --listen 127.0.0.1:0 --data-dir /tmp/data", "on a free port"),
    ),
    "cluster": (
        ("shoal cluster", "the brokers, which is the controller, what they support"),
        ("shoal cluster --apis", "and every API with its versions"),
    ),
    "topic list": (("shoal topic list --internal", "with __consumer_offsets"),),
    "topic create": (
        ("shoal topic create orders -p 12", "twelve partitions: up to twelve readers"),
        ("shoal topic create state -p 3 -c cleanup.policy=compact", "the last of each key"),
    ),
    "topic describe": (("shoal topic describe orders", "leaders, offsets and settings"),),
    "topic alter": (
        ("shoal topic alter orders -p 24", "more partitions (never fewer)"),
        ("shoal topic alter orders -c retention.ms=86400000", "keep one day"),
    ),
    "topic delete": (("shoal topic delete orders", "asks first; --yes does not"),),
    "produce": (
        ("echo herring | shoal produce orders", "one record"),
        ("shoal produce orders -k : < keyed.txt", "lines such as eu-1:herring"),
        ("shoal consume old --json | shoal produce new --json", "copy a topic exactly"),
    ),
    "consume": (
        ("shoal consume orders", "everything that is there now, then stop"),
        ("shoal consume orders --from -10 --follow", "the last ten, then wait for more"),
        ("shoal consume orders --from 2h --until 1h --json", "one hour of records"),
        ("shoal consume orders -g billing --until-end", "what a group has not read yet"),
    ),
    "group list": (
        ("shoal group list", "every group with its members and lag"),
        ("shoal group list --state empty", "the groups that nobody is in"),
    ),
    "group describe": (("shoal group describe billing", "who reads what"),),
    "group lag": (("shoal group lag billing", "how far behind, per partition"),),
    "group reset": (
        ("shoal group reset billing --to 2h", "back to where it was two hours ago"),
        ("shoal group reset billing --shift -100", "a hundred records back everywhere"),
        ("shoal group reset billing -t orders -p 3 --to 42", "one partition"),
        ("shoal group reset billing --from-file saved.csv", "as `group export` saved it"),
    ),
    "group export": (
        ("shoal group export billing > saved.csv", "topic,partition,offset: a backup"),
    ),
    "group delete": (("shoal group delete billing", "asks first; --yes does not"),),
    "group watch": (("shoal group watch billing", "until Ctrl-C"),),
    "transaction list": (
        ("shoal transaction list --longer-than 60", "open for more than a minute"),
    ),
    "transaction describe": (("shoal transaction describe payments-1", "its partitions"),),
    "transaction abort": (("shoal transaction abort payments-1", "asks first"),),
    "transaction find-hanging": (
        ("shoal transaction find-hanging orders", "what keeps readers waiting"),
    ),
    "fleet report": (
        ("shoal fleet report", "all groups, worst first, and their latest rebalances"),
        ("shoal fleet report -g 'billing-*' --since 2h --draw fleet.svg", "as a picture"),
    ),
    "fleet what-if": (
        ("shoal fleet what-if", "what other protocols would have cost each group"),
        ("shoal fleet what-if history -g billing --out future", "of a recording, as files"),
    ),
    "ui": (
        ("shoal ui --demo", "the dashboard, with a broker and groups of its own"),
        ("shoal ui -b kafka:9092", "of a cluster, read-only"),
    ),
    "telemetry list": (("shoal telemetry list", "what clients are asked for"),),
    "telemetry set": (
        ("shoal telemetry set lag --metrics org.apache.kafka.consumer.", "ask all clients"),
    ),
    "telemetry remove": (("shoal telemetry remove lag", "stop asking"),),
    "config check": (
        ("shoal config check client.properties --for producer", "what is taken, and as what"),
    ),
    "fleet record": (("shoal fleet record history", "until Ctrl-C; goes on if it exists"),),
    "exporter": (("shoal exporter --listen 127.0.0.1:9308", "for Prometheus to scrape"),),
    "plan": (
        ("shoal plan --example one-leaves", "a made-up group"),
        ("shoal plan --group billing --join new-1", "a live one, if a member joined"),
        ("shoal plan --group billing --partitions orders=24", "if a topic grew"),
    ),
    "why": (("shoal why billing", "look for five seconds, then say what is wrong"),),
    "lab": (("shoal lab --list", "which scenarios and schemes there are"),),
    "lab compare": (
        ("shoal lab compare member-crashes", "what every scheme makes of it"),
        ("shoal lab compare member-joins -s eager -s cooperative -o two.svg", "two, drawn"),
    ),
    "lab run": (("shoal lab run split-brain -s eager --messages", "with every message"),),
    "lab explain": (("shoal lab explain split-brain", "what happened, in words"),),
    "lab draw": (("shoal lab draw rolling-restart -o restart.svg", "as a timeline"),),
    "log dump": (
        ("shoal log dump data/orders-0", "its batches"),
        ("shoal log dump data/orders-0 --records --from 40 --to 50", "ten records"),
        ("shoal log dump data/__consumer_offsets-0 --offsets", "who committed what"),
    ),
    "log verify": (("shoal log verify data", "every file; changes nothing"),),
    "log repair": (("shoal log repair data", "prints its plan, then asks"),),
    "user set": (("shoal user set alice --data-dir data", "asks for the password"),),
    "user list": (("shoal user list --data-dir data", "names and mechanisms"),),
    "user remove": (("shoal user remove alice --data-dir data", "at once"),),
    "acl add": (
        ("shoal acl add --allow User:alice --consumer --topic orders --group billing", "read"),
        ("shoal acl add --allow User:bob --producer --topic orders", "write"),
    ),
    "acl list": (("shoal acl list --topic orders", "the rules for one topic"),),
    "acl remove": (("shoal acl remove --topic orders", "shows them, then asks"),),
    "acl test": (("shoal acl test User:alice read topic orders", "yes or no, and why"),),
    "acl export": (("shoal acl export > rules.jsonl", "a backup"),),
    "acl import": (("shoal acl import rules.jsonl", "add what is missing"),),
    "quota list": (("shoal quota list", "all of them"),),
    "quota set": (("shoal quota set --user alice --fetch-bytes 1000000", "1 MB a second"),),
    "quota remove": (("shoal quota remove --user alice", "defaults still apply"),),
    "version": (("shoal version", "for a bug report"),),
}
