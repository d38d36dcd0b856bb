"""The differences that stay, each with its reason. ``docs/differences.md`` is made from this table.

Rule: a row is as narrow as it can be said, and a row that a whole run never needed fails that
run. What is not in the table fails the comparison.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from tests.differential.findings import Finding


@dataclass(frozen=True)
class Reason:
    """Why differences stay: a heading of the page and what stands below it."""

    heading: str
    text: str


@dataclass(frozen=True)
class Accepted:
    """One difference that stays.

    Args:
        api: Kafka's name of the API whose answer differs; a pattern.
        where: the field that differs, as in ``topics[].error_code``; a pattern.
        kafka: what Apache Kafka does, for the page.
        shoal: what our broker does.
        reason: why it stays.
        case: of which cases only; a pattern.
        always: whether every whole run sees it; the order of a hash map may be ours by chance.
    """

    api: str
    where: str
    kafka: str
    shoal: str
    reason: Reason
    case: str = ""
    always: bool = True

    @property
    def api_text(self) -> str:
        """The API for the page."""
        return ", ".join(_alternatives(self.api))

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(text) for text in (self.api, self.where, self.case))

    def covers(self, finding: Finding) -> bool:
        api, where, case = self._patterns
        path = finding.difference.path.removeprefix("message.")
        return bool(
            api.fullmatch(finding.api)
            and (where.fullmatch(path) or where.fullmatch(_shape(path)))
            and case.search(finding.case.name)
        )


def _alternatives(pattern: str) -> list[str]:
    """``(Alter|Describe)Acls`` as the names it stands for."""
    match = re.fullmatch(r"(.*)\(([^()]*)\)(.*)", pattern)
    if match is None:
        return [pattern]
    return [match[1] + middle + match[3] for middle in match[2].split("|")]


def _shape(path: str) -> str:
    return re.sub(r"\[[^\]]*\]", "[]", path)


_ORDER = Reason(
    "Order that nobody promises",
    "Apache Kafka answers in the order of a hash map. Shoal answers in the order of the question, "
    "or by name.",
)
_MISSING = Reason(
    "Not supported yet",
    "What [the limits](limits.md) list as missing is not advertised, so that clients do not try; "
    "one that tries anyway gets an error that is not retriable.",
)
_ONE_NODE = Reason(
    "One node",
    "Shoal's broker is a single process: no quorum of controllers, no replicas that follow.",
)
_SETTINGS = Reason(
    "Settings",
    "A setting shown is a setting in force. Settings that mean nothing to Shoal's broker are kept "
    "and shown when somebody sets them, and not before; limits have other defaults "
    "([Settings](reference/settings.md)).",
)
_SILENT = Reason(
    "Requests that Apache Kafka never answers",
    "It fails inside and the client waits until its timeout. Shoal answers.",
)
_SAFE = Reason(
    "Before a client has proved who it is",
    "Shoal says less to strangers.",
)
_ONCE = Reason(
    "What a few bytes may ask for",
    "A small request must not make a large answer or be remembered for long. What it names several "
    "times is answered once, and a fetch session holds only partitions that exist.",
)
_SOUND = Reason(
    "Answers that would help nobody",
    "Here Apache Kafka's answer is an accident, and no client depends on it.",
)


def _order(api: str, where: str) -> Accepted:
    pattern = re.escape(where + "(order)")
    return Accepted(api, pattern, f"`{where}` in any order", "in order", _ORDER, always=False)


ACCEPTED: tuple[Accepted, ...] = (
    _order("ApiVersions", "supported_features"),
    _order("ApiVersions", "finalized_features"),
    _order("DescribeAcls", "resources"),
    _order("DescribeAcls", "resources[].acls"),
    _order("DeleteAcls", "filter_results[].matching_acls"),
    _order("ListGroups", "groups"),
    _order("DescribeConfigs", "results[].configs"),
    _order("ConsumerGroupDescribe", "groups"),
    _order("DescribeGroups", "groups"),
    _order("DescribeGroups", "groups[].members"),
    _order("JoinGroup", "members"),
    _order("DescribeLogDirs", "results[].topics"),
    _order("DescribeLogDirs", "results[].topics[].partitions"),
    _order("DescribeUserScramCredentials", "results"),
    _order("DescribeUserScramCredentials", "results[].credential_infos"),
    _order("ElectLeaders", "replica_election_results"),
    _order("ListConfigResources", "config_resources"),
    _order("ListOffsets", "topics[].partitions"),
    _order("Metadata", "topics"),
    _order("OffsetCommit", "topics[].partitions"),
    _order("OffsetFetch", "topics"),
    _order("OffsetFetch", "topics[].partitions"),
    _order("SaslHandshake", "mechanisms"),
    # --- what a few bytes may ask for
    Accepted(
        "(DescribeGroups|ConsumerGroupDescribe)",
        r"groups(\[.*)?",
        "a group that is named twice is described twice",
        "once",
        _ONCE,
        case="twice",
    ),
    Accepted(
        "(DescribeConfigs|DescribeProducers|DescribeTransactions|Metadata|OffsetFetch)",
        r"(results|topics|groups|transaction_states)(\[.*)?",
        "what is named twice is answered twice",
        "once",
        _ONCE,
        case="twice",
        always=False,
    ),
    Accepted(
        "Fetch",
        "session_id",
        "a session, also for no partitions and for topics that do not exist",
        "none for those alone",
        _ONCE,
        case=r"with a session v\d+: topics",
    ),
    Accepted(
        "(Alter|Describe)UserScramCredentials",
        r"results\[.*",
        "users with names of any length",
        "UNACCEPTABLE_CREDENTIAL above 256 bytes",
        _ONCE,
        case=r"name = 'x+\.\.\.\(300 characters\)",
    ),
    Accepted(
        "(Alter|Describe)UserScramCredentials",
        r"error_code|error_message|results(\[.*)?",
        "served to whoever connects",
        "refused (31) to clients without a name where any listener asks for a login",
        _SAFE,
        case="a stranger makes a user",
    ),
    # --- not supported yet
    Accepted(
        "ApiVersions",
        r"api_keys\[(38|39|4[01]|64|7[6789]|8\d|9\d)\]",
        "also share and streams groups, delegation tokens, and what brokers ask each other",
        "not listed",
        _MISSING,
    ),
    Accepted(
        "ApiVersions",
        r"(supported|finalized)_features\[\]",
        "levels of newer groups and the quorum",
        "those of what is there",
        _MISSING,
    ),
    Accepted(
        "FindCoordinator",
        r"(coordinators\[\].*|error_code|error_message|host|node_id|port)",
        "coordinators of share groups",
        "INVALID_REQUEST: there are none",
        _MISSING,
        case=r"key_type = 2$",
    ),
    Accepted(
        "(Create|Delete|Describe)Acls",
        "outcome",
        "closes the connection when a type is UNKNOWN",
        "SECURITY_DISABLED",
        _MISSING,
    ),
    _order("DescribeClientQuotas", "entries"),
    Accepted(
        "(Alter|Describe)ClientQuotas",
        r"entries.*",
        "a quota that is not a number is kept",
        "INVALID_REQUEST",
        _SOUND,
        case="value = nan",
    ),
    Accepted(
        "DescribeClientQuotas",
        r"entries\[user-\d+/user\]",
        "the first of two quotas for one entity is set, though the answer is INVALID_REQUEST",
        "what is refused is not done",
        _SOUND,
        case="^AlterClientQuotas .*(twice|is empty|against the rules)$",
    ),
    Accepted(
        "DescribeConfigs",
        r"results\[.*\]\.configs\[(super\.users|authorizer\.class\.name)\].*",
        "its authorizer, and super users as a secret",
        "ours, and super users for whoever may see the settings",
        _SETTINGS,
        always=False,
    ),
    Accepted(
        "ListPartitionReassignments",
        r"topics\[.*\]",
        "repeats what was asked for in a refusal",
        "the refusal alone",
        _SAFE,
        case=r" by \w+$",
        always=False,
    ),
    Accepted(
        "(Describe|Alter)UserScramCredentials",
        r"(error_code|error_message|results\[.*\](\.error_message)?)",
        "tells a super user without a name who the users are",
        "CLUSTER_AUTHORIZATION_FAILED: where others log in, nobody does it without a name",
        _SAFE,
        case=r" by \w+$",
        always=False,
    ),
    Accepted(
        "(DescribeClientQuotas|ConsumerGroupHeartbeat)",
        "error_message",
        "a refusal without a word",
        "says that no access rule allows it",
        _SOUND,
        case=r" by \w+$",
        always=False,
    ),
    # --- one node
    Accepted(
        "Fetch",
        r".*",
        "serves replicas: NOT_LEADER_OR_FOLLOWER, or no error and no data",
        "INVALID_REQUEST: only brokers are replicas",
        _ONE_NODE,
        case=r"replica_(state\.replica_)?id = \d",
    ),
    Accepted(
        "Fetch",
        r"responses\[\].*",
        "checks the epoch of the last record a replica has",
        "does not look at it: consumers do not send it",
        _ONE_NODE,
        case=r"last_fetched_epoch = ",
    ),
    Accepted(
        "DescribeQuorum",
        r"(nodes\[\]\.listeners\[\]|.*high_watermark|.*log_end_offset)",
        "the controller's listener and the metadata log",
        "the broker's listener and the journal of topics",
        _ONE_NODE,
    ),
    Accepted(
        "DescribeLogDirs",
        r".*\.partition_size",
        "the size of `__consumer_offsets` by Kafka's records",
        "by ours",
        _ONE_NODE,
        case="topics is null",
    ),
    # --- settings
    Accepted(
        "DescribeConfigs",
        r"results\[1/4\]\.configs\[[^]]*\]",
        "some 300 settings of the broker",
        "those that mean something here, and those that were set",
        _SETTINGS,
    ),
    Accepted(
        "DescribeConfigs",
        r"results\[(1/4|#\d)\]\.configs\[("
        "listeners|advertised.listeners|log.dirs|max.connections|max.connections.per.ip|"
        "group.max.size|group.consumer.max.size|group.consumer.assignment.interval.ms|group.initial.rebalance.delay.ms|offsets.topic.replication.factor|"
        "transaction.state.log.replication.factor|transaction.state.log.min.isr|broker.id|node.id"
        r")\].*",
        "its own addresses, directory and limits",
        "its own; addresses cannot be changed while running",
        _SETTINGS,
    ),
    Accepted(
        "ConsumerGroupHeartbeat",
        "heartbeat_interval_ms",
        "asks members for a heartbeat every five seconds",
        "the more often the smaller the group: hand-overs wait for heartbeats",
        _SETTINGS,
    ),
    Accepted(
        "(Alter|Describe)ClientQuotas",
        r"entries.*",
        "a quota that is not a number is kept",
        "INVALID_REQUEST",
        _SOUND,
        case="value = nan",
        always=False,
    ),
    # --- passwords
    Accepted(
        "SaslAuthenticate",
        "(auth_bytes|error_code|error_message)",
        "says at once that there is no such user",
        "asks for the proof, so that nobody can find out who has an account",
        _SAFE,
        case="first message 'n,,n=eve",
    ),
    Accepted(
        "SaslAuthenticate",
        "(auth_bytes|error_code|error_message)",
        "refuses a client that could bind to the channel (`y,,`)",
        "goes on, as RFC 5802 wants it",
        _SAFE,
        case="first message 'y,,n=ada",
    ),
    Accepted(
        "Metadata",
        "outcome",
        "answers a request between handshake and password with an error, then closes",
        "closes",
        _SAFE,
        case="SASL: a handshake and a request",
    ),
    # --- no answer
    Accepted(
        "Produce",
        "outcome",
        "no answer to null records",
        "INVALID_RECORD",
        _SILENT,
        case="records is null",
    ),
    Accepted(
        "(JoinGroup|DescribeGroups)",
        r"(outcome|groups\[\].*)",
        "no answer to a protocol named twice, or to a subscription that cannot be read",
        "the member joins",
        _SILENT,
        case=r"^JoinGroup v[0-3]: protocols",
    ),
    Accepted(
        "AlterConfigs",
        "outcome",
        "no answer when a resource is named twice",
        "INVALID_REQUEST",
        _SILENT,
        case="resources has its first element twice",
    ),
    # --- accidents
    Accepted(
        "Produce",
        r"responses\[\]\.partition_responses\[\]\.error_message",
        "does not say what is wrong with no bytes, or too few",
        "says it",
        _SOUND,
        case="records = (no bytes|00)",
    ),
    Accepted(
        "Metadata",
        "outcome",
        "takes any negative length for null",
        "closes the connection",
        _SOUND,
        case="^bad bytes: an array of minus two",
    ),
    Accepted(
        "ApiVersions",
        "(outcome|error_code|api_keys.*)",
        "closes when it is asked twice before authentication",
        "answers again",
        _SOUND,
        case="SASL: ApiVersions before authentication",
    ),
    Accepted(
        "(SaslHandshake|SaslAuthenticate)",
        "outcome",
        "closes on an unknown mechanism, and on a password without a handshake",
        "answers with the error and leaves it to the client",
        _SOUND,
        case="SASL: (a mechanism nobody has|authentication without a handshake)",
    ),
    Accepted(
        "Fetch",
        r".*",
        "UNKNOWN_SERVER_ERROR for a session id of another shard",
        "no session, the data",
        _SOUND,
        case=r"session_id = -?2147483",
    ),
    Accepted(
        "Metadata",
        r"topics\[.*",
        "a topic that is created by being asked for is unknown at first",
        "is there in the answer, so the first record needs no second try",
        _SOUND,
        case="^Metadata that creates",
    ),
    Accepted(
        "DescribeGroups",
        r"groups\[\]\.group_state",
        "a refused join leaves an empty group behind",
        "leaves nothing",
        _SOUND,
        case=r"^JoinGroup .*: protocol",
    ),
    Accepted(
        "DescribeGroups",
        r"groups\[\]\.members\[\]\.member_assignment",
        "shows the last generation's assignment while the next one is being made",
        "shows none: it no longer counts",
        _SOUND,
        case="^a group lives",
    ),
    Accepted(
        "OffsetFetch",
        r".*committed_leader_epoch",
        "keeps epochs below -1",
        "takes them for -1, none",
        _SOUND,
        case="committed_leader_epoch = -",
    ),
    Accepted(
        "DescribeTopicPartitions",
        r".*",
        "a cursor behind the last partition overflows",
        "goes on with the next topic",
        _SOUND,
        case="cursor.partition_index = 2147483647",
    ),
    Accepted(
        "DeleteTopics",
        r"responses\[\]\.error_message",
        "says of the metadata topic's id that it is reserved",
        "says that it is unknown, as of any other",
        _SOUND,
    ),
)


def accepted_by(finding: Finding) -> Accepted | None:
    """The row that accepts a difference, if there is one."""
    return next((row for row in ACCEPTED if row.covers(finding)), None)
