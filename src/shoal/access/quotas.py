"""Quotas: how much a user or a client may do per second, and how long who did more has to wait.

Which quota counts is Kafka's rule (KIP-13, KIP-124, KIP-546). A quota is set for an entity: a
user, a client id, both, or the default of either. Of all that fit, the most exact that has the key
counts, and all connections that share its names share its rate.

How a rate is held is not. Kafka takes the average of eleven windows of a second: ten seconds'
worth go through at once, next to nothing for ten seconds, and when the window of the burst is
forgotten the next burst follows; 30 seconds hold a fifth too much or too little, as they happen to
lie. Here what is done is paid for with time, at so much per second. Who was quiet has up to two
seconds to spend at once; whoever has spent more than there was waits until it is paid. So a client
that comes back late loses nothing, and any 30 seconds hold the rate.

Rule: nothing here looks at a clock; every call is told the time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from math import isfinite
from typing import Final, NamedTuple, TypeAlias

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

# So much of its time anybody may use at once. Over 30 seconds a burst and an answer are a tenth.
_BURST_MS: Final = 2_000
_FETCH_MS: Final = 1_000
# A group that starts connects together, and one request makes many partitions: as in Kafka.
_CONNECTIONS_BURST_MS: Final = 10_000
_MUTATIONS_BURST_MS: Final = 11_000
# The broker's time is shared by everybody: one long request does not shut anybody out for long.
_REQUEST_WAIT_MAX_MS: Final = 1_000
_REQUEST_DEBT_MAX_MS: Final = 10_000
_RATES_MAX: Final = 10_000
_FORGOTTEN_AFTER_MS: Final = 3_600_000

QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Pairs of a type and a name, the user first. None is the default of a type."""


class QuotaKey(Enum):
    """What can be limited, with Kafka's name for it."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"
    CONNECTION = "connection_creation_rate"

    @property
    def is_whole(self) -> bool:
        return self in (QuotaKey.PRODUCE, QuotaKey.FETCH, QuotaKey.CONNECTION)


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """In the one order in which entities are compared."""
    return tuple(sorted(parts, key=lambda part: part[0] != USER))


def entity_problem(parts: list[tuple[str, str | None]]) -> str:
    """Why there can be no quota for this; empty if there can."""
    if not parts:
        return "the entity is empty; name a user, a client id or an ip"
    for kind, name in parts:
        if kind not in (USER, CLIENT_ID, IP):
            return f"entity type {kind!r} is not {USER}, {CLIENT_ID} or {IP}"
        if name == "":
            return f"the {kind} has an empty name; null stands for the default"
        if kind == IP and len(parts) > 1:
            return "an ip goes with no user and no client id"
        if kind == IP and name is not None and not is_address(name):
            return f"{name!r} is not an address"
    return ""


def is_address(text: str) -> bool:
    from ipaddress import ip_address

    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def value_problem(key: str, value: float | None, *, of_ip: bool = False) -> str:
    """Why a quota cannot be this; empty if it can. None removes it."""
    known = {each.value: each for each in QuotaKey if of_ip == (each is QuotaKey.CONNECTION)}
    if key not in known:
        return f"quota {key!r} is not one of {', '.join(known)}"
    if value is None:
        return ""
    if not isfinite(value) or value <= 0:
        return f"{key} must be more than 0, not {value}"
    if known[key].is_whole and value != int(value):
        return f"{key} must be a whole number, not {value}"
    return ""


class Limit(NamedTuple):
    """What counts for somebody, and who shares the rate."""

    per_second: float
    shared_by: tuple[str, str, str]


class _Pace:
    """What was done, as time: until when it is paid for at so much per second."""

    __slots__ = ("_burst_ms", "_debt_max_ms", "_paid_until_ms", "last_ms")

    def __init__(self, burst_ms: int, debt_max_ms: int, now_ms: float) -> None:
        self._burst_ms = burst_ms
        self._debt_max_ms = debt_max_ms
        self._paid_until_ms = now_ms - burst_ms
        self.last_ms = now_ms

    def charge(self, amount: float, limit: float, now_ms: float) -> float:
        """Count what was done; how many milliseconds nothing more may be."""
        self.last_ms = now_ms
        # Time in which less was done than might have been is kept, but no more than a burst of it.
        begins = max(self._paid_until_ms, now_ms - self._burst_ms)
        self._paid_until_ms = min(begins + amount / limit * 1000, now_ms + self._debt_max_ms)
        return self.wait_ms(now_ms)

    def wait_ms(self, now_ms: float) -> float:
        return max(0.0, self._paid_until_ms - now_ms)


class Quotas:
    """All quotas, and what everybody did lately."""

    def __init__(self) -> None:
        self._values: dict[QuotaEntity, dict[str, float]] = {}
        self._limits: dict[tuple[QuotaKey, str, str], Limit | None] = {}
        self._paces: OrderedDict[tuple[str, str, str], _Pace] = OrderedDict()

    @property
    def is_set(self) -> bool:
        """Whether anybody has a quota at all."""
        return bool(self._values)

    def __iter__(self) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
        return iter(self._values.items())

    def of(self, entity: QuotaEntity) -> Mapping[str, float]:
        """What is set for exactly this entity."""
        return self._values.get(entity, {})

    def replace(self, entity: QuotaEntity, values: Mapping[str, float]) -> None:
        """These are the quotas of an entity from now on."""
        if values:
            self._values[entity] = dict(values)
        else:
            self._values.pop(entity, None)
        self._limits.clear()
        # What was owed by the old quota may be hours by it, and a moment by the new one.
        self._paces.clear()

    def limit(self, key: QuotaKey, user: str, client_id: str) -> Limit | None:
        """The most exact quota that fits; None if nothing limits them."""
        asked = key, user, client_id
        if asked not in self._limits:
            if len(self._limits) >= _RATES_MAX:
                self._limits.clear()
            self._limits[asked] = self._find(*asked)
        return self._limits[asked]

    def _find(self, key: QuotaKey, user: str, client_id: str) -> Limit | None:
        for entity in _candidates(user, client_id):
            found = self._values.get(entity, {}).get(key.value)
            if found is not None:
                types = {kind for kind, _ in entity}
                shared = (
                    key.value,
                    user if USER in types else "",
                    client_id if CLIENT_ID in types else "",
                )
                return Limit(found, shared)
        return None

    def charge(
        self, key: QuotaKey, user: str, client_id: str, amount: float, now_ms: float
    ) -> float:
        """Count what was done; how many milliseconds they have to wait now."""
        limit = self.limit(key, user, client_id)
        if limit is None:
            return 0.0
        is_time = key is QuotaKey.REQUEST
        debt_max_ms = _REQUEST_DEBT_MAX_MS if is_time else _FORGOTTEN_AFTER_MS
        pace = self._pace(limit.shared_by, now_ms, _BURST_MS, debt_max_ms)
        wait_ms = pace.charge(amount, limit.per_second, now_ms)
        return min(wait_ms, _REQUEST_WAIT_MAX_MS) if is_time else wait_ms

    def charge_connection(self, address: str, now_ms: float) -> float:
        """Count a new connection; how many milliseconds it is one too many."""
        for entity in (((IP, address),), ((IP, None),)):
            limit = self._values.get(entity, {}).get(QuotaKey.CONNECTION.value)
            if limit is not None:
                break
        else:
            return 0.0
        shared = (QuotaKey.CONNECTION.value, address, "")
        pace = self._pace(shared, now_ms, _CONNECTIONS_BURST_MS)
        wait_ms = pace.charge(1, limit, now_ms)
        if wait_ms:
            pace.charge(-1, limit, now_ms)  # it is turned away, so it was none
        return wait_ms

    def charge_mutations(self, user: str, client_id: str, amount: int, now_ms: float) -> float:
        """Count changes of topics; how many milliseconds until there is room for more."""
        limit = self.limit(QuotaKey.MUTATION, user, client_id)
        if limit is None:
            return 0.0
        pace = self._pace(limit.shared_by, now_ms, _MUTATIONS_BURST_MS)
        return pace.charge(amount, limit.per_second, now_ms)

    def mutations_wait_ms(self, user: str, client_id: str, now_ms: float) -> float:
        """How long a change of topics would have to wait."""
        limit = self.limit(QuotaKey.MUTATION, user, client_id)
        if limit is None or limit.shared_by not in self._paces:
            return 0.0
        return self._paces[limit.shared_by].wait_ms(now_ms)

    def _pace(
        self,
        shared_by: tuple[str, str, str],
        now_ms: float,
        burst_ms: int,
        debt_max_ms: int = _FORGOTTEN_AFTER_MS,
    ) -> _Pace:
        """The one that all of these names share; those that nobody uses are forgotten."""
        paces = self._paces
        pace = paces.get(shared_by)
        if pace is None:
            pace = paces[shared_by] = _Pace(burst_ms, debt_max_ms, now_ms)
        paces.move_to_end(shared_by)
        while len(paces) > 1:
            oldest = next(iter(paces.values()))
            is_idle = now_ms - oldest.last_ms > _FORGOTTEN_AFTER_MS
            if not is_idle and len(paces) <= _RATES_MAX:
                break
            paces.popitem(last=False)
        return pace

    def fetch_bytes_max(self, user: str, client_id: str) -> int | None:
        """What one fetch may take at most: an answer is waited for when it is out, as a whole."""
        limit = self.limit(QuotaKey.FETCH, user, client_id)
        return None if limit is None else int(limit.per_second * _FETCH_MS / 1000)


def _candidates(user: str, client_id: str) -> Iterator[QuotaEntity]:
    """From the most exact to the least."""
    for name in (user, None):
        yield (USER, name), (CLIENT_ID, client_id)
        yield (USER, name), (CLIENT_ID, None)
        yield ((USER, name),)
    yield ((CLIENT_ID, client_id),)
    yield ((CLIENT_ID, None),)
