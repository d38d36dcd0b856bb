"""Seeds that once broke something, and what it was. They run for ever.

A seed is only as good as the simulator that drew its faults: when the simulator changes, an old
seed means another run. So what each of them found has a test of its own too, named here.
"""

from __future__ import annotations

FOUND = {
    279: "the sync timer fired for nobody: test_a_sync_timer_whose_last_member_came_back",
    348: "a loaded coordinator knew old protocols: test_a_loaded_member_speaks_what_its_last",
    395: "the sync timer fired for nobody: test_a_sync_timer_whose_last_member_came_back",
    418: "a wakeup in on_partitions_lost: test_a_wakeup_while_partitions_are_lost",
    519: "the same, cooperative: two owners of a partition",
    524: "a wakeup, then thrown out: test_an_interrupted_revocation_becomes_a_loss",
    532: "prepared and never joined: test_a_leader_with_a_pattern_joins_even_if_its_reason_is_gone",
    557: "a wakeup in on_partitions_lost: test_a_wakeup_while_partitions_are_lost",
    560: "a wakeup, then thrown out: test_an_interrupted_revocation_becomes_a_loss",
    77700169: "the watcher refused a topic on its way out: test_a_topic_deleted_since_the_join_is",
}

FOUND_IN_CONSUMER_GROUPS = {
    7: "a clock set back stopped a group: test_a_clock_that_was_set_back_does_not_keep_a_group",
    42: "STABLE -> ACKNOWLEDGING: test_a_target_taken_back_while_callbacks_run_is_reached",
    50: "answered with epoch 0: test_a_group_that_never_had_a_generation_is_converted_to_an_epoch",
    105: "a partition nobody owned: test_partitions_a_classic_leader_had_not_heard_of_are_assigned",
    137: "the same: test_what_a_member_leaves_to_classic_ones_alone_is_theirs_though_nothing",
    10910: "two owners: test_what_a_running_callback_gives_to_the_user_is_claimed_when",
    10977: "the same, after a failover",
    10198: "the watcher believed an epoch that could not be written (no test but this seed)",
    10458: "who was on the way into the group was asked to rebalance it (the simulator's fault)",
    551: "a classic member comes back under an id that was forgotten, as Kafka lets it",
    904: "a reply on its way told of a group that was forgotten since (the simulator's fault)",
    2161: "an error was to be told before the callback that a wakeup cut short (the simulator's)",
    2269: "stale numbers: test_partitions_that_a_topic_made_again_does_not_have_are_not_taken_over",
    2654: "a topic that shrank was noticed late: a reason for a rebalance (the simulator's fault)",
    3368: "two owners: test_nothing_more_is_owned_before_the_coordinator_has_answered_what_is",
    306: "a topic wanted again was taken for one given up (the simulator's fault)",
    7380: "two owners: test_what_cooperative_members_read_is_theirs_until_their_leader_has",
    7633: "an answer from before something late was adopted after it (the simulator's fault)",
    22902: "two owners: test_what_a_cooperative_member_has_not_given_up_yet_is_nobody_elses",
    22970: "the same, in a group that changed to and fro",
    23634: "a pause in which nobody was timed is not noticed (the simulator's fault)",
    24225: "who had synced as a follower was waited for (the simulator's fault)",
    12333: "a late JoinGroup waits for a SyncGroup until that is due (the simulator's fault)",
}
"""Of ``consumer_group_simulator.py``; their tests are in ``test_found_in_consumer_groups.py``
and ``test_migration.py``."""
