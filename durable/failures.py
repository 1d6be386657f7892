"""What is kept of an exception: readable text, whatever the exception is made of."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

LONGEST = 64_000
_CUT = "\n… {} characters left out …\n"


@dataclass(frozen=True)
class Failure:
    """An exception as data."""

    error_class: str
    message: str
    traceback: str

    def __str__(self) -> str:
        first_line = self.message.partition("\n")[0]
        said = f"{self.error_class}: {first_line}" if first_line else self.error_class
        return _cut(said, 500).replace("\n", " ")


def describe(error: BaseException) -> Failure:
    """Return what is kept of an exception; never raises, however odd the exception is."""
    kind = type(error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return Failure(
        error_class=readable(f"{module}{kind.__qualname__}", 500),
        message=readable(_message(error)),
        traceback=readable(_traceback(error)),
    )


def describe_both(error: BaseException, handler: str, second: BaseException) -> Failure:
    """Return what is kept when the handler of an exception raised as well."""
    first, then = describe(error), describe(second)
    text = f"{first.traceback}\nThe handler {handler!r} was called with it and raised:\n\n{then.traceback}"
    message = f"{first.message}\n(its handler {handler!r} raised {then})"
    return Failure(first.error_class, readable(message), readable(text))


def readable(text: str, longest: int = LONGEST) -> str:
    """Make text fit for a column: no NUL, no lone surrogate, not too long."""
    clean = _cut(text, longest).replace("\x00", "\N{SYMBOL FOR NULL}")
    return clean.encode("utf-8", "replace").decode()


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:
        return f"(its message cannot be read: {type(broken).__qualname__})"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception as broken:
        return f"(its traceback cannot be read: {type(broken).__qualname__})"


def _cut(text: str, longest: int) -> str:
    """Leave out the middle: the beginning says what, the end says where."""
    if len(text) <= longest:
        return text
    half = longest // 2 - 30
    return text[:half] + _CUT.format(f"{len(text) - 2 * half:,}") + text[-half:]
