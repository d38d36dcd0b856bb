"""Bugs planted in the lab: a scheme that is better or worse than it was must be noticed."""

from __future__ import annotations

from tests.planted.bugs import PlantedBug

REGISTRY = "tests/lab/test_registry.py"
ELECTION = "tests/lab/test_election.py"
COMMITS = "tests/lab/test_commits.py"
TROUBLE = "tests/lab/test_trouble.py"

PLANTED = (
    # --- the registry ------------------------------------------------------------------------
    PlantedBug(
        "a watch fires twice",
        "lab/registry/watches.py",
        "        waiting = self._waiting.pop(watch, None)\n",
        "        waiting = self._waiting.get(watch)\n",
        f"{REGISTRY}::test_a_watch_is_told_once",
    ),
    PlantedBug(
        "a watch brought to another server is forgotten",
        "lab/registry/server.py",
        "                self.watches.add(watch, connection)\n        self._done",
        "                pass\n        self._done",
        f"{REGISTRY}::test_a_watch_that_is_brought_along_and_not_due_is_told_later",
    ),
    PlantedBug(
        "a change that was missed is not told",
        "lab/registry/tree.py",
        "return self._changed.get(watch, 0) > since",
        "return False",
        f"{REGISTRY}::test_notifications_equal_watchers_whatever_the_servers_do",
    ),
    PlantedBug(
        "a follower never lags",
        "lab/registry/ensemble.py",
        "at_ms = self.clock.now_ms + self._delay() + server.lag_ms",
        "at_ms = self.clock.now_ms + self._delay()",
        f"{TROUBLE}::test_a_lagging_server_makes_two_owners_without_an_expired_session",
    ),
    PlantedBug(
        "a sync does not wait",
        "lab/registry/ensemble.py",
        "            server.catch_up(number)\n            server.answer_when_applied(number,",
        "            server.answer_when_applied(0,",
        f"{REGISTRY}::test_a_sync_lets_the_server_catch_up",
    ),
    PlantedBug(
        "members do not sync though they should",
        "lab/watching.py",
        "        if self._syncs:\n",
        "        if False:\n",
        f"{TROUBLE} -k 'disappear and synced'",
    ),
    PlantedBug(
        "a write is answered before it is applied",
        "lab/registry/ensemble.py",
        "needed = len(self.log) if self.settings.own_writes else 0",
        "needed = 0",
        f"{REGISTRY}::test_a_client_sees_its_own_writes_even_on_a_server_that_lags",
    ),
    PlantedBug(
        "a client goes back in time",
        "lab/registry/server.py",
        "        if message.seen > self.tree.applied:\n",
        "        if False:\n",
        f"{REGISTRY}::test_a_server_that_is_behind_sends_a_client_on",
    ),
    PlantedBug(
        "an isolated server decides",
        "lab/registry/ensemble.py",
        "        if session is None or server.is_isolated:\n",
        "        if session is None:\n",
        f"{REGISTRY}::test_an_isolated_server_reads_on_but_decides_nothing",
    ),
    PlantedBug(
        "a minority decides",
        "lab/registry/ensemble.py",
        "        return 2 * reached > len(self.servers)\n",
        "        return reached > 0\n",
        f"{REGISTRY}::test_without_a_majority_nobody_leads",
    ),
    PlantedBug(
        "ephemeral nodes outlive their session",
        "lab/registry/ensemble.py",
        "        return tuple((path, None) for path in session.ephemerals)\n",
        "        return ()\n",
        f"{REGISTRY}::test_ephemeral_nodes_die_with_their_session_and_others_hear_of_it",
    ),
    PlantedBug(
        "a client does not ask again after it was moved",
        "lab/registry/client.py",
        "            self._connection.ask(RegistryRequest(number, each.body))\n"
        "        if is_new and",
        "            pass\n        if is_new and",
        f"{REGISTRY}::test_a_client_is_moved_when_its_server_fails_and_asks_again",
    ),
    # --- the election ------------------------------------------------------------------------
    PlantedBug(
        "an election without fencing",
        "lab/registry/election.py",
        "        epoch = (before or 0) + 1\n",
        "        epoch = 1\n",
        f"{ELECTION}::test_what_a_former_leader_writes_is_refused",
    ),
    PlantedBug(
        "a guard that lets everything pass",
        "lab/registry/ensemble.py",
        "        return bool(self.data(path) == data)\n",
        "        return True\n",
        f"{TROUBLE}::test_a_member_that_follows_a_former_coordinator_is_fenced",
    ),
    PlantedBug(
        "nobody follows a leader that is gone",
        "lab/registry/election.py",
        'or somebody else\'s."""\n        self.run()\n',
        'or somebody else\'s."""\n',
        f"{ELECTION}::test_who_resigns_is_followed_at_once",
    ),
    # --- the schemes -------------------------------------------------------------------------
    PlantedBug(
        "an overlooked claim in the consumer of 0.8",
        "lab/watching.py",
        'self._overlooks = scheme.world.scenario.watcher_version == "0.7"',
        "self._overlooks = True",
        f"{TROUBLE} -k 'disappear and mended'",
    ),
    PlantedBug(
        "every claim counts in the consumer of 0.7",
        "lab/watching.py",
        "counts = [got[max(got, key=_hash)]] if self._overlooks else made",
        "counts = made",
        f"{TROUBLE}::test_a_lagging_server_makes_two_owners_without_an_expired_session",
    ),
    PlantedBug(
        "a coordinator assigns before all have stopped",
        "lab/central_coordinator.py",
        "name in self._connections and name not in self._holding for name in self._members()",
        "name in self._connections for name in self._members()",
        f"{TROUBLE}::test_a_coordinator_waits_for_who_is_slow_and_for_nobody_for_ever",
    ),
    PlantedBug(
        "a broker that leaves takes the coordinator's node with it",
        "lab/central_coordinator.py",
        "        if self.is_acting:\n            self._candidate.resign()\n        self.is_up",
        "        self._candidate.resign()\n        self.is_up",
        f"{TROUBLE}::test_a_broker_that_leaves_and_does_not_coordinate_changes_no_coordinator",
    ),
    PlantedBug(
        "a coordinator takes commits of an old generation",
        "lab/central_coordinator.py",
        "        if not self.accepts_generation(message.name, message.generation):\n",
        "        if False:\n",
        f"{TROUBLE}::test_a_coordinator_waits_for_who_is_slow_and_for_nobody_for_ever",
    ),
    PlantedBug(
        "a member that joins is not told of brokers",
        "lab/watching.py",
        "        self._then(Children(BROKER_IDS), lambda _: self._saw_brokers(view))\n",
        "        self._saw_brokers(view)\n",
        f"{TROUBLE}::test_under_watchers_every_broker_that_comes_or_goes_stops_everybody",
    ),
    PlantedBug(
        "a partition without a leader is read",
        "lab/ledger.py",
        "return Holding.LEADERLESS if tp in self._leaderless else Holding.READING",
        "return Holding.READING",
        f"{TROUBLE} -k 'dead_broker_leaves and eager'",
    ),
    PlantedBug(
        "a coordinator stays on a dead broker",
        "lab/classic.py",
        "        if broker != self._broker or act is Act.BROKER_JOINS:\n",
        "        if True:\n",
        f"{TROUBLE} -k 'first_broker and eager'",
    ),
    PlantedBug(
        "a refused commit counts as stored",
        "lab/commits.py",
        "                self.lost += commit.stored == 0\n\n    def finish",
        "                pass\n\n    def finish",
        f"{COMMITS}::test_a_refused_commit_is_lost_and_so_is_one_that_nobody_answered",
    ),
)
