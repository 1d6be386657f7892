"""What an exception leads to: policies, handlers and the order in which they are asked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeAlias, get_args

from tenacity import Future, RetryCallState, Retrying
from tenacity.wait import wait_base

from durable import durations
from durable.durations import Duration
from durable.errors import InvalidDuration, NonRetryable, StepConfigurationError

Action: TypeAlias = Literal["pause", "cancel", "reattempt", "skip", "fail"]
TerminalAction: TypeAlias = Literal["pause", "cancel", "skip", "fail"]
Report: TypeAlias = Literal["always", "never", "terminal_only"]
Matching: TypeAlias = "type[Exception] | str"

_ACTIONS = get_args(Action)
_TERMINAL_ACTIONS = get_args(TerminalAction)
_REPORTS = get_args(Report)


class Unset:
    def __repr__(self) -> str:
        return "100"


UNSET: Any = Unset()
_MAX_REATTEMPTS = 100


@dataclass(frozen=True, init=False)
class ExceptionPolicy:
    """What to do about exceptions: an action, for those that match or for all."""

    action: Action
    matching: tuple[Matching, ...]
    wait: timedelta | wait_base | None
    max_reattempts: int | None
    terminal_action: TerminalAction
    report: Report

    def __init__(
        self,
        action: Action,
        *,
        matching: Matching | Sequence[Matching] | None = None,
        wait: Duration | wait_base | None = None,
        max_reattempts: int | None = UNSET,
        terminal_action: TerminalAction | None = None,
        report: Report = "always",
    ) -> None:
        _one_of(action, _ACTIONS, "action")
        if action != "reattempt":
            _refuse_without_reattempt(action, wait=wait, max_reattempts=max_reattempts, terminal_action=terminal_action)
        put = object.__setattr__
        put(self, "action", action)
        put(self, "matching", read_matching(matching))
        put(self, "wait", _read_wait(wait))
        put(self, "max_reattempts", _read_max(max_reattempts))
        last = "pause" if terminal_action is None else terminal_action
        put(self, "terminal_action", _one_of(last, _TERMINAL_ACTIONS, "terminal_action"))
        put(self, "report", _one_of(report, _REPORTS, "report"))

    @property
    def blanket(self) -> bool:
        """Whether it is for every exception."""
        return not self.matching

    def matches(self, error: Exception) -> bool:
        """Tell whether the policy names the exception's class or one of its bases."""
        return any(_is_a(error, wanted) for wanted in self.matching)

    def delay(self, error: Exception, reattempts: int) -> timedelta:
        """Return how long to wait before the reattempt that follows this many earlier ones."""
        if isinstance(self.wait, wait_base):
            seconds = self.wait(_retry_state(error, reattempts + 1))
            return durations.parse(min(max(0.0, seconds), durations.LONGEST.total_seconds()))
        return self.wait or timedelta()


@dataclass(frozen=True)
class Handler:
    """A method that decides about exceptions by flow control."""

    name: str
    call: Callable[..., object] = field(repr=False)
    matching: tuple[Matching, ...] = ()
    report: Report = "always"

    @property
    def blanket(self) -> bool:
        """Whether it is for every exception."""
        return not self.matching

    def matches(self, error: Exception) -> bool:
        """Tell whether the handler names the exception's class or one of its bases."""
        return any(_is_a(error, wanted) for wanted in self.matching)


@dataclass(frozen=True)
class Rule:
    """A policy or handler with the cap of the list that it stands in."""

    policy: ExceptionPolicy | Handler
    cap: int | None = None


@dataclass(frozen=True)
class StepPolicies:
    """What a step itself says about exceptions: one policy for all of them, or a list."""

    rules: tuple[Rule, ...]
    unconditional: bool


@dataclass(frozen=True)
class Decision:
    """What is done about an exception."""

    action: Action
    wait: timedelta = timedelta()
    exhausted: bool = False


def rules_of(policies: Sequence[ExceptionPolicy]) -> tuple[Rule, ...]:
    """Return the rules of a list of policies: its smallest `max_reattempts` caps them all."""
    limits = [p.max_reattempts for p in policies if p.action == "reattempt" and p.max_reattempts is not None]
    cap = min(limits, default=None)
    return tuple(Rule(policy, cap) for policy in policies)


def resolve(error: Exception, step: StepPolicies | None, of_class: Iterable[Rule]) -> Rule:
    """Return the rule for an exception: the step's, then the class's that match, then its blanket one."""
    if step is not None and step.unconditional:
        return step.rules[0]
    asked = (*_walk(error, step.rules if step else ()), *_walk(error, tuple(of_class)))
    return asked[0] if asked else DEFAULT


def decide(policy: ExceptionPolicy, cap: int | None, error: Exception, *, reattempts: int) -> Decision:
    """Return what a policy does about an exception after this many reattempts in a row."""
    if policy.action != "reattempt":
        return Decision(policy.action)
    if isinstance(error, NonRetryable) or (cap is not None and reattempts >= cap):
        return Decision(policy.terminal_action, exhausted=True)
    return Decision("reattempt", wait=policy.delay(error, reattempts))


def read_matching(matching: Matching | Sequence[Matching] | None) -> tuple[Matching, ...]:
    """Return what `matching` names, or raise for what can never match."""
    if matching is None:
        return ()
    several = tuple(matching) if isinstance(matching, Sequence) and not isinstance(matching, str) else (matching,)
    if not several:
        raise StepConfigurationError("matching=[] matches nothing: name an exception class, or leave matching out")
    for one in several:
        if not (_is_dotted(one) or (isinstance(one, type) and issubclass(one, Exception))):
            raise StepConfigurationError(
                f"matching={one!r} is not an exception class: give a subclass of Exception, "
                'or its dotted name such as "requests.Timeout"'
            )
    return several


def _is_dotted(name: object) -> bool:
    parts = name.split(".") if isinstance(name, str) else ()
    return len(parts) > 1 and all(part.isidentifier() or part == "<locals>" for part in parts)


def _walk(error: Exception, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    specific = [rule for rule in rules if rule.policy.matches(error)]
    blanket = [rule for rule in rules if rule.policy.blanket]
    return (*specific[:1], *blanket[:1])


def _is_a(error: Exception, wanted: Matching) -> bool:
    if isinstance(wanted, type):
        return isinstance(error, wanted)
    if any(f"{kind.__module__}.{kind.__qualname__}" == wanted for kind in type(error).__mro__):
        return True
    kind = _loaded(wanted)
    return isinstance(kind, type) and isinstance(error, kind)


def _loaded(dotted: str) -> object:
    """Look a dotted name up among the modules already imported; what is not imported cannot have been raised."""
    module, _, name = dotted.rpartition(".")
    try:
        return getattr(sys.modules.get(module), name, None)
    except Exception:  # a module that makes its names on demand may fail to
        return None


def _retry_state(error: Exception, attempt: int) -> RetryCallState:
    state = RetryCallState(Retrying(), None, (), {})
    state.attempt_number = attempt
    state.outcome = Future.construct(attempt, error, has_exception=True)
    return state


def _one_of(value: object, allowed: tuple[str, ...], what: str) -> object:
    if not isinstance(value, str) or value not in allowed:
        raise StepConfigurationError(f"{what}={value!r} is unknown to ExceptionPolicy: use one of {', '.join(allowed)}")
    return value


def _read_wait(wait: Duration | wait_base | None) -> timedelta | wait_base | None:
    if wait is None or isinstance(wait, wait_base):
        return wait
    try:
        return durations.parse(wait)
    except InvalidDuration as error:
        raise StepConfigurationError(f"ExceptionPolicy(wait=...): {error}, or a tenacity wait strategy") from None


def _read_max(max_reattempts: int | None) -> int | None:
    if max_reattempts is UNSET:
        return _MAX_REATTEMPTS
    if max_reattempts is None:
        return None
    if isinstance(max_reattempts, bool) or not isinstance(max_reattempts, int) or max_reattempts < 0:
        raise StepConfigurationError(
            f"max_reattempts={max_reattempts!r} is not a count: give a whole number from 0, or None for no limit"
        )
    return max_reattempts


def _refuse_without_reattempt(action: str, *, wait: object, max_reattempts: object, terminal_action: object) -> None:
    given = {"wait": wait is not None, "max_reattempts": max_reattempts is not UNSET}
    given["terminal_action"] = terminal_action is not None
    for option, present in given.items():
        if present:
            raise StepConfigurationError(
                f'{option}= means nothing with the action {action!r}: it goes with "reattempt" only'
            )


DEFAULT = Rule(ExceptionPolicy("pause"))
