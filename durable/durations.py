"""Durations as people write them: a timedelta, a number of seconds, or text such as "1h30m"."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import TypeAlias

import durationpy

from durable.errors import InvalidDuration

Duration: TypeAlias = timedelta | int | float | str

LONGEST = timedelta(days=365 * 1000)
_HELP = 'use a timedelta, a number of seconds, or text such as "90s", "1h30m", "3d", "2w"'
_TEXT = re.compile(r"[+-]?(0|([\d.]+[a-zµμ]+\s*)+)")


def parse(duration: object) -> timedelta:
    """Return the timedelta that a duration means."""
    length = _read(duration)
    if length < timedelta():
        raise InvalidDuration(f"the duration {duration!r} is negative: {_HELP}")
    if length > LONGEST:
        raise InvalidDuration(f"the duration {duration!r} is longer than a thousand years: {_HELP}")
    return length


def _read(duration: object) -> timedelta:
    if isinstance(duration, timedelta):
        return duration
    if isinstance(duration, bool):
        raise InvalidDuration(f"{duration!r} is not a duration: {_HELP}")
    if isinstance(duration, int | float):
        return _seconds(duration)
    if isinstance(duration, str):
        return _text(duration)
    raise InvalidDuration(f"{duration!r} is not a duration: {_HELP}")


def _seconds(number: float) -> timedelta:
    if isinstance(number, float) and not math.isfinite(number):
        raise InvalidDuration(f"{number!r} is not a duration: {_HELP}")
    try:
        return timedelta(seconds=number)
    except OverflowError:
        raise InvalidDuration(f"a duration of so many seconds is longer than a thousand years: {_HELP}") from None


def _text(text: str) -> timedelta:
    wrong = InvalidDuration(f"cannot read the duration {text!r}: {_HELP}")
    if not _TEXT.fullmatch(text.strip()):  # durationpy overlooks what stands between two parts, a minus sign too
        raise wrong
    try:
        return durationpy.from_str(text.strip())
    except (durationpy.DurationError, OverflowError, ValueError):
        raise wrong from None
