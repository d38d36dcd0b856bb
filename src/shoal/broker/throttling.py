"""Quotas at work: what requests cost is counted when they are answered; who did too much waits.

Rule: the answer leaves at once and says how long the wait is (``throttle_time_ms``); then the
broker reads nothing from that connection until it is over (KIP-219). A client that believes the
answer is not delayed twice, one that does not is delayed all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import TYPE_CHECKING, Final

from shoal.access.quotas import QuotaKey, Quotas
from shoal.errors import ErrorCode
from shoal.wire.apis.registry import ApiKey

if TYPE_CHECKING:
    from shoal.broker.counters import Counters
    from shoal.broker.dispatch import Call

# Before these, a client does not know the error, and the broker makes it wait afterwards.
_STRICT_FROM: Final[dict[int, int]] = {
    ApiKey.CREATE_TOPICS: 6,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.CREATE_PARTITIONS: 3,
}


class Throttling:
    """The quotas of a broker, and its clock."""

    def __init__(self, quotas: Quotas, now_ms: Callable[[], float], counters: Counters) -> None:
        self.quotas = quotas
        self._now_ms = now_ms
        self._counters = counters

    def wait_ms(self, call: Call, reply_bytes: int) -> int:
        """Count a request that is about to be answered; how long its client has to wait."""
        user, client_id, now_ms = call.session.user, call.client_id or "", self._now_ms()
        charge = self.quotas.charge
        wait_ms = call.mutations_wait_ms
        if call.api_key == ApiKey.PRODUCE:
            by_bytes = charge(QuotaKey.PRODUCE, user, client_id, call.size_bytes, now_ms)
            wait_ms = max(wait_ms, by_bytes)
        elif call.api_key == ApiKey.FETCH:
            by_bytes = charge(QuotaKey.FETCH, user, client_id, reply_bytes, now_ms)
            wait_ms = max(wait_ms, by_bytes)
        percent = call.loop_seconds * 100
        wait_ms = max(wait_ms, charge(QuotaKey.REQUEST, user, client_id, percent, now_ms))
        if wait_ms > 0:
            self._counters.throttled += 1
            self._counters.throttled_seconds += wait_ms / 1000
        return ceil(wait_ms)

    def charge_mutations(self, call: Call, amount: int) -> ErrorCode:
        """Count so many partitions that are about to be made or removed, or refuse them."""
        user, client_id, now_ms = call.session.user, call.client_id or "", self._now_ms()
        waiting_ms = self.quotas.mutations_wait_ms(user, client_id, now_ms)
        if waiting_ms > 0 and call.api_version >= _STRICT_FROM[call.api_key]:
            call.mutations_wait_ms = waiting_ms
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        call.mutations_wait_ms = self.quotas.charge_mutations(user, client_id, amount, now_ms)
        return ErrorCode.NONE

    def fetch_bytes_max(self, call: Call) -> int | None:
        """What one fetch may take at most."""
        return self.quotas.fetch_bytes_max(call.session.user, call.client_id or "")
