"""Bugs on purpose: one-line patches of the real code which the simulator must notice.

A patch is applied in memory, in a process of its own; the tree is never touched. Each stands for
a mistake somebody could make, many for one that somebody made (their ids are in the names).

What a simulation cannot see is not here: patches which only cost time, or which other tests look
after (tables of error codes, wire formats).
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    name: str
    file: str
    old: str
    new: str


GROUP = "shoal/group/"

MUTANTS = (
    # --- the coordinator: who may speak ----------------------------------------------------------
    Mutant(
        "commit of an old generation is accepted",
        GROUP + "classic.py",
        """            if generation != self.generation:
                return ErrorCode.ILLEGAL_GENERATION""",
        "",
    ),
    Mutant(
        "commit between join and sync is accepted",
        GROUP + "classic.py",
        "if state is GroupState.COMPLETING_REBALANCE and not transactional:",
        "if False:",
    ),
    Mutant(
        "commit of a stranger is accepted",
        GROUP + "classic.py",
        """            if error is not ErrorCode.NONE:
                return error
            if generation""",
        """            if generation""",
    ),
    Mutant(
        "a heartbeat of an old generation is accepted",
        GROUP + "classic_session.py",
        """    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    reset_session""",
        """    reset_session""",
    ),
    Mutant(
        "a sync of an old generation is accepted",
        GROUP + "classic_session.py",
        """    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs""",
        """    if _differs""",
    ),
    Mutant(
        "unknown members are known",
        GROUP + "classic.py",
        "return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID",
        "return ErrorCode.NONE",
    ),
    Mutant(
        "an old static process is not fenced",
        GROUP + "classic.py",
        "            if known != member_id:\n                return ErrorCode.FENCED_INSTANCE_ID",
        "            member_id = known",
    ),
    # --- the coordinator: time -------------------------------------------------------------------
    Mutant(
        "nobody ever expires",
        GROUP + "classic_rebalance.py",
        "    elif member.is_excused:",
        "    elif True:",
    ),
    Mutant(
        "heartbeats do not renew the session",
        GROUP + "classic_session.py",
        "    reset_session(draft, group, group.members[request.member_id])\n",
        "",
    ),
    Mutant(
        "a pause of the coordinator is held against the members",
        GROUP + "coordinator.py",
        "elif late_ms > pulse_ms:",
        "elif False:",
    ),
    Mutant(
        "KAFKA-7909: a rebalance waits for ever for who does not come",
        GROUP + "classic_rebalance.py",
        """    else:
        draft.arm(join_timer(group), group.rebalance_timeout_ms)


def complete_join_if""",
        """

def complete_join_if""",
    ),
    Mutant(
        "after a restart sessions are not watched",
        GROUP + "classic_rebalance.py",
        """    for member in group.members.values():
        reset_session(draft, group, member)
    if group.state""",
        """    if group.state""",
    ),
    Mutant(
        "a parked request does not excuse from heartbeats",
        GROUP + "classic_member.py",
        "return not self.is_new and (self.joining is not None or self.syncing is not None)",
        "return False",
    ),
    Mutant(
        "KAFKA-13636: offsets expire while the group uses them",
        GROUP + "classic.py",
        "        return topic in topics",
        "        return False",
    ),
    Mutant(
        "a clock that jumps expires offsets",
        GROUP + "coordinator.py",
        "now_ms = min(draft.now_ms, draft.clock_ms)",
        "now_ms = draft.now_ms",
    ),
    # --- the coordinator: rebalancing ------------------------------------------------------------
    Mutant(
        "a generation keeps the number of the one before",
        GROUP + "classic_rebalance.py",
        """        generation=group.generation + 1,
        leader=None,
        now_ms=draft.now_ms,
        protocol=vote""",
        """        generation=group.generation,
        leader=None,
        now_ms=draft.now_ms,
        protocol=vote""",
    ),
    Mutant(
        "an empty group forgets its generation",
        GROUP + "classic_rebalance.py",
        "    generation = group.generation + 1\n    draft.write(",
        "    generation = 0\n    draft.write(",
    ),
    Mutant(
        "parked syncs are not answered when a new rebalance starts",
        GROUP + "classic_rebalance.py",
        "        answer_syncs(draft, group, ErrorCode.REBALANCE_IN_PROGRESS)\n",
        "        pass\n",
    ),
    Mutant(
        "nobody rebalances when a member leaves",
        GROUP + "classic_session.py",
        "        prepare_rebalance(draft, group, f\"{', '.join(gone)} left\")",
        "        pass",
    ),
    Mutant(
        "nobody rebalances when a member dies",
        GROUP + "classic_rebalance.py",
        "            prepare_rebalance(draft, group, cause)\n            return\n",
        "            return\n",
    ),
    Mutant(
        "the leader may be somebody who is not there",
        GROUP + "classic.py",
        "if leader is None or leader.joining is None:",
        "if leader is None:",
    ),
    Mutant(
        "awaiting members are counted twice",
        GROUP + "classic.py",
        "        ticket, member.joining = member.joining, None\n        if ticket is not None:",
        "        ticket, member.joining = member.joining, None\n        if ticket is None:",
    ),
    Mutant(
        "a late sync gets nothing",
        GROUP + "classic_session.py",
        "_synced(group, group.assignment(member.member_id))",
        '_synced(group, b"")',
    ),
    Mutant(
        "everybody gets the leader's assignment",
        GROUP + "classic_session.py",
        '_synced(group, assignments.get(member.member_id, b""))',
        '_synced(group, assignments.get(group.leader_id or "", b""))',
    ),
    Mutant(
        "who missed the rebalance stays in the group",
        GROUP + "classic_rebalance.py",
        "        if each.joining is None and each.instance_id is None\n",
        "        if False\n",
    ),
    Mutant(
        "KAFKA-9752: a new member may vanish and be waited for",
        GROUP + "classic_rebalance.py",
        """        if group.rebalance is None:
            prepare_rebalance(draft, group, cause)
            return
    # Unlike""",
        """        if group.rebalance is None:
            prepare_rebalance(draft, group, cause)
        return
    # Unlike""",
    ),
    Mutant(
        "a member id is given out and forgotten",
        GROUP + "classic_join.py",
        "    group.pending_ids[member_id] = None\n",
        "",
    ),
    # --- the coordinator: static members ---------------------------------------------------------
    Mutant(
        "every return of a static member is a rebalance",
        GROUP + "classic_join.py",
        "    if state is GroupState.STABLE and vote",
        "    if False and vote",
    ),
    Mutant(
        "a static member comes back to nothing",
        GROUP + "classic_join.py",
        "    assignment = kept.pop(old.member_id).assignment\n",
        '    assignment = kept.pop(old.member_id).assignment and b""\n',
    ),
    Mutant(
        "KAFKA-9801: a static return during a rebalance does not restart it",
        GROUP + "classic_join.py",
        "    if state is GroupState.PREPARING_REBALANCE:\n        complete_join_if_ready",
        "    if state is not GroupState.STABLE:\n        complete_join_if_ready",
    ),
    # --- the coordinator: the journal ------------------------------------------------------------
    Mutant(
        "assignments are not written down",
        GROUP + "journal.py",
        """assignment=each.assignment,
                )
                for each in record.members""",
        """assignment=b"",
                )
                for each in record.members""",
    ),
    Mutant(
        "a failed append is answered as if it had worked",
        GROUP + "coordinator.py",
        "refused = [Reply(each.ticket, refuse(each.response, told)) for each in decision.replies]",
        "refused = list(decision.replies)",
    ),
    Mutant(
        "a failed append is not undone",
        GROUP + "coordinator.py",
        "                self._undo(draft, record, error)\n",
        "                pass\n",
    ),
    Mutant(
        "offsets are stored one too high",
        GROUP + "offsets.py",
        "            record.offset,\n            record.leader_epoch,",
        "            record.offset + 1,\n            record.leader_epoch,",
    ),
    Mutant(
        "a commit is stored under the next partition",
        GROUP + "offset_requests.py",
        "        partition=each.partition_index,\n        offset=each.committed_offset,",
        "        partition=each.partition_index + 1,\n        offset=each.committed_offset,",
    ),
    # --- the member: callbacks -------------------------------------------------------------------
    Mutant(
        "lost partitions are revoked",
        GROUP + "member.py",
        "return Lost(owned) if owned else None",
        "return Revoked(owned) if owned else None",
    ),
    Mutant(
        "eager members do not revoke",
        GROUP + "member.py",
        "            return Revoked(owned)\n        unwanted",
        "            return None\n        unwanted",
    ),
    Mutant(
        "revoked partitions are still owned",
        GROUP + "member.py",
        "        if not isinstance(step, Assigned):",
        "        if isinstance(step, Lost):",
    ),
    Mutant(
        "cooperative members do not join again after giving up",
        GROUP + "member.py",
        '            session.rejoin_reason = "need to revoke partitions and re-join"\n',
        "",
    ),
    Mutant(
        "cooperative members give nothing up",
        GROUP + "member.py",
        "given_up = tuple(tp for tp in session.owned if tp not in kept)",
        "given_up = ()",
    ),
    Mutant(
        "everything is new in every assignment",
        GROUP + "member.py",
        "        added = tuple(tp for tp in partitions if tp not in before)",
        "        added = partitions",
    ),
    Mutant(
        "KAFKA-7961: an assignment for another subscription is adopted",
        GROUP + "member.py",
        "        if not self._interest.fits(partitions):",
        "        if False:",
    ),
    Mutant(
        "KAFKA-14196: records are returned while the revocation is committed",
        GROUP + "member.py",
        "return self.protocol is RebalanceProtocol.EAGER and self._phase is _Phase.COMMITTING",
        "return False",
    ),
    Mutant(
        "KAFKA-13419: who fell out of the group keeps its partitions",
        GROUP + "member.py",
        """        if self._session.generation.is_reset:
            return Lost""",
        """        if self._session.generation.is_reset and not self.protocol:
            return Lost""",
    ),
    Mutant(
        "an error in a callback is swallowed",
        GROUP + "preparation.py",
        "            out.append(Failed(failure))",
        "            pass",
    ),
    # --- the member: the exchange with the coordinator -------------------------------------------
    Mutant(
        "who does not poll stays",
        GROUP + "session.py",
        "        if now_ms >= self._clocks.poll_ends_ms:\n            self.leave",
        "        if False:\n            self.leave",
    ),
    Mutant(
        "a rebalance announced by a heartbeat is ignored",
        GROUP + "session.py",
        '                    self.rejoin_reason = "group is already rebalancing"',
        "                    pass",
    ),
    Mutant(
        "a lost answer to SyncGroup is waited for for ever",
        GROUP + "session.py",
        "elif isinstance(flight.request, JoinGroupRequest | SyncGroupRequest):",
        "elif isinstance(flight.request, JoinGroupRequest):",
    ),
    Mutant(
        "the given member id is not used",
        GROUP + "session.py",
        "                self.generation = Generation(-1, answer.member_id, None)\n",
        "",
    ),
    Mutant(
        "a stable member still thinks it has to rejoin",
        GROUP + "session.py",
        "            self.rejoin_reason = None\n",
        "",
    ),
    Mutant(
        "an unknown member keeps its id",
        GROUP + "session.py",
        "self.reset(code.name, keeps_id=react is Reaction.RESET_GENERATION)",
        "self.reset(code.name, keeps_id=True)",
    ),
    Mutant(
        "owned partitions are not claimed",
        GROUP + "session.py",
        "            owned_partitions=self.owned,\n",
        "            owned_partitions=(),\n",
    ),
    Mutant(
        "commits go out in any state",
        GROUP + "session.py",
        "        if self.state is MemberState.STABLE:\n            return self.identity",
        "        if True:\n            return self.identity",
    ),
    Mutant(
        "a thrown-out member waits for the join it had sent",
        GROUP + "session.py",
        "        self.progress = Progress.NONE\n        self.link.void",
        "        self.link.void",
    ),
    Mutant(
        "KAFKA-9140: an answer to a join that was given up is taken",
        GROUP + "session.py",
        "        self.link.void(JoinGroupRequest, SyncGroupRequest)\n",
        "",
    ),
    Mutant(
        "late answers of an old connection are taken",
        GROUP + "link.py",
        "        self._in_flight.clear()\n",
        "",
    ),
    Mutant(
        "requests have no deadline",
        GROUP + "link.py",
        "        return any(flight.deadline_ms <= now_ms for flight in self._in_flight.values())",
        "        return False",
    ),
    Mutant(
        "KAFKA-6362: a failed lookup is repeated at once",
        GROUP + "link.py",
        "        self._lookup_at_ms = now_ms + self._backoff.next_ms()\n\n    def lose",
        "        self._lookup_at_ms = now_ms\n\n    def lose",
    ),
    Mutant(
        "the leader does not see new partitions",
        GROUP + "subscription.py",
        "            self.cluster_changed = self._assigned_for != self._snapshot()",
        "            pass",
    ),
    Mutant(
        "a changed subscription is not told to the group",
        GROUP + "subscription.py",
        "        return self.joined is not None and self.joined != self.topics",
        "        return False",
    ),
    Mutant(
        "a closed member does not leave",
        GROUP + "member.py",
        "        self._session.leave(why, now_ms, out)\n",
        "        self._session.reset(why, keeps_id=False)\n",
    ),
)
