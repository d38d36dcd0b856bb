"""Bugs planted in members of the new protocol (KIP-848) and in the shell around them."""

from __future__ import annotations

from tests.planted.bugs import PlantedBug

_MEMBER = "group/member/consumer_member.py"
_HEARTBEAT = "group/member/consumer_heartbeat.py"


def _by(which: str) -> str:
    return f"tests/group/test_consumer_member.py -k '{which}'"


def _in_client(which: str) -> str:
    return f"tests/client/test_new_protocol.py -m 'not kafka' -k '{which}'"


PLANTED = (
    # What is said
    PlantedBug(
        "a heartbeat after a lost answer says only what is new",
        _HEARTBEAT,
        '        """Everything again, after a wait."""\n        self._told = None\n',
        '        """Everything again, after a wait."""\n',
        _by("lost_answer_everything_is_said_again"),
    ),
    PlantedBug(
        "an acknowledgement is not said if the set is the same",
        _HEARTBEAT,
        "        self._adoptions += 1\n",
        "        self._adoptions = 1\n",
        _by("acknowledged_even_if"),
    ),
    PlantedBug(
        "the epoch of the join is said again in every heartbeat",
        _HEARTBEAT,
        "            member_epoch=self.epoch,\n",
        "            member_epoch=0,\n",
        _by("taken_over_in_a_poll"),
    ),
    PlantedBug(
        "a pattern of the broker's is never taken back",
        _HEARTBEAT,
        'if told.regex != ("" if before is None else before.regex):',
        "if told.regex and before is None:",
        _by("taken_back_with_an_empty_one"),
    ),
    PlantedBug(
        "a static member leaves for good",
        _HEARTBEAT,
        "_LEAVE_FOR_A_WHILE if is_static else _LEAVE",
        "_LEAVE",
        _by("leaving_revokes"),
    ),
    PlantedBug(
        "an interval of 0 is obeyed",
        _HEARTBEAT,
        "if answer.heartbeat_interval_ms > 0:",
        "if answer.heartbeat_interval_ms >= 0:",
        _by("interval_of_0"),
    ),
    PlantedBug(
        "two heartbeats are on their way at once",
        _HEARTBEAT,
        "            or not self.link.is_idle\n            or now_ms < self._send_at_ms",
        "            or now_ms < self._send_at_ms",
        _by("one_heartbeat_at_a_time"),
    ),
    # What is made of answers
    PlantedBug(
        "an answer with a negative epoch is gone on with",
        _HEARTBEAT,
        "if answer.member_epoch <= 0:",
        "if answer.member_epoch < -9:",
        _by("epoch_0_or_less"),
    ),
    PlantedBug(
        "an empty assignment is read as no change",
        _HEARTBEAT,
        "        if answer.assignment is not None:\n",
        "        if answer.assignment is not None and answer.assignment.topic_partitions:\n",
        _by("acknowledged_even_if"),
    ),
    PlantedBug(
        "a heartbeat that was on its way counts after the good-bye",
        _HEARTBEAT,
        "            self.move(_S.LEAVING)\n        self._forget_requests()\n",
        "            self.move(_S.LEAVING)\n",
        _by("late_answer_after_the_good_bye"),
    ),
    PlantedBug(
        "who is thrown out goes on with its epoch",
        _HEARTBEAT,
        "            self.move(state)\n        self.epoch = 0\n",
        "            self.move(state)\n",
        _by("joins_again_as_the_same_member"),
    ),
    PlantedBug(
        "a coordinator that has lost the group ends the member",
        _HEARTBEAT,
        "if code is ErrorCode.GROUP_ID_NOT_FOUND and sent_epoch > 0:",
        "if code is ErrorCode.GROUP_ID_NOT_FOUND and sent_epoch > 99:",
        _by("joins_again_as_the_same_member"),
    ),
    PlantedBug(
        "who is fenced while joining asks as fast as it is answered",
        _HEARTBEAT,
        "                if not self.epoch:\n",
        "                if self.epoch:\n",
        _by("not_asked_as_fast"),
    ),
    PlantedBug(
        "failing heartbeats are swallowed",
        _HEARTBEAT,
        "            out.append(Warn(self._in_trouble()))\n",
        "",
        _by("failing_heartbeats_are_told"),
    ),
    PlantedBug(
        "a refusal for good is told once",
        _MEMBER,
        "            if session.state is not _S.FATAL:\n                session.failure = None\n",
        "            session.failure = None\n",
        _by("refusal_for_good"),
    ),
    PlantedBug(
        "a taken instance id ends the member for good",
        "group/member/reactions.py",
        "_E.UNRELEASED_INSTANCE_ID: MemberReaction.RAISE,",
        "_E.UNRELEASED_INSTANCE_ID: MemberReaction.FATAL,",
        _by("may_pass_is_told"),
    ),
    # What the user sees
    PlantedBug(
        "partitions are given up without a commit",
        _MEMBER,
        "if given_up and self._config.auto_commit:",
        "if not given_up and self._config.auto_commit:",
        _by("commit_first_then_revoked"),
    ),
    PlantedBug(
        "records of what is about to be revoked are returned",
        _MEMBER,
        "return self._commit.held if self._phase is _Phase.SAVING else ()",
        "return ()",
        _by("commit_first_then_revoked"),
    ),
    PlantedBug(
        "the broker is told before the callback has run",
        _MEMBER,
        "        self._run(Assigned(added, self.owned), _Phase.ADOPTING, out)\n",
        "        self._session.acknowledge(self._owned.target, 0, out)\n"
        "        self._session.state = _S.RECONCILING\n"
        "        self._run(Assigned(added, self.owned), _Phase.ADOPTING, out)\n",
        _by("newer_target_waits"),
    ),
    PlantedBug(
        "who is thrown out joins before the user hears of it",
        _MEMBER,
        "self._phase is _Phase.IDLE and not self.owned:\n"
        "                self._join(now_ms, out)  # nobody",
        "self._phase is _Phase.IDLE:\n                self._join(now_ms, out)  # nobody",
        _by("joins_again_as_the_same_member"),
    ),
    PlantedBug(
        "a topic made anew keeps its old positions",
        _MEMBER,
        "if tp not in kept or ids[tp.topic] != self._owned.ids[tp.topic]",
        "if tp not in kept",
        _by("made_anew"),
    ),
    PlantedBug(
        "a topic without a name holds up the others",
        _MEMBER,
        "        if self._session.adopted is None:\n"
        "            return bool(assigned) or not self._session.target\n",
        "        if self._session.adopted is None:\n"
        "            return len(assigned) == len(self._session.target)\n",
        _by("the_rest_goes_on"),
    ),
    PlantedBug(
        "a name that is not there is asked for once",
        "group/member/topic_ids.py",
        "            self._ask_at_ms = now_ms + self._backoff.next_ms()\n"
        "            out.append(ResolveTopics(self._unknown))\n",
        "            self._ask_at_ms = now_ms + 10**9\n"
        "            out.append(ResolveTopics(self._unknown))\n",
        _by("the_rest_goes_on"),
    ),
    PlantedBug(
        "what a pattern matches newly is told with the next heartbeat only",
        _MEMBER,
        "            self._session.hurry(now_ms, out)  # other topics",
        "            pass  # other topics",
        _by("whenever_topics_come"),
    ),
    # The shell
    PlantedBug(
        "a stale commit of partitions that are others' is sent again",
        "client/commits.py",
        "is_ours = all(tp in self._positions for tp in offsets)",
        "is_ours = True",
        _in_client("somebody_else_may_own"),
    ),
    PlantedBug(
        "a stale commit is not sent again",
        "client/commits.py",
        "is_ours = all(tp in self._positions for tp in offsets)",
        "is_ours = False",
        _in_client("sent_again_by_the_new_one"),
    ),
    PlantedBug(
        "auto stays with the new protocol though it is switched off",
        "client/cluster.py",
        'return newest >= 1 and connection.features.get("group.version", 0) >= 1',
        "return newest >= 1",
        _in_client("no_other and switched"),
    ),
    PlantedBug(
        "auto gives up on a classic group that may not be converted",
        "client/membership.py",
        "frozenset({ErrorCode.UNSUPPORTED_VERSION, ErrorCode.GROUP_ID_NOT_FOUND})",
        "frozenset({ErrorCode.UNSUPPORTED_VERSION})",
        _in_client("no_other and classic"),
    ),
    PlantedBug(
        "a setting the broker has is taken if it is the default",
        "client/config.py",
        "        self._check_protocol(names)\n",
        "        del names\n",
        "tests/client/test_config.py -k 'with_the_default_too'",
    ),
    PlantedBug(
        "KAFKA-14201: whoever is no member commits as a static one",
        "client/offsets.py",
        "identity.group_instance_id if identity.member_id else None",
        "identity.group_instance_id",
        "tests/client/test_commits.py -k no_member_is_no_static",
    ),
    PlantedBug(
        "what is buffered outlives its partition",
        "client/positions.py",
        "            if state is not None:\n                state.lap += 1\n",
        "            del state\n",
        "tests/client/test_positions.py -k given_up",
    ),
    PlantedBug(
        "a reset position is looked for at a replica",
        "client/positions.py",
        "        self.lap += 1\n        self.read_from = None\n",
        "        self.lap += 1\n",
        "tests/client/test_positions.py -k at_the_leader",
    ),
    PlantedBug(
        "an offset that is left out of an answer is nobody's error",
        "client/offsets.py",
        "if failure is None and len(found) < len(wanted):",
        "if False:",
        "tests/client/test_positions.py -k left_out",
    ),
    PlantedBug(
        "a record goes to the partition behind the last",
        "client/partitioner.py",
        "current is None or current >= partition_count",
        "current is None or current > partition_count",
        "tests/client/test_partitioner.py -k shrunken",
    ),
)
