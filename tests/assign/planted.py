"""Bugs planted in the assignors and in plans, see ``tests/planted``."""

from __future__ import annotations

from tests.planted.bugs import PlantedBug

GENERATIONS = "tests/assign/test_upstream_generations.py"
HASHES = "tests/assign/test_hash_order.py"
HISTORY = "tests/assign/test_history.py"
LOADING = "tests/assign/test_loading.py"
PLAN = "tests/assign/test_plan.py"
RANGE = "tests/assign/test_upstream_range.py"
SPEC = "tests/assign/test_server_spec.py"
SERVER = "tests/assign/test_server.py"
STICKY = "tests/assign/test_upstream_sticky.py"
CLAIMS = "tests/assign/test_upstream_sticky_claims.py"
USER_DATA = "tests/assign/test_user_data.py"

PLANTED = (
    # Order
    PlantedBug(
        "static members are ordered by member id",
        "assign/problem.py",
        "            if instance is not None:\n",
        "            if False:\n",
        f"{RANGE}::test_two_static_consumers_are_ordered_by_instance",
    ),
    PlantedBug(
        "names sort by code points",
        "assign/hash_order.py",
        '    return text.encode("utf-16-be", "surrogatepass")\n',
        '    return text.encode("utf-8", "surrogatepass")\n',
        f"{HASHES}::test_names_sort_by_units_not_by_code_points",
    ),
    PlantedBug(
        "a hash table grows one key early",
        "assign/hash_order.py",
        "    while count > capacity * 3 // 4:\n",
        "    while count >= capacity * 3 // 4:\n",
        f"{HASHES}::test_a_table_grows_with_its_thirteenth_key",
    ),
    # Range and round robin
    PlantedBug(
        "the last members get the extra partitions",
        "assign/range.py",
        "self.share + (1 if self.extra > 0 else 0) - self._taken[member]",
        "self.share - self._taken[member]",
        f"{RANGE}::test_range_two_consumers_two_topics_six_partitions",
    ),
    PlantedBug(
        "round robin begins anew with each topic",
        "assign/roundrobin.py",
        "        for partition in range(count):\n",
        "        turn = 0\n        for partition in range(count):\n",
        f"{RANGE}::test_round_robin_two_dynamic_consumers_two_topics_six_partitions",
    ),
    PlantedBug(
        "round robin gives what nobody asked for",
        "assign/roundrobin.py",
        "            while topic not in wanted[problem.classes[ring[turn]]]:\n",
        "            while False:\n",
        f"{RANGE}::test_multiple_consumers_mixed_topics",
    ),
    PlantedBug(
        "co-partitioned topics are not aligned",
        "assign/range.py",
        "            if len(alike) > 1:\n",
        "            if False:\n",
        f"{RANGE}::test_rack_aware_assignment_with_co_partitioning",
    ),
    # Sticky
    PlantedBug(
        "the older of two claims wins",
        "assign/claims.py",
        "            if age < rival_age:\n",
        "            if age > rival_age:\n",
        f"{CLAIMS}::test_partitions_go_to_the_highest_generation",
    ),
    PlantedBug(
        "what two claim in one generation stays with the second",
        "assign/claims.py",
        "                contested.add(partition)\n",
        "                owned[member].append(partition)\n",
        f"{GENERATIONS}::test_a_partition_claimed_twice_in_one_generation_is_invalidated",
    ),
    PlantedBug(
        "what moves is handed out before it was given up",
        "assign/sticky.py",
        "    if not case.two_rounds:\n",
        "    if True:\n",
        f"{HISTORY}::test_15170_what_changes_hands_for_a_rack_waits_for_its_owner_too",
    ),
    PlantedBug(
        "nobody keeps what it has",
        "assign/constrained.py",
        "        quotas.given[member].extend(keep[:quota])\n",
        "        quotas.given[member].extend(keep[:0])\n",
        f"{STICKY}::test_reassignment_after_one_consumer_added",
    ),
    PlantedBug(
        "a member keeps the first topics whole",
        "assign/constrained.py",
        "        keep.sort(key=lambda partition: unpack(partition)[::-1])\n",
        "        keep.sort()\n",
        f"{STICKY}::test_topic_balance_after_reassignment",
    ),
    PlantedBug(
        "user data of version 0 is thrown away",
        "assign/user_data.py",
        "        return groups, None\n",
        "        return [], None\n",
        f"{USER_DATA}::test_version_zero_has_no_generation",
    ),
    PlantedBug(
        "a rack of nobody is a rack",
        "assign/problem.py",
        "    if not members & everywhere:\n        return False\n",
        "",
        f"{GENERATIONS}::test_when_racks_matter",
    ),
    # In the coordinator
    PlantedBug(
        "who has the extra partition loses it",
        "assign/server.py",
        "if lacking and len(order) - place > extra:",
        "if False:",
        f"{SERVER}::test_whoever_has_the_extra_partition_keeps_it",
    ),
    PlantedBug(
        "a member keeps what it no longer wants",
        "assign/server.py",
        "        if topic not in wanted:\n            continue\n",
        "",
        f"{SERVER}::test_what_a_member_no_longer_wants_is_not_kept_for_it",
    ),
    # Custom assignors
    PlantedBug(
        "a partition may be given twice",
        "assign/loading.py",
        "        if tp in owners:\n",
        "        if False:\n",
        f"{LOADING}::test_a_partition_given_twice_is_refused",
    ),
    PlantedBug(
        "a custom assignor may hand over in one round",
        "assign/loading.py",
        "        _check_two_phases(assignor.name, result, subscriptions)\n",
        "        pass\n",
        f"{LOADING}::test_a_cooperative_assignor_must_not_hand_over_in_one_round",
    ),
    PlantedBug(
        "the protocol is what one assignor supports",
        "assign/loading.py",
        "        shared &= set(assignor.supported_protocols)\n",
        "        shared = set(assignor.supported_protocols)\n",
        f"{LOADING}::test_the_common_protocol_is_the_highest_all_support",
    ),
    # Plans
    PlantedBug(
        "new partitions count as moved",
        "assign/plan.py",
        "        if old.get(tp, member_id) != member_id\n",
        "        if old.get(tp) != member_id\n",
        f"{PLAN}::test_new_partitions_and_topics_do_not_count_as_moved",
    ),
    PlantedBug(
        "an eager rebalance stops only what moves",
        "assign/plan.py",
        "sum(map(len, before.values())) if eager else moved",
        "moved",
        f"{PLAN}::test_eager_stops_everything_and_cooperative_only_what_moves",
    ),
    PlantedBug(
        "the broker's assignors forget what members have",
        "assign/plan_broker.py",
        "ServerMember(topics, owned, wish.group_instance_id)",
        "ServerMember(topics, {}, wish.group_instance_id)",
        f"{PLAN}::test_what_a_member_has_now_stays_where_evenness_allows",
    ),
    PlantedBug(
        "a group whose broker assigns is planned with the members' assignors",
        "assign/plan.py",
        'elif group.protocol == "consumer":',
        'elif group.protocol == "broker":',
        f"{PLAN}::test_a_group_whose_broker_assigns_is_planned_with_the_brokers_assignors",
    ),
    PlantedBug(
        "a broker's assignor may leave partitions out",
        "assign/server_spec.py",
        "    if missing:\n",
        "    if False:\n",
        f"{SPEC} -k may_not_adopt",
    ),
    PlantedBug(
        "a broker's assignor may give a partition twice",
        "assign/server_spec.py",
        "            if tp in owners:\n",
        "            if False:\n",
        f"{SPEC} -k may_not_adopt",
    ),
    PlantedBug(
        "a member of weight 0 is not emptied",
        "assign/server_examples.py",
        " for one in subscribers if _weight(one)}",
        " for one in subscribers}",
        f"{SPEC} -k weight_zero",
    ),
    PlantedBug(
        "uniform hands out what somebody has",
        "assign/server.py",
        "difference(*pieces)) if pieces else every",
        "difference(*pieces)) if False else every",
        SERVER,
    ),
    PlantedBug(
        "who keeps everything gets a copy of it",
        "assign/server.py",
        "            target[member_id] = assigned\n",
        "            target[member_id] = {**assigned}\n",
        f"{SERVER} -k given_the_same_object",
    ),
    PlantedBug(
        "what members have is changed in place",
        "assign/server.py",
        "        target[member_id] = kept | taken\n",
        "        kept |= taken\n        target[member_id] = kept\n",
        f"{SERVER} -k given_the_same_object",
    ),
    PlantedBug(
        "what is taken piece by piece stays unsorted",
        "assign/server.py",
        "sorted({*kept.get(each, ()), *more})",
        "[*kept.get(each, ()), *more]",
        f"{SERVER} -k come_and_go",
    ),
    PlantedBug(
        "numbers of more than 16 bits stay in their buckets",
        "assign/hash_order.py",
        "min(mask, 0xFFFF)",
        "mask",
        f"{HASHES} -k more_than_16_bits",
    ),
)
