"""Groups whose past is known, as records: for rehearsals whose answer can be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.assign.plan import PlannedGroup
from shoal.fleet.analysis import analyse, events_of
from shoal.fleet.group_changes import GroupHistory, RecordedChange, group_histories
from shoal.types import TopicPartition
from tests.fleet.consumer_offsets import Journal


class Past:
    """One group on one topic; whoever is in it reads an equal share, in the order of names."""

    def __init__(
        self,
        partitions: int,
        *,
        journal: Journal | None = None,
        group: str = "g",
        assignor: str = "range",
        session_s: float = 45.0,
        static: bool = False,
        commits: bool = True,
    ) -> None:
        self.journal = Journal() if journal is None else journal
        self.now_s = 0.0
        self._group, self._assignor, self._session_s = group, assignor, session_s
        self._partitions, self._commits, self._static = partitions, commits, static
        self._generation = 0
        self._members: list[str] = []

    def members(self, *names: str, after_s: float = 100.0) -> None:
        """From now on these are in the group. Name and host are what comes before a dot, so
        ``a.2`` is ``a``, restarted."""
        self.now_s += after_s
        if self._commits and self._generation:
            # A commit just before: whoever is gone has left for sure.
            for number in range(self._partitions):
                self.journal.commit(self._group, TopicPartition("t", number), 1, self.now_s - 1)
        self._write(names)

    def expires(self, *names: str) -> None:
        """Like ``members``, but who is gone was silent for a session and was regular before."""
        was = self.now_s
        for number in range(self._partitions):
            for at_s in (was + 1, was + 2):
                self.journal.commit(self._group, TopicPartition("t", number), 1, at_s)
        self.now_s = was + 2 + self._session_s + 1
        self._write(names)

    def grows(self, partitions: int) -> None:
        self.now_s += 100
        self._partitions = partitions
        self._write(self._members)

    def again(self) -> None:
        """Another generation of the same members."""
        self.now_s += 100
        self._write(self._members)

    def _write(self, names: Sequence[str]) -> None:
        self._generation += 1
        self._members = list(names)
        shares = shared(self._partitions, names)
        instances = {name: name.split(".")[0] for name in names} if self._static else None
        self.journal.generation(
            self._group,
            self._generation,
            shares,
            self.now_s,
            topics=["t"],
            assignor=self._assignor,
            session_ms=round(self._session_s * 1000),
            instances=instances,
            clients={name: name.split(".")[0] for name in names},
        )

    def history(self) -> GroupHistory:
        """Without its commits' rhythm, which is not that of a real group: nothing is measured."""
        (found,) = group_histories(analyse(events_of(self.journal.records())).rebalances)
        return found


def shared(partitions: int, names: Sequence[str]) -> dict[str, list[TopicPartition]]:
    every = [TopicPartition("t", number) for number in range(partitions)]
    size, more = divmod(partitions, len(names)) if names else (0, 0)
    found, begin = {}, 0
    for index, name in enumerate(sorted(names)):
        end = begin + size + (index < more)
        found[name] = every[begin:end]
        begin = end
    return found


def history_of(group: PlannedGroup, *changes: RecordedChange) -> GroupHistory:
    """A classic group to which just this happened."""
    return GroupHistory(
        group="g",
        protocol="classic",
        protocol_type="consumer",
        assignor="range",
        start=group,
        changes=changes,
        observed_s=60.0,
        rebalances=len(changes),
        moved=0,
        missed=0,
        members=len(group.members),
        partitions=sum(topic.partitions for topic in group.topics.values()),
        static=0,
        client_ids=(),
    )


def histories(journal: Journal) -> list[GroupHistory]:
    done = analyse(events_of(journal.records()))
    return group_histories(done.rebalances, done.commit_gaps_us)


def rolling_restart(past: Past, names: Sequence[str], *, away_s: float, round_: int = 2) -> None:
    """One after another leaves and is back after ``away_s``."""
    now = list(names)
    for name in names:
        now.remove(name)
        past.members(*now)
        now.append(f"{name.split('.')[0]}.{round_}")
        past.members(*now, after_s=away_s)
