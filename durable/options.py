"""What a workflow class is told by its class keywords."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from durable.errors import StepConfigurationError
from durable.states import WorkflowState

Unique: TypeAlias = "Literal['hero', 'none'] | Callable[[Any, Any], str]"

_MOVES_BY_ITSELF = {
    WorkflowState.READY,
    WorkflowState.PERFORMING,
    WorkflowState.WAITING,
    WorkflowState.COMPENSATING,
}
SMALLEST_PRIORITY, LARGEST_PRIORITY = -32768, 32767
_LARGEST_VERSION = 2**31 - 1
_QUEUE = re.compile(r"(?!.*\.[DX]Q$)[a-zA-Z_][a-zA-Z0-9._-]{,99}")


@dataclass(frozen=True)
class ClassOptions:
    """The class keywords of a workflow, checked."""

    name: str
    version: int = 1
    queue: str = "default"
    priority: int = 0
    may_proceed_without_hero: bool = False
    unique: Unique = "hero"
    unique_in: tuple[WorkflowState, ...] | None = None


def read_options(
    given: Mapping[str, object], *, owner: str, default_name: str, base: ClassOptions | None
) -> ClassOptions:
    """Return the options of a class: its own keywords, else its base's; name and version are always its own."""
    start = ClassOptions(default_name) if base is None else replace(base, name=default_name, version=1)
    checked: dict[str, Any] = {}
    for keyword, value in given.items():
        if keyword not in _CHECKS:
            raise StepConfigurationError(f"{owner}: unknown class keyword {keyword!r}: use one of {', '.join(_CHECKS)}")
        checked[keyword] = _CHECKS[keyword](value, owner)
    return replace(start, **checked)


def _name(value: object, owner: str) -> str:
    if isinstance(value, str) and value.strip() and len(value) <= 200 and value.isprintable():
        return value
    raise StepConfigurationError(f"{owner}: name={value!r} must be text of 1 to 200 printable characters")


def _version(value: object, owner: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _LARGEST_VERSION:
        return value
    raise StepConfigurationError(f"{owner}: version={value!r} must be a whole number from 1 to {_LARGEST_VERSION}")


def _queue(value: object, owner: str) -> str:
    if isinstance(value, str) and _QUEUE.fullmatch(value):
        return value
    raise StepConfigurationError(
        f"{owner}: queue={value!r} must be a name that Dramatiq takes: a letter or '_', then letters, digits, '.', "
        "'_' and '-', 100 at most, and not ending in .DQ or .XQ, which are Dramatiq's own"
    )


def read_priority(value: object, owner: str) -> int:
    """Return a priority that fits its column."""
    if isinstance(value, int) and not isinstance(value, bool) and SMALLEST_PRIORITY <= value <= LARGEST_PRIORITY:
        return value
    raise StepConfigurationError(
        f"{owner}: priority={value!r} must be a whole number from {SMALLEST_PRIORITY} to {LARGEST_PRIORITY} "
        "(lower runs first)"
    )


def _may_proceed(value: object, owner: str) -> bool:
    if isinstance(value, bool):
        return value
    raise StepConfigurationError(f"{owner}: may_proceed_without_hero={value!r} must be True or False")


def _unique(value: object, owner: str) -> object:
    if value in ("hero", "none") or (callable(value) and _takes_two(value)):
        return value
    raise StepConfigurationError(
        f'{owner}: unique={value!r} must be "hero", "none" or a function of hero and input that returns a key'
    )


def _takes_two(function: Callable[..., object]) -> bool:
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # written in C, without a signature
        return True
    return True


def _unique_in(value: object, owner: str) -> tuple[WorkflowState, ...]:
    """Return the states that occupy the slot: those named, and always those in which a workflow moves by itself.

    Nobody is there to refuse a move of its own into a slot that is taken.
    """
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        try:
            named = {WorkflowState(state) for state in value}
            return tuple(state for state in WorkflowState if state in named | _MOVES_BY_ITSELF)
        except ValueError:
            pass
    raise StepConfigurationError(f"{owner}: unique_in={value!r} must be a list of states: {', '.join(WorkflowState)}")


_CHECKS: dict[str, Callable[[object, str], object]] = {
    "name": _name,
    "version": _version,
    "queue": _queue,
    "priority": read_priority,
    "may_proceed_without_hero": _may_proceed,
    "unique": _unique,
    "unique_in": _unique_in,
}
