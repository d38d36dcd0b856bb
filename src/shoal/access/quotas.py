"""Quotas: how much a user or a client may do per second, and how long who did more has to wait.

The rules are Kafka's (KIP-13, KIP-124, KIP-546). A quota is set for an entity: a user, a client id,
both, or the default of either. Of all that fit, the most exact that has the key counts, and all
connections that share its names share its rate.

A rate is measured over eleven windows of a second, so a client may burst for ten seconds' worth
and is then held back until its average fits: what is over the limit, divided by the limit, is the
time to wait. Changes of topics have a bucket of tokens instead: one request may be many of them.

Rule: nothing here looks at a clock; every call is told the time.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from math import isfinite
from typing import Final, NamedTuple, TypeAlias

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

_WINDOW_MS: Final = 1_000
_WINDOWS: Final = 11
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


class _Rate:
    """What was done in the last eleven windows."""

    __slots__ = ("_windows", "last_ms")

    def __init__(self) -> None:
        self._windows: deque[list[float]] = deque()
        self.last_ms = 0

    def record(self, amount: float, now_ms: int) -> None:
        self.last_ms = now_ms
        windows = self._windows
        if not windows or now_ms - windows[-1][0] >= _WINDOW_MS:
            windows.append([now_ms, 0.0])
        windows[-1][1] += amount
        self._forget(now_ms)

    def _forget(self, now_ms: int) -> None:
        while self._windows and now_ms - self._windows[0][0] >= _WINDOWS * _WINDOW_MS:
            self._windows.popleft()

    def excess_ms(self, limit: float, now_ms: int) -> float:
        """How long nothing may be done until the average fits."""
        self._forget(now_ms)
        if not self._windows:
            return 0.0
        elapsed = now_ms - self._windows[0][0]
        # A new client is not judged by its first moment: the windows before it were empty.
        missing = _WINDOWS - 1 - elapsed // _WINDOW_MS
        elapsed += max(0, missing) * _WINDOW_MS
        rate = sum(amount for _, amount in self._windows) * 1000 / elapsed
        return max(0.0, (rate - limit) / limit * elapsed)


class _Tokens:
    """A bucket that fills with time; what is taken beyond it is a debt that is waited for."""

    __slots__ = ("_left", "last_ms")

    def __init__(self, limit: float, now_ms: int) -> None:
        self._left = limit * _WINDOWS * _WINDOW_MS / 1000
        self.last_ms = now_ms

    def _fill(self, limit: float, now_ms: int) -> None:
        full = limit * _WINDOWS * _WINDOW_MS / 1000
        earned = max(0, now_ms - self.last_ms) * limit / 1000
        self._left = min(full, self._left + earned)
        self.last_ms = now_ms

    def take(self, amount: float, limit: float, now_ms: int) -> None:
        self._fill(limit, now_ms)
        self._left -= amount

    def excess_ms(self, limit: float, now_ms: int) -> float:
        self._fill(limit, now_ms)
        return max(0.0, -self._left / limit * 1000)


class Quotas:
    """All quotas, and what everybody did lately."""

    def __init__(self) -> None:
        self._values: dict[QuotaEntity, dict[str, float]] = {}
        self._limits: dict[tuple[QuotaKey, str, str], Limit | None] = {}
        self._rates: OrderedDict[tuple[str, str, str], _Rate] = OrderedDict()
        self._buckets: OrderedDict[tuple[str, str, str], _Tokens] = OrderedDict()

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

    def charge(self, key: QuotaKey, user: str, client_id: str, amount: float, now_ms: int) -> float:
        """Count what was done; how many milliseconds they have to wait now."""
        limit = self.limit(key, user, client_id)
        if limit is None:
            return 0.0
        rate = self._rates.pop(limit.shared_by, None) or _Rate()
        self._rates[limit.shared_by] = rate
        rate.record(amount, now_ms)
        self._forget_idle(now_ms)
        wait_ms = rate.excess_ms(limit.per_second, now_ms)
        # Time is shared by everybody: one long request does not shut somebody out for long.
        return min(wait_ms, _WINDOW_MS) if key is QuotaKey.REQUEST else wait_ms

    def charge_connection(self, address: str, now_ms: int) -> float:
        """Count a new connection; how many milliseconds it is one too many."""
        for entity in (((IP, address),), ((IP, None),)):
            limit = self._values.get(entity, {}).get(QuotaKey.CONNECTION.value)
            if limit is not None:
                break
        else:
            return 0.0
        shared = (QuotaKey.CONNECTION.value, address, "")
        rate = self._rates.pop(shared, None) or _Rate()
        self._rates[shared] = rate
        rate.record(1, now_ms)
        self._forget_idle(now_ms)
        wait_ms = rate.excess_ms(limit, now_ms)
        if wait_ms:
            rate.record(-1, now_ms)  # it is turned away, so it was none
        return wait_ms

    def charge_mutations(self, user: str, client_id: str, amount: int, now_ms: int) -> float:
        """Count changes of topics; how many milliseconds until there is room for more."""
        limit = self.limit(QuotaKey.MUTATION, user, client_id)
        if limit is None:
            return 0.0
        bucket = self._buckets.pop(limit.shared_by, None) or _Tokens(limit.per_second, now_ms)
        self._buckets[limit.shared_by] = bucket
        bucket.take(amount, limit.per_second, now_ms)
        return bucket.excess_ms(limit.per_second, now_ms)

    def mutations_wait_ms(self, user: str, client_id: str, now_ms: int) -> float:
        """How long a change of topics would have to wait."""
        limit = self.limit(QuotaKey.MUTATION, user, client_id)
        if limit is None or limit.shared_by not in self._buckets:
            return 0.0
        return self._buckets[limit.shared_by].excess_ms(limit.per_second, now_ms)

    def _forget_idle(self, now_ms: int) -> None:
        while len(self._rates) > 1:
            oldest = next(iter(self._rates.values()))
            is_idle = now_ms - oldest.last_ms > _FORGOTTEN_AFTER_MS
            if not is_idle and len(self._rates) <= _RATES_MAX:
                break
            self._rates.popitem(last=False)

    def fetch_bytes_max(self, user: str, client_id: str) -> int | None:
        """What one fetch may take at most, so that it fits into the windows of its quota."""
        limit = self.limit(QuotaKey.FETCH, user, client_id)
        return None if limit is None else int(limit.per_second * (_WINDOWS - 1))


def _candidates(user: str, client_id: str) -> Iterator[QuotaEntity]:
    """From the most exact to the least."""
    for name in (user, None):
        yield (USER, name), (CLIENT_ID, client_id)
        yield (USER, name), (CLIENT_ID, None)
        yield ((USER, name),)
    yield ((CLIENT_ID, client_id),)
    yield ((CLIENT_ID, None),)
