"""Steps and the decorators that declare them; what a class body makes of them is in `grammar`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property, partialmethod
from types import CodeType, FunctionType
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar, overload

from durable.durations import Duration
from durable.policies import (
    UNSET,
    Action,
    ExceptionPolicy,
    Matching,
    Report,
    Rule,
    StepPolicies,
    TerminalAction,
)

Method = TypeVar("Method", bound=Callable[[Any], object])
HandlerMethod = TypeVar("HandlerMethod", bound="HandlerFunction")
SkipIf: TypeAlias = "bool | str | Callable[[Any], object]"
StepReference: TypeAlias = "str | Callable[..., object]"
OnException: TypeAlias = "Action | ExceptionPolicy | Sequence[ExceptionPolicy]"

DECLARED = "__durable_declaration__"
_WRAPPERS: dict[type, str] = {
    staticmethod: "__func__",
    classmethod: "__func__",
    property: "fget",
    cached_property: "func",
    partialmethod: "func",
}


@dataclass(frozen=True)
class Step:
    """A step as the engine sees it."""

    name: str
    function: Callable[..., object] | None = field(default=None, repr=False)
    attribute: str | None = None
    wait: timedelta = timedelta()
    skip_if: SkipIf = False
    policies: StepPolicies | None = None
    timeout: timedelta | None = None

    @property
    def removed(self) -> bool:
        """Whether it is a gravestone."""
        return self.function is None


@dataclass(frozen=True)
class Condition:
    """A blanket condition that cancels the workflow."""

    name: str
    function: Callable[..., object] = field(repr=False)
    attribute: str | None = None


@dataclass(frozen=True)
class Definition:
    """What a workflow class declares, its bases' part included, in the order in which it runs."""

    steps: tuple[Step, ...] = ()
    conditions: tuple[Condition, ...] = ()
    rules: tuple[Rule, ...] = ()
    anonymous: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the steps that can run."""
        return tuple(step.name for step in self.steps if not step.removed)

    @property
    def first(self) -> Step | None:
        """The step that runs first."""
        return next((step for step in self.steps if not step.removed), None)

    def find(self, name: str) -> Step | None:
        """Return the step or gravestone of this name."""
        return next((step for step in self.steps if step.name == name), None)

    def after(self, name: str) -> Step | None:
        """Return the step that runs after the one of this name."""
        place = [step.name for step in self.steps].index(name)
        return next((step for step in self.steps[place + 1 :] if not step.removed), None)


def combine(definitions: Iterable[Definition]) -> Definition:
    """Return what a class inherits from its bases: the steps of the one that has any, conditions and rules of all."""
    several = tuple(definitions)
    with_steps = next((one for one in several if one.steps), Definition())
    conditions: dict[object, Condition] = {}
    for condition in (condition for one in several for condition in one.conditions):
        conditions.setdefault(condition.attribute or condition.function, condition)
    rules = {id(rule): rule for one in several for rule in one.rules}
    return replace(with_steps, conditions=tuple(conditions.values()), rules=tuple(rules.values()))


@dataclass(frozen=True)
class StepDeclaration:
    """What `@step` was given; it is checked when it is bound to a name in a class body."""

    kind: ClassVar[str] = "step"
    name: str | None
    wait: Duration | None
    skip_if: SkipIf | None
    on_exception: OnException | None
    max_reattempts: int | None
    terminal_action: TerminalAction | None
    before_step: StepReference | None
    after_step: StepReference | None
    timeout: Duration | None


@dataclass(frozen=True)
class ConditionDeclaration:
    """What `@cancel_if` declares."""

    kind: ClassVar[str] = "cancel_if"


@dataclass(frozen=True)
class HandlerDeclaration:
    """What `@on_exception` was given."""

    kind: ClassVar[str] = "on_exception"
    matching: tuple[Matching, ...]
    report: Report
    refused: tuple[str, ...]


@dataclass(frozen=True)
class Gravestone:
    """What `removed_step()` returns."""


Declaration: TypeAlias = StepDeclaration | ConditionDeclaration | HandlerDeclaration


class Undecorated:
    """A decorator that was called and is waiting for its function."""

    def __init__(self, declaration: Declaration) -> None:
        self.kind = declaration.kind
        self.declaration = declaration

    def __call__(self, function: Any) -> Any:
        return declare(function, self.declaration)


class Misplaced:
    """Something other than a function that was decorated; the class body that binds it says so."""

    def __init__(self, kind: str, thing: object) -> None:
        self.kind = kind
        self.thing = thing

    def __call__(self, _: object) -> Misplaced:
        return self


def declare(function: Any, declaration: Declaration) -> Any:
    """Return the function with its declaration; a copy, so that one function may serve several steps."""
    if not isinstance(function, FunctionType):
        return Misplaced(declaration.kind, function)
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__dict__.update(function.__dict__)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__ = function.__qualname__
    copy.__module__ = function.__module__
    copy.__doc__ = function.__doc__
    copy.__annotations__ = function.__annotations__
    setattr(copy, DECLARED, (*getattr(function, DECLARED, ()), declaration))
    return copy


def declarations_of(value: object) -> tuple[Declaration, ...]:
    """Return what a function was declared to be, even if another decorator has wrapped it."""
    wrapper = _WRAPPERS.get(type(value))
    found = inspect.getattr_static(getattr(value, wrapper) if wrapper else value, DECLARED, ())
    return found if isinstance(found, tuple) else ()


@overload
def step(function: Method, /) -> Method: ...
@overload
def step(
    name: str | None = None,
    *,
    wait: Duration | None = None,
    skip_if: SkipIf | None = None,
    on_exception: OnException | None = None,
    max_reattempts: int | None = ...,
    terminal_action: TerminalAction | None = None,
    before_step: StepReference | None = None,
    after_step: StepReference | None = None,
    timeout: Duration | None = None,
) -> Callable[[Method], Method]: ...
def step(
    name: Any = None,
    *,
    wait: Duration | None = None,
    skip_if: SkipIf | None = None,
    on_exception: OnException | None = None,
    max_reattempts: int | None = UNSET,
    terminal_action: TerminalAction | None = None,
    before_step: StepReference | None = None,
    after_step: StepReference | None = None,
    timeout: Duration | None = None,
) -> Any:
    """Declare a method as a step. A method called `_` is an anonymous step: step_1, step_2, …"""
    bare = name is not None and not isinstance(name, str)
    declaration = StepDeclaration(
        name=None if bare else name,
        wait=wait,
        skip_if=skip_if,
        on_exception=on_exception,
        max_reattempts=max_reattempts,
        terminal_action=terminal_action,
        before_step=before_step,
        after_step=after_step,
        timeout=timeout,
    )
    undecorated = Undecorated(declaration)
    return undecorated(name) if bare else undecorated


def cancel_if(function: Method) -> Method:
    """Declare a method that is asked before every step; if it answers true, the workflow is canceled."""
    declared: Method = declare(function, ConditionDeclaration())
    return declared


class HandlerFunction(Protocol):
    """A function; an exception class can be called with two arguments as well, but has no code of its own."""

    __code__: CodeType

    def __call__(self, _: Any, error: Any, /) -> object: ...


@overload
def on_exception(
    *matching: type[Exception] | str, report: Report = "always"
) -> Callable[[HandlerMethod], HandlerMethod]: ...
@overload
def on_exception(function: HandlerMethod, /) -> HandlerMethod: ...
def on_exception(*matching: Any, report: Any = "always", **refused: object) -> Any:
    """Declare a method that decides about exceptions of these classes, or all, by flow control."""
    bare = len(matching) == 1 and not isinstance(matching[0], str | type)
    declaration = HandlerDeclaration(() if bare else matching, report, tuple(refused))
    undecorated = Undecorated(declaration)
    return undecorated(matching[0]) if bare else undecorated


def removed_step() -> Gravestone:
    """Leave a gravestone where a step was: rows still at that step go on from here."""
    return Gravestone()
