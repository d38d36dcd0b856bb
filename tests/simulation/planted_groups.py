"""Bugs planted in groups, both sides, which a simulation of a group must notice.

Each stands for a mistake somebody could make, many for one that somebody made (their ids are in
the names). What a simulation cannot see is not here: bugs which only cost time, or which other
tests look after (tables of error codes, wire formats).
"""

from __future__ import annotations

from tests.simulation.bug import Bug

GROUP = "group/"

GROUP_BUGS = (
    # --- the coordinator: who may speak ----------------------------------------------------------
    Bug(
        "commit of an old generation is accepted",
        GROUP + "coordinator/classic_group.py",
        """            if generation != self.generation:
                return ErrorCode.ILLEGAL_GENERATION""",
        "",
    ),
    Bug(
        "commit between join and sync is accepted",
        GROUP + "coordinator/classic_group.py",
        "if state is GroupState.COMPLETING_REBALANCE and not transactional:",
        "if False:",
    ),
    Bug(
        "commit of a stranger is accepted",
        GROUP + "coordinator/classic_group.py",
        """            if error is not ErrorCode.NONE:
                return error
            if generation""",
        """            if generation""",
    ),
    Bug(
        "a heartbeat of an old generation is accepted",
        GROUP + "coordinator/classic_session.py",
        """    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    reset_session""",
        """    reset_session""",
    ),
    Bug(
        "a sync of an old generation is accepted",
        GROUP + "coordinator/classic_session.py",
        """    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs""",
        """    if _differs""",
    ),
    Bug(
        "unknown members are known",
        GROUP + "coordinator/classic_group.py",
        "return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID",
        "return ErrorCode.NONE",
    ),
    Bug(
        "an old static process is not fenced",
        GROUP + "coordinator/classic_group.py",
        "            if known != member_id:\n                return ErrorCode.FENCED_INSTANCE_ID",
        "            member_id = known",
    ),
    # --- the coordinator: time -------------------------------------------------------------------
    Bug(
        "nobody ever expires",
        GROUP + "coordinator/classic_rebalance.py",
        "    elif member.is_excused:",
        "    elif True:",
    ),
    Bug(
        "heartbeats do not renew the session",
        GROUP + "coordinator/classic_session.py",
        "    reset_session(draft, group, group.members[request.member_id])\n",
        "",
    ),
    Bug(
        "a pause of the coordinator is held against the members",
        "machine/own_time.py",
        "elif late_ms > self._pulse_ms:",
        "elif False:",
    ),
    Bug(
        "KAFKA-7909: a rebalance waits for ever for who does not come",
        GROUP + "coordinator/classic_rebalance.py",
        """    else:
        draft.arm(join_timer(group), group.rebalance_timeout_ms)


def complete_join_if""",
        """

def complete_join_if""",
    ),
    Bug(
        "after a restart sessions are not watched",
        GROUP + "coordinator/classic_rebalance.py",
        """    for member in group.members.values():
        reset_session(draft, group, member)
    if group.state""",
        """    if group.state""",
    ),
    Bug(
        "a parked request does not excuse from heartbeats",
        GROUP + "coordinator/classic_group_member.py",
        "return not self.is_new and (self.joining is not None or self.syncing is not None)",
        "return False",
    ),
    Bug(
        "KAFKA-13636: offsets expire while the group uses them",
        GROUP + "coordinator/classic_group.py",
        "        return topic in topics",
        "        return False",
    ),
    Bug(
        "a clock that jumps expires offsets",
        GROUP + "coordinator/coordinator.py",
        "now_ms = min(draft.now_ms, draft.clock_ms)",
        "now_ms = draft.now_ms",
    ),
    # --- the coordinator: rebalancing ------------------------------------------------------------
    Bug(
        "a generation keeps the number of the one before",
        GROUP + "coordinator/classic_rebalance.py",
        """        generation=group.generation + 1,
        leader=None,
        now_ms=draft.now_ms,
        protocol=vote""",
        """        generation=group.generation,
        leader=None,
        now_ms=draft.now_ms,
        protocol=vote""",
    ),
    Bug(
        "an empty group forgets its generation",
        GROUP + "coordinator/classic_rebalance.py",
        "    generation = group.generation + 1\n    draft.write(",
        "    generation = 0\n    draft.write(",
    ),
    Bug(
        "parked syncs are not answered when a new rebalance starts",
        GROUP + "coordinator/classic_rebalance.py",
        "        answer_syncs(draft, group, ErrorCode.REBALANCE_IN_PROGRESS)\n",
        "        pass\n",
    ),
    Bug(
        "nobody rebalances when a member leaves",
        GROUP + "coordinator/classic_session.py",
        "        prepare_rebalance(draft, group, f\"{', '.join(gone)} left\")",
        "        pass",
    ),
    Bug(
        "nobody rebalances when a member dies",
        GROUP + "coordinator/classic_rebalance.py",
        "        prepare_rebalance(draft, group, cause)\n    # Unlike",
        "        return\n    # Unlike",
    ),
    Bug(
        "the leader may be somebody who is not there",
        GROUP + "coordinator/classic_group.py",
        "if leader is None or leader.joining is None:",
        "if leader is None:",
    ),
    Bug(
        "awaiting members are counted twice",
        GROUP + "coordinator/classic_group.py",
        "        ticket, member.joining = member.joining, None\n        if ticket is not None:",
        "        ticket, member.joining = member.joining, None\n        if ticket is None:",
    ),
    Bug(
        "a late sync gets nothing",
        GROUP + "coordinator/classic_session.py",
        "_synced(group, group.assignment(member.member_id))",
        '_synced(group, b"")',
    ),
    Bug(
        "everybody gets the leader's assignment",
        GROUP + "coordinator/classic_session.py",
        '_synced(group, assignments.get(member.member_id, b""))',
        '_synced(group, assignments.get(group.leader_id or "", b""))',
    ),
    Bug(
        "who missed the rebalance stays in the group",
        GROUP + "coordinator/classic_rebalance.py",
        "        if each.joining is None and each.instance_id is None\n",
        "        if False\n",
    ),
    Bug(
        "KAFKA-9752: a new member may vanish and be waited for",
        GROUP + "coordinator/classic_rebalance.py",
        """    elif group.everyone_joined:
        complete_join(draft, group)


def sync_expired""",
        """

def sync_expired""",
    ),
    Bug(
        "a member id is given out and forgotten",
        GROUP + "coordinator/classic_join.py",
        "    group.pending_ids[member_id] = None\n",
        "",
    ),
    # --- the coordinator: static members ---------------------------------------------------------
    Bug(
        "every return of a static member is a rebalance",
        GROUP + "coordinator/classic_join.py",
        "    if state is GroupState.STABLE and vote",
        "    if False and vote",
    ),
    Bug(
        "a static member comes back to nothing",
        GROUP + "coordinator/classic_join.py",
        "    assignment = kept.pop(old.member_id).assignment\n",
        '    assignment = kept.pop(old.member_id).assignment and b""\n',
    ),
    Bug(
        "KAFKA-9801: a static return during a rebalance does not restart it",
        GROUP + "coordinator/classic_join.py",
        "    if state is GroupState.PREPARING_REBALANCE:\n        complete_join_if_ready",
        "    if state is not GroupState.STABLE:\n        complete_join_if_ready",
    ),
    # --- the coordinator: the journal ------------------------------------------------------------
    Bug(
        "assignments are not written down",
        GROUP + "coordinator/journal.py",
        """assignment=each.assignment,
                )
                for each in record.members""",
        """assignment=b"",
                )
                for each in record.members""",
    ),
    Bug(
        "a failed append is answered as if it had worked",
        GROUP + "coordinator/coordinator.py",
        "refused = [Reply(each.ticket, refuse(each.response, told)) for each in decision.replies]",
        "refused = list(decision.replies)",
    ),
    Bug(
        "a failed append is not undone",
        GROUP + "coordinator/coordinator.py",
        "            self._undo(draft, group_id, error)\n",
        "            pass\n",
    ),
    Bug(
        "offsets are stored one too high",
        GROUP + "coordinator/offset_store.py",
        "            record.offset,\n            record.leader_epoch,",
        "            record.offset + 1,\n            record.leader_epoch,",
    ),
    Bug(
        "a commit is stored under the next partition",
        GROUP + "coordinator/offset_requests.py",
        "        partition=each.partition_index,\n        offset=each.committed_offset,",
        "        partition=each.partition_index + 1,\n        offset=each.committed_offset,",
    ),
    # --- the member: callbacks -------------------------------------------------------------------
    Bug(
        "lost partitions are revoked",
        GROUP + "member/classic_member.py",
        "return Lost(owned) if owned else None",
        "return Revoked(owned) if owned else None",
    ),
    Bug(
        "eager members do not revoke",
        GROUP + "member/classic_member.py",
        "            return Revoked(owned)\n        unwanted",
        "            return None\n        unwanted",
    ),
    Bug(
        "revoked partitions are still owned",
        GROUP + "member/classic_member.py",
        "        if not isinstance(step, Assigned):",
        "        if isinstance(step, Lost):",
    ),
    Bug(
        "cooperative members do not join again after giving up",
        GROUP + "member/classic_member.py",
        '            session.rejoin_reason = "need to revoke partitions and re-join"\n',
        "",
    ),
    Bug(
        "cooperative members give nothing up",
        GROUP + "member/classic_member.py",
        "given_up = tuple(tp for tp in session.owned if tp not in kept)",
        "given_up = ()",
    ),
    Bug(
        "everything is new in every assignment",
        GROUP + "member/classic_member.py",
        "        added = tuple(tp for tp in partitions if tp not in before)",
        "        added = partitions",
    ),
    Bug(
        "KAFKA-7961: an assignment for another subscription is adopted",
        GROUP + "member/classic_member.py",
        "        if not self._interest.fits(partitions):",
        "        if False:",
    ),
    Bug(
        "KAFKA-14196: records are returned while the revocation is committed",
        GROUP + "member/classic_member.py",
        "return self._commit.held if self._phase in _COMMITS else ()",
        "return ()",
    ),
    Bug(
        "KAFKA-13419: who fell out of the group keeps its partitions",
        GROUP + "member/classic_member.py",
        """        if self._session.generation.is_reset:
            return Lost""",
        """        if self._session.generation.is_reset and not self.protocol:
            return Lost""",
    ),
    Bug(
        "an error in a callback is swallowed",
        GROUP + "member/rebalance_steps.py",
        "            out.append(Failed(failure))",
        "            pass",
    ),
    # --- the member: the exchange with the coordinator -------------------------------------------
    Bug(
        "who does not poll stays",
        GROUP + "member/classic_exchange.py",
        "        if now_ms >= self._clocks.poll_ends_ms:\n            self.leave",
        "        if False:\n            self.leave",
    ),
    Bug(
        "a rebalance announced by a heartbeat is ignored",
        GROUP + "member/classic_exchange.py",
        '                    self.rejoin_reason = "group is already rebalancing"',
        "                    pass",
    ),
    Bug(
        "a lost answer to SyncGroup is waited for for ever",
        GROUP + "member/classic_exchange.py",
        "elif isinstance(flight.request, JoinGroupRequest | SyncGroupRequest):",
        "elif isinstance(flight.request, JoinGroupRequest):",
    ),
    Bug(
        "the given member id is not used",
        GROUP + "member/classic_exchange.py",
        "                self.generation = MemberGeneration(-1, answer.member_id, None)\n",
        "",
    ),
    Bug(
        "a stable member still thinks it has to rejoin",
        GROUP + "member/classic_exchange.py",
        "            self.rejoin_reason = None\n",
        "",
    ),
    Bug(
        "an unknown member keeps its id",
        GROUP + "member/classic_exchange.py",
        "self.reset(code.name, keeps_id=react is MemberReaction.RESET_GENERATION)",
        "self.reset(code.name, keeps_id=True)",
    ),
    Bug(
        "owned partitions are not claimed",
        GROUP + "member/classic_exchange.py",
        "            owned_partitions=self.owned,\n",
        "            owned_partitions=(),\n",
    ),
    Bug(
        "commits go out in any state",
        GROUP + "member/classic_exchange.py",
        "        if self.state is MemberState.STABLE:\n            return self.identity",
        "        if True:\n            return self.identity",
    ),
    Bug(
        "a thrown-out member waits for the join it had sent",
        GROUP + "member/classic_exchange.py",
        "        self.progress = ExchangeProgress.NONE\n        self.link.void",
        "        self.link.void",
    ),
    Bug(
        "KAFKA-9140: an answer to a join that was given up is taken",
        GROUP + "member/classic_exchange.py",
        "        self.link.void(JoinGroupRequest, SyncGroupRequest)\n",
        "",
    ),
    Bug(
        "late answers of an old connection are taken",
        GROUP + "member/coordinator_link.py",
        "        self._in_flight.clear()\n",
        "",
    ),
    Bug(
        "requests have no deadline",
        GROUP + "member/coordinator_link.py",
        "        return any(flight.deadline_ms <= now_ms for flight in self._in_flight.values())",
        "        return False",
    ),
    Bug(
        "KAFKA-6362: a failed lookup is repeated at once",
        GROUP + "member/coordinator_link.py",
        "        self._lookup_at_ms = now_ms + self._backoff.next_ms()\n\n    def lose",
        "        self._lookup_at_ms = now_ms\n\n    def lose",
    ),
    Bug(
        "the leader does not see new partitions",
        GROUP + "member/subscription.py",
        "            self.cluster_changed = self._assigned_for != self._snapshot()",
        "            pass",
    ),
    Bug(
        "a changed subscription is not told to the group",
        GROUP + "member/subscription.py",
        "        return self.joined is not None and self.joined != self.topics",
        "        return False",
    ),
    Bug(
        "a closed member does not leave",
        GROUP + "member/classic_member.py",
        "        self._session.leave(why, now_ms, out)\n",
        "        self._session.reset(why, keeps_id=False)\n",
    ),
)
