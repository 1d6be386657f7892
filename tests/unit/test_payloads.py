"""What may be kept in a row: strict JSON."""

from __future__ import annotations

import json
from collections import OrderedDict, namedtuple
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable import DurableError, NotJson
from durable.payloads import encode

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner))


class Size(StrEnum):
    LARGE = "large"


class Level(IntEnum):
    HIGH = 3


Point = namedtuple("Point", "x y")


def encoded(value, limit=1_000_000):
    return encode(value, what="the result", limit=limit)


def refusal(value):
    with pytest.raises(NotJson) as refused:
        encoded(value)
    return str(refused.value)


@given(JSON)
def test_any_json_value_is_read_as_it_was_written(value):
    assert json.loads(encoded(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ({}, "{}"),
        ({"a": [1, 2.5, True, None]}, '{"a":[1,2.5,true,null]}'),
        ("Zürich 🚲", '"Zürich 🚲"'),
        ((1, 2), "[1,2]"),
        (Point(1, 2), "[1,2]"),
        (OrderedDict(b=1, a=2), '{"b":1,"a":2}'),
        ({Size.LARGE: Size.LARGE}, '{"large":"large"}'),
        (Level.HIGH, "3"),
        (2**200, str(2**200)),
    ],
    ids=repr,
)
def test_what_is_nearly_json_is_kept_as_json(value, text):
    assert encoded(value) == text


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (datetime(2026, 1, 1, tzinfo=UTC), "a datetime at $"),
        ({"paid": Decimal("9.90")}, "a Decimal at $.paid"),
        ({"orders": [{"id": 1}, {"id": UUID(int=0)}]}, "a UUID at $.orders[1].id"),
        ([1, (2, {3})], "a set at $[1][1]"),
        ({"photo": b"..."}, "a bytes at $.photo"),
        ([object()], "a object at $[0]"),
        (lambda: None, "a function at $"),
        ((x for x in "abc"), "a generator at $"),
        (1j, "a complex at $"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_json_is_named_with_its_path(value, says):
    message = refusal(value)

    assert message.startswith("the result has ")
    assert says in message
    assert "return plain dicts, lists, text, numbers, booleans and None" in message


@pytest.mark.parametrize("key", [1, None, ("a", "b"), True, 2.5, b"a"], ids=repr)
def test_the_keys_of_an_object_are_text(key):
    message = refusal({"orders": [{key: 1}]})

    assert message == f"the result has the key {key!r} at $.orders[0]: the keys of a JSON object are text"


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_a_number_is_refused(number):
    assert refusal({"rate": number}) == f"the result has {number!r} at $.rate, which JSON cannot hold"


def test_a_number_of_thousands_of_digits_is_refused():
    assert refusal([0, 10**5000]) == "the result has a number of some thousand digits at $[1]: keep it as text"


@pytest.mark.parametrize("value", [{"note": "a\x00b"}, {"note": ["a\x00b"]}, {"a\x00b": 1}], ids=repr)
def test_a_nul_byte_is_refused(value):
    message = refusal(value)

    assert "a NUL byte in the text at $" in message


@pytest.mark.parametrize("value", ["\ud800", {"note": "ab\udfff"}, {"\ud800": 1}], ids=ascii)
def test_a_lone_surrogate_is_refused(value):
    assert "a lone surrogate) in the text at $" in refusal(value)


def nested(depth, wrap):
    value = 1
    for _ in range(depth):
        value = wrap(value)
    return value


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"in": inner}], ids=["list", "dict"])
def test_a_value_nested_too_deep_is_refused(wrap):
    assert encoded(nested(200, wrap))
    assert refusal(nested(201, wrap)) == "the result is nested deeper than 200 levels, or contains itself"
    assert refusal(nested(10_000, wrap)) == "the result is nested deeper than 200 levels, or contains itself"


def test_a_value_that_contains_itself_is_refused():
    circle: dict[str, object] = {}
    circle["again"] = [circle]

    assert "contains itself" in refusal(circle)


def test_the_limit_is_in_bytes_of_json():
    assert encoded("ü" * 10, limit=22)
    with pytest.raises(NotJson, match="the result is 22 bytes of JSON, more than the 21 allowed: keep the large part"):
        encoded("ü" * 10, limit=21)


def test_a_wrong_payload_is_a_value_error_and_one_of_ours():
    with pytest.raises(ValueError) as refused:
        encoded(object())
    assert isinstance(refused.value, DurableError)
