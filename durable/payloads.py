"""What may be kept in a row: strict JSON, so that what is read later is what was written.

With one exception: Postgres gives floats from about 1e16 on back as whole numbers.
"""

from __future__ import annotations

import json
import math

from durable.errors import NotJson

_DEEPEST = 200
_MOST_BITS = 10_000
_HELP = "return plain dicts, lists, text, numbers, booleans and None"


def encode(value: object, *, what: str, limit: int | None = None) -> str:
    """Return the JSON text of a value, or raise `NotJson` with the path of what is not JSON."""
    _check(value, what, "$", 0)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    size = len(text.encode())
    if limit is not None and size > limit:
        raise NotJson(
            f"{what} is {size:,} bytes of JSON, more than the {limit:,} allowed: keep the large part in a table "
            "or a file of your own and its key here (or raise max_payload)"
        )
    return text


def _check(value: object, what: str, path: str, depth: int) -> None:
    if depth > _DEEPEST:
        raise NotJson(f"{what} is nested deeper than {_DEEPEST} levels, or contains itself")
    if isinstance(value, str):
        _check_text(value, what, path)
    elif value is None or isinstance(value, bool | int | float):
        _check_number(value, what, path)
    elif isinstance(value, dict):
        _check_object(value, what, path, depth)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check(item, what, f"{path}[{index}]", depth + 1)
    else:
        raise NotJson(f"{what} has a {type(value).__qualname__} at {path}, which is not JSON: {_HELP}")


def _check_object(value: dict[object, object], what: str, path: str, depth: int) -> None:
    for key, item in value.items():
        if not isinstance(key, str):
            raise NotJson(f"{what} has the key {key!r} at {path}: the keys of a JSON object are text")
        _check_text(key, what, path)
        _check(item, what, f"{path}.{key}", depth + 1)


def _check_number(value: object, what: str, path: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise NotJson(f"{what} has {value!r} at {path}, which JSON cannot hold")
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise NotJson(f"{what} has a number of some thousand digits at {path}: keep it as text")


def _check_text(text: str, what: str, path: str) -> None:
    if "\x00" in text:
        raise NotJson(f"{what} has a NUL byte in the text at {path}, which Postgres cannot keep")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NotJson(f"{what} has invalid unicode (a lone surrogate) in the text at {path}") from None
