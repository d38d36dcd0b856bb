"""What became of transfers, and whether it can be true: the judge of transactions in soak runs.

A token is read in one partition and written to another, with the reader's offset, in one
transaction: ``token/hop/transaction``. So each token stands at hop 0, 1, 2 … once each, however
often brokers and clients died. Pure. Named after what would be wrong:

* lost: a token has no record of a hop, and later ones
* duplicated: a token has two records of one hop
* torn: of a transaction some records can be read, and some not
* aborted read: somebody read a record of a transaction that was aborted, or never committed
* unacknowledged: a commit was acknowledged, and its records cannot be read
* inconsistent: somebody read another value at an offset than there is in the end
* cycle: transactions read each other's records in a circle
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

Place = tuple[int, int]  # partition, offset


class Hop(NamedTuple):
    """One record."""

    token: str
    number: int
    transaction: str

    @classmethod
    def of(cls, value: bytes) -> Hop:
        token, number, transaction = value.decode().split("/")
        return cls(token, int(number), transaction)

    @property
    def value(self) -> bytes:
        return f"{self.token}/{self.number}/{self.transaction}".encode()


@dataclass
class TransferHistory:
    """Everything observed. Filled by the threads of the clients."""

    written: dict[str, list[Hop]] = field(default_factory=dict)
    """Per transaction what it wanted to write."""
    asked: set[str] = field(default_factory=set)
    """Transactions that were to be committed."""
    told: dict[str, bool] = field(default_factory=dict)
    """Whether a transaction is committed, as its client said."""
    read: list[tuple[Place, Hop]] = field(default_factory=list)
    read_by: dict[str, list[tuple[Place, Hop]]] = field(default_factory=dict)
    """Per transaction what it was made of."""

    def anomalies(self, log: dict[int, dict[int, Hop]]) -> list[str]:
        """Every contradiction between the history and what can be read in the end."""
        hops = [hop for records in log.values() for hop in records.values()]
        return [
            *self._tokens(log),
            *self._torn(hops),
            *self._aborted([*hops, *(hop for _, hop in self.read)]),
            *self._inconsistent(log),
            *_cycles(hops),
        ]

    def _tokens(self, log: dict[int, dict[int, Hop]]) -> list[str]:
        """Of each token the first two places that are wrong: whatever follows comes from them."""
        places: dict[str, dict[int, list[tuple[Place, Hop]]]] = defaultdict(dict)
        for partition, records in log.items():
            for offset, hop in records.items():
                found = places[hop.token].setdefault(hop.number, [])
                found.append(((partition, offset), hop))
        wrong = []
        for token, numbers in places.items():
            twice = [n for n in sorted(numbers) if len(numbers[n]) > 1]
            wrong += [f"duplicated: {token} at hop {n}: {self._by(numbers[n])}" for n in twice[:2]]
            gaps = [n for n in range(max(numbers)) if n not in numbers]
            wrong += [f"lost: {token} at hop {n}" for n in gaps[:2]]
        return wrong

    def _by(self, records: list[tuple[Place, Hop]]) -> str:
        """Who wrote these, what became of it, and where each says to have read it."""
        said = []
        for (partition, offset), hop in records:
            told = {True: "committed", False: "aborted", None: "unknown"}
            became = told[self.told.get(hop.transaction)]
            read = [
                place
                for place, before in self.read_by.get(hop.transaction, ())
                if (before.token, before.number) == (hop.token, hop.number - 1)
            ]
            said.append(f"{hop.transaction} ({became}) read {read} wrote {partition}:{offset}")
        return "; ".join(said)

    def _torn(self, hops: list[Hop]) -> list[str]:
        visible: dict[str, list[Hop]] = defaultdict(list)
        for hop in hops:
            visible[hop.transaction].append(hop)
        found = []
        for name, wanted in self.written.items():
            seen = visible.get(name, [])
            if seen and sorted(seen) != sorted(wanted):
                found.append(f"torn: {name} wrote {len(wanted)}, {len(seen)} can be read")
            if self.told.get(name) and wanted and not seen:
                found.append(f"unacknowledged: nothing of {name} can be read")
        return found

    def _aborted(self, hops: list[Hop]) -> list[str]:
        never = {name for name in self.written if name not in self.asked}
        never |= {name for name, is_committed in self.told.items() if not is_committed}
        return [f"aborted read: {hop}" for hop in dict.fromkeys(hops) if hop.transaction in never]

    def _inconsistent(self, log: dict[int, dict[int, Hop]]) -> list[str]:
        return [
            f"inconsistent: {hop} was read at {place}, there is {found}"
            for place, hop in self.read
            if (found := log.get(place[0], {}).get(place[1])) != hop
        ]


def _cycles(hops: list[Hop]) -> list[str]:
    """Of ``B read what A wrote``: B wrote the next hop of a token of A's."""
    writer = {(hop.token, hop.number): hop.transaction for hop in hops}
    after: dict[str, set[str]] = defaultdict(set)
    for (token, number), name in writer.items():
        before = writer.get((token, number - 1))
        if before is not None:
            after[before].add(name)
    state: dict[str, int] = {}
    for start in list(after):
        path = [(start, iter(sorted(after[start])))]
        while path and state.get(start) != 2:
            name, following = path[-1]
            state[name] = 1
            step = next(following, None)
            if step is None:
                state[name] = 2
                path.pop()
            elif state.get(step) == 1:
                return [f"cycle: {name} reads of itself, through {step}"]
            elif state.get(step) != 2:
                path.append((step, iter(sorted(after.get(step, ())))))
    return []
