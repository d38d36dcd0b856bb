"""Moments as people write them: a time, or how long ago."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Final

from shoal.errors import ConfigError

_AGO: Final = re.compile(r"(\d+)(s|m|h|d)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def time_ms(text: str, others: str = "") -> int:
    """A moment as milliseconds: ``2026-01-31T12:00``, or ``15m`` for fifteen minutes ago.

    Args:
        others: what the caller would have taken instead of a time, for the error.
    """
    if match := _AGO.fullmatch(text):
        # No record is older than 1970: before that is the beginning.
        return max(0, int(time.time() * 1000) - int(match[1]) * _SECONDS[match[2]] * 1000)
    try:
        moment = datetime.fromisoformat(text)
        if moment.year < 1970:
            return 0
        moment = moment if moment.tzinfo else moment.astimezone()
        return max(0, int(moment.timestamp() * 1000))
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{text!r} is not a valid {'position' if others else 'time'}: use {others}a time such "
            "as 2026-01-31T12:00, or 15m for fifteen minutes ago"
        ) from None
