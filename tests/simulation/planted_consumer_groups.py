"""Bugs planted in groups of the new protocol (KIP-848), both sides, which their simulation notices.

As in ``planted_groups.py``: mistakes somebody could make, or made (their ids are in the names).
"""

from __future__ import annotations

from tests.simulation.bug import Bug

COORDINATOR = "group/coordinator/"
MEMBER = "group/member/"

CONSUMER_GROUP_BUGS = (
    # --- who holds what --------------------------------------------------------------------------
    Bug(
        "who says nothing of its partitions has given them up",
        COORDINATOR + "reconciliation.py",
        """    if owned is None:
        return True
    return any(""",
        """    if owned is None:
        return False
    return any(""",
    ),
    Bug(
        "what is being given up is free",
        COORDINATOR + "consumer_group.py",
        """        let go (KAFKA-19862).\"\"\"
        for held in (current.assigned, current.pending_revocation):""",
        """        let go (KAFKA-19862).\"\"\"
        for held in (current.assigned,):""",
    ),
    Bug(
        "partitions are given out before they are free",
        COORDINATOR + "reconciliation.py",
        "if goal.is_free(topic_id, partition) or partition in own_pending:",
        "if True:",
    ),
    Bug(
        "who is fenced is not forgotten",
        COORDINATOR + "consumer_fencing.py",
        "draft.write_all(member_tombstones(group.group_id, member.member_id))",
        "pass",
    ),
    Bug(
        "who does not give up partitions in time may keep them",
        COORDINATOR + "consumer_fencing.py",
        'return f"member {member.member_id} did not give up partitions in {timeout_ms} ms"',
        "return None",
    ),
    Bug(
        "who is where the last target was stays there",
        COORDINATOR + "reconciliation.py",
        "case ReconciliationState.STABLE if current.member_epoch == goal.epoch:",
        "case ReconciliationState.STABLE:",
    ),
    Bug(
        "what a member is to give up is taken at once",
        COORDINATOR + "reconciliation.py",
        "if revoked and _owns(owned, revoked):",
        "if False:",
    ),
    Bug(
        "what is free is given to nobody",
        COORDINATOR + "reconciliation.py",
        "_joined(kept, given), NO_PARTITIONS",
        "kept, NO_PARTITIONS",
    ),
    Bug(
        "who waits for partitions is told to be done",
        COORDINATOR + "reconciliation.py",
        "state = _UNRELEASED if waits else _STABLE",
        "state = _STABLE",
    ),
    Bug(
        "what a member keeps counts as given anew (KIP-1251)",
        COORDINATOR + "reconciliation.py",
        "else revoked).setdefault(topic_id, {})[partition] = epoch",
        "else revoked).setdefault(topic_id, {})[partition] = goal.epoch",
    ),
    # --- who may speak ---------------------------------------------------------------------------
    Bug(
        "any epoch of a member is good",
        COORDINATOR + "consumer_heartbeat.py",
        "if epoch in (JOINS, current.member_epoch):",
        "if epoch >= JOINS:",
    ),
    Bug(
        "the last epoch is good whatever the member claims",
        COORDINATOR + "consumer_heartbeat.py",
        """        and _is_subset(owned, current.assigned)
    ):""",
        """    ):""",
    ),
    Bug(
        "commits of any older epoch are taken",
        COORDINATOR + "consumer_group.py",
        "if member is None or generation == member.current.member_epoch:",
        "if True:",
    ),
    Bug(
        "an instance id that is in use is given away",
        COORDINATOR + "consumer_heartbeat.py",
        "if not holder.is_away and not holder.is_classic:",
        "if False:",
    ),
    Bug(
        "a static member that is back is a stranger",
        COORDINATOR + "consumer_fencing.py",
        """            assigned=assigned,
            pending_revocation=NO_PARTITIONS,""",
        """            assigned=NO_PARTITIONS,
            pending_revocation=NO_PARTITIONS,""",
    ),
    # --- time ------------------------------------------------------------------------------------
    Bug(
        "a heartbeat does not renew the session",
        COORDINATOR + "consumer_heartbeat.py",
        "    arm_session(draft, group.group_id, new.member_id)\n    draft.reply",
        "    draft.reply",
    ),
    Bug(
        "a loaded group has no sessions",
        COORDINATOR + "consumer_group.py",
        """    def loaded(self, draft: Draft) -> None:
        consumer_timers.arm_missing(draft, self)""",
        """    def loaded(self, draft: Draft) -> None:
        pass""",
    ),
    Bug(
        "targets are computed as often as somebody asks",
        COORDINATOR + "target_assignment.py",
        "if group.target_epoch >= group_epoch or not _is_time(draft, group, group_epoch):",
        "if group.target_epoch >= group_epoch:",
    ),
    Bug(
        "a clock that was set back stops a group",
        COORDINATOR + "target_assignment.py",
        "not last_ms <= draft.now_ms < last_ms + interval_ms",
        "draft.now_ms >= last_ms + interval_ms",
    ),
    # --- epochs and topics -----------------------------------------------------------------------
    Bug(
        "nobody gets what a member leaves behind",
        COORDINATOR + "consumer_fencing.py",
        "draft.write(ConsumerGroupEpoch(group.group_id, group.epoch + 1, metadata_hash))",
        "draft.write(ConsumerGroupEpoch(group.group_id, group.epoch, metadata_hash))",
    ),
    Bug(
        "a topic that grows is not noticed",
        COORDINATOR + "consumer_group.py",
        """        if any(map(self.is_subscribed, names)):
            self.metadata_known_for = None""",
        """        return""",
    ),
    # --- migration -------------------------------------------------------------------------------
    Bug(
        "a converted group forgets who has what",
        COORDINATOR + "migration.py",
        "            assigned=_at(generation, held),\n",
        "            assigned={},\n",
    ),
    Bug(
        "a group is converted to epoch 0 (KAFKA-20268)",
        COORDINATOR + "migration.py",
        "group_id, generation = group.group_id, max(group.generation, FIRST_EPOCH)",
        "group_id, generation = group.group_id, group.generation",
    ),
    Bug(
        "what a classic leader has not heard of stays unknown",
        COORDINATOR + "migration.py",
        "return image.metadata_hash(topics, group_id) if given == wanted else 0",
        "return image.metadata_hash(topics, group_id)",
    ),
    Bug(
        "a group of classic members alone gets no target",
        COORDINATOR + "classic_members.py",
        "if group.classic_count == len(group.members) and _needs_target(draft, group):",
        "if False:",
    ),
    # --- the member ------------------------------------------------------------------------------
    Bug(
        "a fenced member keeps what it had",
        MEMBER + "consumer_member.py",
        "elif self._phase is _Phase.IDLE and session.state in OUT and self.owned:",
        "elif False:",
    ),
    Bug(
        "a member claims what it should have",
        MEMBER + "consumer_heartbeat.py",
        "for topic_id, numbers in sorted((claimed or {}).items())",
        "for topic_id, numbers in sorted(self.target.items())",
    ),
    Bug(
        "a target taken back while callbacks run ends the member",
        MEMBER + "consumer_heartbeat.py",
        """            self.move(_S.RECONCILING)
        self.move(_S.ACKNOWLEDGING)""",
        """            pass
        self.move(_S.ACKNOWLEDGING)""",
    ),
    Bug(
        "who does not poll stays a member",
        MEMBER + "consumer_heartbeat.py",
        "if now_ms >= self._poll_ends_ms and self.state is not _S.PREPARE_LEAVING:",
        "if False:",
    ),
    Bug(
        "a new reconciliation is not told if it changes nothing",
        MEMBER + "consumer_heartbeat.py",
        "        self._adoptions += 1\n",
        "",
    ),
)
