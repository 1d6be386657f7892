"""Durations as people write them."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable import DurableError, InvalidDuration
from durable.durations import LONGEST, parse


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (timedelta(days=3), 3 * 86_400),
        (timedelta(), 0),
        (0, 0),
        (90, 90),
        (1.5, 1.5),
        (True + 1, 2),
        ("90s", 90),
        ("1h30m", 5_400),
        ("1h 30m", 5_400),
        ("3d", 3 * 86_400),
        ("2w", 14 * 86_400),
        ("1.5h", 5_400),
        ("250ms", 0.25),
        ("1w2d3h4m5s", 7 * 86_400 + 2 * 86_400 + 3 * 3_600 + 4 * 60 + 5),
        ("  5m  ", 300),
        ("+5m", 300),
        ("0", 0),
        ("0s", 0),
    ],
    ids=repr,
)
def test_a_duration_means_what_it_says(written, seconds):
    assert parse(written) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "written",
    [-1, -0.5, timedelta(microseconds=-1), "-5m", "-1h30m"],
    ids=repr,
)
def test_a_duration_is_not_negative(written):
    with pytest.raises(InvalidDuration, match=r"is negative: use a timedelta"):
        parse(written)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "   ",
        "soon",
        "90",
        "5 parsecs",
        "5S",
        "m5",
        "1h30",
        "1h-30m",
        "1h and 30m",
        "1h,30m",
        "1..5h",
        ".s",
        "1e3s",
        "nan",
        "infs",
        "--5m",
        "P3D",
        "5m\x00",
        "9" * 400 + "d",
    ],
    ids=lambda text: repr(text[:12]),
)
def test_text_that_is_no_duration_is_refused(written):
    with pytest.raises(InvalidDuration, match=r"cannot read the duration .*: use a timedelta"):
        parse(written)


@pytest.mark.parametrize(
    "written",
    [None, True, False, b"5m", [5], {"minutes": 5}, object, Decimal(5), 5j, float("nan"), float("inf")],
    ids=repr,
)
def test_a_value_that_is_no_duration_is_refused(written):
    with pytest.raises(InvalidDuration, match=r"is not a duration: use a timedelta"):
        parse(written)


@pytest.mark.parametrize(
    "written",
    [LONGEST + timedelta(seconds=1), timedelta.max, 10**12, 1e300, 10**400, 10**5000, "1001y"],
    ids=["timedelta", "the longest timedelta", "seconds", "float", "beyond float", "beyond text", "text"],
)
def test_a_duration_is_no_longer_than_a_thousand_years(written):
    with pytest.raises(InvalidDuration, match="longer than a thousand years"):
        parse(written)


def test_a_wrong_duration_is_a_value_error_and_one_of_ours():
    with pytest.raises(ValueError) as refused:
        parse("soon")
    assert isinstance(refused.value, DurableError)


@given(st.timedeltas(min_value=timedelta(), max_value=LONGEST))
def test_every_timedelta_up_to_a_thousand_years_is_itself(length):
    assert parse(length) is length


@given(st.integers(0, 9_999), st.integers(0, 9_999), st.integers(0, 9_999))
def test_the_parts_of_a_text_add_up(hours, minutes, seconds):
    text = f"{hours}h{minutes}m{seconds}s"

    assert parse(text) == timedelta(hours=hours, minutes=minutes, seconds=seconds)


@given(st.text() | st.floats() | st.integers() | st.booleans() | st.none())
def test_whatever_is_given_either_means_a_duration_or_is_refused(written):
    try:
        length = parse(written)
    except InvalidDuration:
        return
    assert timedelta() <= length <= LONGEST
