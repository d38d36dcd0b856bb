"""Bugs planted in the coordinator of consumer groups, see ``tests/planted``.

Those of classic groups are the mutants of the simulator.
"""

from __future__ import annotations

from tests.planted.bugs import PlantedBug

BEAT = "tests/group/test_consumer_heartbeat.py"
COMMITS = "tests/group/test_consumer_commits.py"
MIGRATION = "tests/group/test_migration.py"
PATTERN = "tests/group/test_topic_pattern.py"
REGEX = "tests/group/test_consumer_regex.py"
ORDERS = "tests/group/test_target_orders.py"
PRESENCE = "tests/group/test_presence.py"
STATIC = "tests/group/test_consumer_static.py"
UPSTREAM = "tests/group/test_consumer_upstream.py"
G = "group/coordinator/"

PLANTED = (
    PlantedBug(
        "a partition is handed over before its owner has let go",
        G + "reconciliation.py",
        "if goal.is_free(topic_id, partition) or partition in own_pending:",
        "if True:",
        f"{BEAT} -k changes_hands",
    ),
    PlantedBug(
        "a keepalive acknowledges a revocation",
        G + "reconciliation.py",
        "    if owned is None:\n        return True\n",
        "    if owned is None:\n        return False\n",
        f"{BEAT} -k changes_hands",
    ),
    PlantedBug(
        "a member that must give something up moves on at once",
        G + "reconciliation.py",
        "return _moved(current, current.member_epoch, _UNREVOKED, kept, revoked)",
        "return _moved(current, goal.epoch, _UNREVOKED, kept, revoked)",
        f"{BEAT} -k changes_hands",
    ),
    PlantedBug(
        "what is given up oneself counts as another's",
        G + "reconciliation.py",
        " or partition in own_pending:",
        ":",
        f"{UPSTREAM} -k 19449",
    ),
    PlantedBug(
        "a stale target is handed out to who no longer subscribes",
        G + "reconciliation.py",
        " if topic_id in goal.subscribed else set()",
        " if True else set()",
        f"{UPSTREAM} -k 19431",
    ),
    PlantedBug(
        "what is handed over keeps the epoch of the member",
        G + "reconciliation.py",
        "given.setdefault(topic_id, {})[partition] = goal.epoch",
        "given.setdefault(topic_id, {})[partition] = current.member_epoch",
        f"{COMMITS} -k older_epoch",
    ),
    PlantedBug(
        "the epoch before is not remembered",
        G + "reconciliation.py",
        "        member_epoch=epoch,\n        previous_member_epoch=current.member_epoch,\n",
        "        member_epoch=epoch,\n        previous_member_epoch=epoch,\n",
        f"{BEAT} -k test_epochs",
    ),
    PlantedBug(
        "the last epoch is believed whatever the member owns",
        G + "consumer_heartbeat.py",
        "    if owned is None:\n        return False\n    return all(",
        "    if owned is None:\n        return False\n    return bool(owned) or all(",
        f"{BEAT} -k test_epochs",
    ),
    PlantedBug(
        "epoch 0 of a known member is fenced",
        G + "consumer_heartbeat.py",
        "if epoch in (JOINS, current.member_epoch):",
        "if epoch == current.member_epoch:",
        f"{UPSTREAM} -k 19233",
    ),
    PlantedBug(
        "a name that is in use is given away",
        G + "consumer_heartbeat.py",
        "if not holder.is_away and not holder.is_classic:",
        "if False:",
        f"{STATIC} -k given_away",
    ),
    PlantedBug(
        "a full request is answered without the assignment",
        G + "consumer_heartbeat.py",
        "tells = request.member_epoch == JOINS or is_full or",
        "tells = request.member_epoch == JOINS or",
        f"{BEAT} -k full_request",
    ),
    PlantedBug(
        "the interval of a moving group is that of one at rest",
        G + "consumer_heartbeat.py",
        "        and others_there >= others\n",
        "",
        f"{BEAT} -k follows_the_group",
    ),
    PlantedBug(
        "a heartbeat does not keep the session",
        G + "consumer_heartbeat.py",
        "    arm_session(draft, group.group_id, new.member_id)\n",
        "    if not old.current.member_epoch:\n"
        "        arm_session(draft, group.group_id, new.member_id)\n",
        f"{BEAT} -k silent_are_out",
    ),
    PlantedBug(
        "an assignor that raises takes the heartbeat along",
        G + "target_assignment.py",
        "    except Exception as error:",
        "    except ZeroDivisionError as error:",
        f"{BEAT} -k fails_changes_nothing",
    ),
    PlantedBug(
        "an assignor may leave partitions out",
        G + "target_assignment.py",
        "    if missing:\n",
        "    if missing < 0:\n",
        f"{BEAT} -k fails_changes_nothing",
    ),
    PlantedBug(
        "targets are computed at every heartbeat",
        G + "target_assignment.py",
        "not last_ms <= draft.now_ms < last_ms + interval_ms",
        "True",
        f"{BEAT} -k once_per_interval",
    ),
    PlantedBug(
        "a static member that comes back has no target",
        G + "target_assignment.py",
        'place = group.static_ids.get(new.metadata.instance_id or "", new.member_id)',
        "place = new.member_id",
        f"{STATIC} -k comes_back_in_time",
    ),
    PlantedBug(
        "a dropped expression moves nothing",
        G + "member_update.py",
        "        elif not after or after in group.resolved:\n",
        "        elif after and after in group.resolved:\n",
        f"{UPSTREAM} -k 19891",
    ),
    PlantedBug(
        "topics that change are not noticed",
        G + "consumer_group.py",
        "            self.metadata_known_for = None\n\n",
        "            pass\n\n",
        f"{BEAT} -k topics_that_change",
    ),
    PlantedBug(
        "a smaller epoch takes a partition away while loading",
        G + "consumer_group.py",
        "if owners.get(partition, current.member_epoch) <= current.member_epoch:",
        "if True:",
        f"{UPSTREAM} -k 19862",
    ),
    PlantedBug(
        "the name of a member that has another stays taken",
        G + "consumer_group.py",
        "            self._free_name(old)  # KAFKA-20747\n",
        "            pass\n",
        f"{UPSTREAM} -k 20747",
    ),
    PlantedBug(
        "a member commits with an epoch it has not reached",
        G + "consumer_group.py",
        "if generation > member.current.member_epoch:",
        "if False:",
        f"{COMMITS} -k test_commits",
    ),
    PlantedBug(
        "an old epoch commits what was given away",
        G + "consumer_group.py",
        "return ErrorCode.NONE if since is not None and since <= generation else _stale(member)",
        "return ErrorCode.NONE if since is None or since <= generation else _stale(member)",
        f"{COMMITS} -k older_epoch",
    ),
    PlantedBug(
        "who leaves does not make a new target",
        G + "consumer_fencing.py",
        "draft.write(ConsumerGroupEpoch(group.group_id, group.epoch + 1, metadata_hash))",
        "draft.write(ConsumerGroupEpoch(group.group_id, group.epoch, metadata_hash))",
        f"{BEAT} -k makes_room",
    ),
    PlantedBug(
        "a static member that goes away loses its partitions",
        G + "consumer_fencing.py",
        "            assigned=assigned,\n            pending_revocation=NO_PARTITIONS,",
        "            assigned=NO_PARTITIONS,\n            pending_revocation=NO_PARTITIONS,",
        f"{STATIC} -k count_from_the_beginning",
    ),
    PlantedBug(
        "an expression outlives its last subscriber",
        G + "consumer_fencing.py",
        "if group.regex_counts[regex] == count}",
        "if group.regex_counts[regex] < count}",
        f"{REGEX} -k takes_the_expression",
    ),
    PlantedBug(
        "new matches of an expression make no new target",
        G + "consumer_fencing.py",
        "    if matches_more or metadata_hash != group.metadata_hash:\n",
        "    if False:\n",
        f"{REGEX} -k looked_for_after_ten",
    ),
    PlantedBug(
        "expressions are resolved in one go",
        G + "regex_resolution.py",
        "        while work > 0 and not self.is_done:\n",
        "        work *= 1_000\n        while work > 0 and not self.is_done:\n",
        f"{REGEX} -k in_slices",
    ),
    PlantedBug(
        "a prefix of a name is enough for an expression",
        G + "topic_pattern.py",
        "        return _DONE in self._reached(at, None)\n",
        "        return bool(at[0])\n",
        f"{PATTERN} -k what_matches",
    ),
    PlantedBug(
        "classic members are called before there is a target",
        G + "classic_members.py",
        "case _ if current.member_epoch < group.target_epoch:",
        "case _ if current.member_epoch < group.epoch:",
        f"{UPSTREAM} -k 20272",
    ),
    PlantedBug(
        "a classic member keeps the expression of its predecessor",
        G + "classic_members.py",
        '        regex="",\n',
        "",
        f"{UPSTREAM} -k 19720",
    ),
    PlantedBug(
        "what a custom assignor attached is thrown away",
        G + "migration.py",
        "        if decoded.user_data:\n",
        "        if False:\n",
        f"{MIGRATION} -k custom_assignor",
    ),
    PlantedBug(
        "who waits in a classic group that changes is forgotten",
        G + "migration.py",
        "            draft.reply(sync_ticket, SyncGroupResponse(error_code=again))\n",
        "            pass\n",
        f"{MIGRATION} -k called_again",
    ),
    PlantedBug(
        "a topic made anew inherits the positions of the old one",
        G + "offset_fetch.py",
        "        and topic_id != position.topic_id\n",
        "        and False\n",
        "tests/group/test_offsets.py -k by_the_id_of_another",
    ),
    PlantedBug(
        "an expression matches what its member may not see",
        G + "regex_resolution.py",
        " and (self._sees is None or self._sees(name))",
        "",
        f"{REGEX} -k may_see",
    ),
    PlantedBug(
        "a target is taken although the group has changed",
        G + "target_assignment.py",
        "    return group.target_epoch < order.epoch == group.epoch and (",
        "    return group.target_epoch < order.epoch and (",
        f"{ORDERS} -k epoch_that_is_over",
    ),
    PlantedBug(
        "a target names a member that has come back under another id",
        G + "target_assignment.py",
        "        group.members.keys() == order.members.keys()\n",
        "        len(group.members) == len(order.members)\n",
        f"{ORDERS} -k another_id",
    ),
    PlantedBug(
        "a target is ordered at every heartbeat",
        G + "target_assignment.py",
        "        if not draft.orders.is_pending(group.group_id):\n",
        "        if True:\n",
        f"{ORDERS} -k taken_when_it_comes",
    ),
    PlantedBug(
        "an order of records that were not written is waited for",
        G + "coordinator.py",
        "                self._orders.end(each.response)\n",
        "                pass\n",
        f"{ORDERS} -k never_given",
    ),
    PlantedBug(
        "an assignor that fails is tried at the same pace for ever",
        G + "target_assignment.py",
        "failures.times > 1",
        "False",
        f"{ORDERS} -k less_often",
    ),
    PlantedBug(
        "a setting of the group does not make a new target",
        G + "cluster_image.py",
        "        return repr((self.assignor, self.weights)).encode()\n",
        '        return b""\n',
        f"{ORDERS} -k set_on_a_group",
    ),
    PlantedBug(
        "who is heard on another connection is taken for dead",
        G + "coordinator.py",
        "            draft.cancel((_GONE, *heard))\n",
        "",
        f"{PRESENCE} -k another_connection",
    ),
    PlantedBug(
        "a static member is out when its connection breaks",
        G + "consumer_group.py",
        "        if member is not None and member.metadata.instance_id is None:\n",
        "        if member is not None:\n",
        f"{PRESENCE} -k static",
    ),
    PlantedBug(
        "an older connection counts, too",
        G + "presence.py",
        "            self._by_connection.get(before, set()).discard(member)\n",
        "            pass\n",
        f"{PRESENCE} -k last_heartbeat",
    ),
    PlantedBug(
        "a group that goes back to classic does not rebalance",
        G + "migration.py",
        "        leader=None if rebalances else rows[0].member_id,\n",
        "        leader=rows[0].member_id,\n",
        f"{MIGRATION} -k restart_in_between",
    ),
    PlantedBug(
        "what a running callback takes over is not claimed",
        "group/member/consumer_member.py",
        "        self._session.adopting = self._owned.target\n",
        "",
        "tests/group/test_found_in_consumer_groups.py -k running_callback",
    ),
    PlantedBug(
        "a target that stays is written again",
        G + "target_assignment.py",
        "        if before is not mine and before != mine:\n",
        "        if before is not mine:\n",
        f"{BEAT} -k stays_is_not_written",
    ),
    PlantedBug(
        "who gives something up is not released from it",
        G + "consumer_group.py",
        "            self._count_stable(old.current, -1)\n            self._release(old.current)\n",
        "            self._count_stable(old.current, -1)\n",
        "tests/group/test_consumer_heartbeat.py",
    ),
)
