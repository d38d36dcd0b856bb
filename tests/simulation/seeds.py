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
}
