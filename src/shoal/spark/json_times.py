"""Dates and times in JSON text, by the rules of Spark's casts: lenient in form, strict in value.

``[+-]yyyy[-[m]m[-[d]d]]``, then ``T`` or a space and ``[h]h:[m]m:[s]s[.fraction][zone]``; a time
alone means today. A time that names no zone is in the session's. What does not exist in a zone
(the hour that is left out in spring) is moved on by the gap; what exists twice is the first.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_TRIMMED: Final = "".join(map(chr, range(0x21))) + "\x7f"
_DATE: Final = re.compile(
    r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL
)
_TIME: Final = (
    r"([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*)([^0-9].*)?|([^0-9.].*))?)?)?"
)
_TIMESTAMP: Final = re.compile(
    rf"([+-]?)([0-9]{{4,6}})(?:-([0-9]{{1,2}})(?:-([0-9]{{1,2}})(?:[ T]{_TIME})?)?)?", re.DOTALL
)
_TIME_ALONE: Final = re.compile(rf"(?:T|(?=[0-9]{{1,2}}:)){_TIME}", re.DOTALL)
_OFFSET: Final = re.compile(
    r"([+-])(?:([0-9])|([0-9]{2})(?::([0-9]{2})(?::([0-9]{2}))?|([0-9]{2})([0-9]{2})?)?)"
)
_PREFIXED: Final = re.compile(r"(UTC|GMT|UT)([+-].*)?")
_SINGLE_HOUR: Final = re.compile(r"([+-])([0-9]):")
_SINGLE_MINUTE: Final = re.compile(r"([+-][0-9]{2}):([0-9])$")
# Java's short names of zones.
_SHORT: Final = {
    "EST": "-05:00",
    "HST": "-10:00",
    "MST": "-07:00",
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}
_DAY_US: Final = 86_400_000_000
_LONGEST_OFFSET_S: Final = 18 * 3600


def timestamp_of(text: str, zone: str) -> int | None:
    """Microseconds since 1970, or nothing if the text is not a timestamp."""
    found = _local(text)
    if found is None:
        found = _local(text.replace("GMT", ""))  # as Spark 1 wrote them
    if found is None:
        return None
    days, micros, named = found
    try:
        where = _zone(zone if named is None else named.strip(_TRIMMED))
    except ValueError:
        return None
    if days is None:
        days = (datetime.fromtimestamp(time.time(), where).date() - date(1970, 1, 1)).days
    instant = days * _DAY_US + micros - _offset_us(days, micros, where)
    return instant if -(2**63) <= instant < 2**63 else None


def local_timestamp_of(text: str) -> int | None:
    """The same without a zone, which must not be named."""
    found = _local(text)
    if found is None or found[0] is None or found[2] is not None:
        return None
    instant = found[0] * _DAY_US + found[1]
    return instant if -(2**63) <= instant < 2**63 else None


def date_of(text: str) -> int | None:
    """Days since 1970, or nothing if the text is not a date."""
    trimmed = text.strip(_TRIMMED)
    match = _DATE.fullmatch(trimmed) or _DATE.fullmatch(trimmed.replace("GMT", ""))
    if match is not None:
        days = _days(match)
        if days is not None:
            return days
    # Days as a number, as Spark 1.5 wrote them.
    if re.fullmatch(r"[+-]?[0-9]+", text) and -(2**31) <= int(text) < 2**31:
        return int(text)
    return None


def _local(text: str) -> tuple[int | None, int, str | None] | None:
    """The days (none: today), the time of day and the zone that a text names."""
    trimmed = text.strip(_TRIMMED)
    match = _TIMESTAMP.fullmatch(trimmed)
    days: int | None = None
    if match is not None:
        days = _days(match)
        if days is None:
            return None
    else:
        # A T that begins the time must be the very first character.
        match = _TIME_ALONE.fullmatch(trimmed if text[:1] == "T" else trimmed.replace("T", "x", 1))
        if match is None:
            return None
    hour, minute, second, fraction, zone, plain_zone = match.groups()[-6:]
    if int(hour or 0) > 23 or int(minute or 0) > 59 or int(second or 0) > 59:
        return None
    micros = ((int(hour or 0) * 60 + int(minute or 0)) * 60 + int(second or 0)) * 1_000_000
    return days, micros + int((fraction or "")[:6].ljust(6, "0")), zone or plain_zone


def _days(match: re.Match[str]) -> int | None:
    sign, year, month, day = match.group(1, 2, 3, 4)
    return _days_of(-int(year) if sign == "-" else int(year), int(month or 1), int(day or 1))


def _days_of(year: int, month: int, day: int) -> int | None:
    """Days since 1970 in a calendar without an end; ``datetime`` knows years 1 to 9999."""
    if not 1 <= month <= 12:
        return None
    cycles, place = divmod(year, 400)
    try:
        inside = date(place + 2000, month, day)
    except ValueError:
        return None
    return (inside - date(1970, 1, 1)).days + (cycles - 5) * 146_097


def _zone(name: str) -> ZoneInfo | timezone:
    """A zone by any of the names Java has for it.

    Raises:
        ValueError: there is none of that name.
    """
    name = _SINGLE_HOUR.sub(r"\g<1>0\2:", name, count=1)
    name = _SINGLE_MINUTE.sub(r"\1:0\2", name)
    name = _SHORT.get(name, name)
    if name == "Z":
        return UTC
    prefixed = _PREFIXED.fullmatch(name)
    if prefixed is not None:
        return _fixed(prefixed[2]) if prefixed[2] else UTC
    if name[:1] in ("+", "-"):
        return _fixed(name)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError) as error:
        raise ValueError(str(error)) from None


def _fixed(text: str) -> timezone:
    match = _OFFSET.fullmatch(text)
    if match is None:
        raise ValueError(f"no offset: {text}")
    hours, minutes, seconds = (
        int(part or 0)
        for part in (match[2] or match[3], match[4] or match[6], match[5] or match[7])
    )
    total = (hours * 60 + minutes) * 60 + seconds
    if minutes > 59 or seconds > 59 or total > _LONGEST_OFFSET_S:
        raise ValueError(f"no offset: {text}")
    return timezone(timedelta(seconds=-total if match[1] == "-" else total))


def _offset_us(days: int, micros: int, where: ZoneInfo | timezone) -> int:
    """How far a zone is from UTC at a local time."""
    try:
        moment = datetime(1970, 1, 1) + timedelta(days=days, microseconds=micros)  # noqa: DTZ001 - local on purpose
    except OverflowError:
        # Rules of daylight saving repeat every 400 years; before year 1 nothing changes.
        place = days % 146_097 + 146_097 * 2 if days > 0 else -719_162
        moment = datetime(1970, 1, 1) + timedelta(days=place, microseconds=micros)  # noqa: DTZ001 - as above
    offset = where.utcoffset(moment.replace(tzinfo=where))
    assert offset is not None
    return offset // timedelta(microseconds=1)
