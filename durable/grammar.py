"""The class body of a workflow: a namespace that sees every binding and refuses wrong ones where they stand."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from durable import durations
from durable.errors import InvalidDuration, StepConfigurationError
from durable.policies import (
    UNSET,
    ExceptionPolicy,
    Handler,
    Rule,
    StepPolicies,
    read_matching,
    rules_of,
)
from durable.steps import (
    Condition,
    ConditionDeclaration,
    Declaration,
    Definition,
    Gravestone,
    HandlerDeclaration,
    Misplaced,
    SkipIf,
    Step,
    StepDeclaration,
    Undecorated,
    declarations_of,
)

HOOKS = frozenset({"before_execution", "after_execution", "around_execution", "policies"})
ANONYMOUS = "_"

_CALLS = {
    "step": ("a step", "self", 1),
    "cancel_if": ("a condition", "self", 1),
    "skip_if": ("skip_if", "self", 1),
    "on_exception": ("a handler", "self and the exception", 2),
}
_WANTED = {
    "policies": "a list of ExceptionPolicy(...)",
    "on_exception": "an action, an ExceptionPolicy(...) or a list of them",
}


class ClassBody(dict[str, Any]):
    """What is written in the body of one workflow class.

    It is thrown away with a body that raises, so a wrong class leaves nothing behind.
    """

    def __init__(self, owner: str, inherited: Definition, *, reserved: frozenset[str], methods: frozenset[str]) -> None:
        super().__init__()
        self._owner = owner
        self._inherited = inherited
        self._inherited_kinds = _kinds(inherited)
        self._inherited_methods = methods
        self._reserved = reserved
        self._steps = list(inherited.steps)
        self._conditions = list(inherited.conditions)
        self._own_kinds: dict[str, str] = {}
        self._own_rules: dict[str, tuple[Rule, ...]] = {}
        self._own_steps: set[str] = set()
        self._anonymous = inherited.anonymous

    @property
    def definition(self) -> Definition:
        """What the body declares, its base's part included."""
        self._check_nothing_deleted()
        self._check_skip_methods()
        own = tuple(rule for rules in self._own_rules.values() for rule in rules)
        kept = tuple(
            rule
            for rule in self._inherited.rules
            if not (isinstance(rule.policy, Handler) and rule.policy.name in self._own_kinds)
        )
        return Definition(tuple(self._steps), tuple(self._conditions), own + kept, self._anonymous)

    @property
    def attributes(self) -> dict[str, Any]:
        """What the class has as its own attributes: anonymous methods and gravestones are none."""
        return {n: value for n, value in self.items() if n != ANONYMOUS and not isinstance(value, Gravestone)}

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("__") and name.endswith("__"):
            super().__setitem__(name, value)
            return
        declaration = self._declaration(name, value)
        kind = _kind(value, declaration)
        self._refuse_taken(name, kind)
        if declaration is not None:
            self._declare(name, value, declaration)
        elif isinstance(value, Gravestone):
            self._bury(name)
        elif name == "policies":
            self._own_rules[name] = rules_of(self._read_policies(value, name))
        else:
            self._override(name, value)
        if kind is not None and name != ANONYMOUS:
            self._own_kinds[name] = kind
        super().__setitem__(name, value)

    # --- what is bound

    def _declaration(self, name: str, value: Any) -> Declaration | None:
        if isinstance(value, Undecorated):
            raise self._wrong(name, f"{value.kind}(...) was not given a function: write it as a decorator")
        if isinstance(value, Misplaced):
            raise self._wrong(
                name, f"@{value.kind} goes on a plain function, its options by keyword, not on {value.thing!r}"
            )
        declarations = declarations_of(value)
        if not declarations:
            return None
        if not inspect.isfunction(value):
            raise self._wrong(
                name, f"@{declarations[0].kind} is hidden by a {type(value).__name__}: it goes on a plain function"
            )
        if len(declarations) > 1:
            raise self._wrong(name, "it is declared twice: one method takes one of @step, @cancel_if, @on_exception")
        return declarations[0]

    def _refuse_taken(self, name: str, kind: str | None) -> None:
        """Refuse a binding that would hide what Workflow, this body or the base already has under its name."""
        self._refuse_reserved(name, declared=kind is not None)
        if name in self._own_kinds:
            raise self._wrong(name, f"the @{self._own_kinds[name]} above has this name already: give one another")
        inherited = self._inherited_kinds.get(name)
        if kind is not None and inherited not in (None, kind):
            raise self._wrong(name, f"it is {_CALLS[str(inherited)][0]} of the base class: choose another name")

    def _refuse_reserved(self, name: str, *, declared: bool) -> None:
        if name in self._reserved or (declared and name in HOOKS):
            raise self._wrong(name, "this name is Workflow's own: choose another")

    def _check_nothing_deleted(self) -> None:
        """Done at the end: Python turns an error of a `del` itself into a NameError."""
        for name, kind in self._own_kinds.items():
            if name not in self:
                raise self._wrong(name, f"it is declared with @{kind} and then deleted: leave it out")

    def _declare(self, name: str, function: Callable[..., object], declaration: Declaration) -> None:
        if isinstance(declaration, StepDeclaration):
            self._declare_step(name, function, declaration)
        elif isinstance(declaration, ConditionDeclaration):
            self._declare_condition(name, function)
        else:
            self._declare_handler(name, function, declaration)

    def _override(self, name: str, value: Any) -> None:
        """Let a plain method take the place of the base's; what the base declared of it stays."""
        kind = self._inherited_kinds.get(name)
        if kind is None or (kind == ConditionDeclaration.kind and not callable(value)):
            return
        if not inspect.isfunction(value):
            raise self._wrong(name, f"it is {_CALLS[kind][0]} of the base class and cannot become {value!r}: def it")
        self._check_call(name, value, kind)
        step = self._step_of(name)
        if step is not None:
            self._replace_or_append(replace(step, function=value))

    # --- conditions and handlers

    def _declare_condition(self, name: str, function: Callable[..., object]) -> None:
        self._check_call(name, function, ConditionDeclaration.kind)
        if name == ANONYMOUS:
            self._conditions.append(Condition(f"_{len(self._conditions) + 1}", function))
            return
        condition = Condition(name, function, attribute=name)
        attributes = [other.attribute for other in self._conditions]
        if name in attributes:
            self._conditions[attributes.index(name)] = condition
        else:
            self._conditions.append(condition)

    def _declare_handler(self, name: str, function: Callable[..., object], declared: HandlerDeclaration) -> None:
        if declared.refused:
            raise self._wrong(
                name,
                f"@on_exception takes no {', '.join(declared.refused)}: the handler decides by flow control",
            )
        self._check_call(name, function, declared.kind)
        if declared.report not in ("always", "never", "terminal_only"):
            raise self._wrong(name, f"report={declared.report!r} must be always, never or terminal_only")
        matching = self._within(name, lambda: read_matching(declared.matching or None))
        handler = Handler(name, function, matching, declared.report)
        self._own_rules[f"{len(self._own_rules)}: {name}"] = (Rule(handler),)

    # --- steps

    def _declare_step(self, name: str, function: Callable[..., object], declared: StepDeclaration) -> None:
        step_name = self._name_step(name, declared)
        self._check_call(step_name, function, declared.kind)
        step = Step(
            step_name,
            function,
            attribute=None if name == ANONYMOUS else name,
            wait=self._read_duration(step_name, "wait", 0 if declared.wait is None else declared.wait),
            timeout=self._read_timeout(step_name, declared),
            skip_if=self._read_skip_if(step_name, declared),
            policies=self._read_on_exception(step_name, declared),
        )
        self._place(step, declared)

    def _bury(self, name: str) -> None:
        if name == ANONYMOUS:
            raise self._wrong(name, "a gravestone has the name of the step it is for: write that name")
        self._replace_or_append(Step(self._new_name(name, attribute=name)))

    def _name_step(self, name: str, declared: StepDeclaration) -> str:
        if declared.name is None and name == ANONYMOUS:
            return self._number_step()
        wanted = name if declared.name is None else declared.name
        if not wanted.strip() or len(wanted) > 200 or not wanted.isprintable():
            raise self._wrong(name, f"the step's name {wanted!r} must be text of 1 to 200 printable characters")
        self._refuse_reserved(wanted, declared=True)
        return self._new_name(wanted, attribute=name)

    def _number_step(self) -> str:
        self._anonymous += 1
        name = f"step_{self._anonymous}"
        if any(step.name == name for step in self._steps):
            raise self._wrong(name, "an anonymous step gets this name, but another has it: give that one another")
        return self._new_name(name, attribute=ANONYMOUS)

    def _new_name(self, name: str, *, attribute: str) -> str:
        if name in self._own_steps:
            raise self._wrong(name, "there are two steps of this name: give one of them another")
        inherited = self._step_of(attribute)
        if inherited is not None and inherited.name != name:
            raise self._wrong(
                name, f"the method {attribute!r} is the step {inherited.name!r} of the base class: choose another"
            )
        self._own_steps.add(name)
        return name

    def _step_of(self, attribute: str) -> Step | None:
        return next((step for step in self._steps if step.attribute == attribute), None)

    def _place(self, step: Step, declared: StepDeclaration) -> None:
        if declared.before_step is not None and declared.after_step is not None:
            raise self._wrong(step.name, "both before_step and after_step are given: keep one of them")
        if declared.before_step is not None:
            self._insert(step, self._refer(step.name, "before_step", declared.before_step), 0)
        elif declared.after_step is not None:
            self._insert(step, self._refer(step.name, "after_step", declared.after_step), 1)
        else:
            self._replace_or_append(step)

    def _insert(self, step: Step, neighbour: Step, shift: int) -> None:
        self._steps = [other for other in self._steps if other.name != step.name]
        self._steps.insert(self._steps.index(neighbour) + shift, step)

    def _replace_or_append(self, step: Step) -> None:
        names = [other.name for other in self._steps]
        if step.name in names:
            self._steps[names.index(step.name)] = step
        else:
            self._steps.append(step)

    def _refer(self, name: str, option: str, reference: object) -> Step:
        if not isinstance(reference, str) and not callable(reference):
            raise self._wrong(name, f"{option}={reference!r} must be a step of this class or its name")
        wanted = next((step.name for step in self._inherited.steps if step.function is reference), reference)
        others = [step for step in self._steps if step.name != name]
        for step in others:
            if step.name == wanted or step.function is reference:
                return step
        label = getattr(reference, "__name__", reference)
        known = ", ".join(step.name for step in others) or "none yet"
        raise self._wrong(name, f"{option} names {label!r}, which is not a step defined before it (there are: {known})")

    # --- options

    def _read_duration(self, name: str, option: str, given: object) -> timedelta:
        try:
            return durations.parse(given)
        except InvalidDuration as error:
            raise self._wrong(name, f"{option}: {error}") from None

    def _read_timeout(self, name: str, declared: StepDeclaration) -> timedelta | None:
        if declared.timeout is None:
            return None
        timeout = self._read_duration(name, "timeout", declared.timeout)
        if not timeout:
            raise self._wrong(name, "timeout=0 would end every body at once: leave it out for no limit")
        return timeout

    def _read_skip_if(self, name: str, declared: StepDeclaration) -> SkipIf:
        skip_if = declared.skip_if
        if skip_if is None or isinstance(skip_if, bool):
            return bool(skip_if)
        if isinstance(skip_if, str):
            return skip_if
        if not callable(skip_if):
            raise self._wrong(
                name, f"skip_if={skip_if!r} must be a function of self, the name of a method, or a boolean"
            )
        self._check_call(name, skip_if, "skip_if")
        return skip_if

    def _check_skip_methods(self) -> None:
        known = self._inherited_methods | frozenset(self.attributes)
        for step in self._steps:
            if step.name in self._own_steps and isinstance(step.skip_if, str) and step.skip_if not in known:
                raise self._wrong(step.name, f"skip_if={step.skip_if!r} names no method of the class: define it")

    def _read_on_exception(self, name: str, declared: StepDeclaration) -> StepPolicies | None:
        given = declared.on_exception
        limits = {
            option: value
            for option, value, unset in (
                ("max_reattempts", declared.max_reattempts, UNSET),
                ("terminal_action", declared.terminal_action, None),
            )
            if value is not unset
        }
        if isinstance(given, str):
            policy = self._within(name, lambda: ExceptionPolicy(given, **limits))  # type: ignore[arg-type]  # it checks itself
            return StepPolicies((Rule(policy, policy.max_reattempts),), unconditional=True)
        if limits:
            raise self._wrong(name, f'{" and ".join(limits)} without on_exception="reattempt": it has nothing to limit')
        if given is None:
            return None
        if isinstance(given, ExceptionPolicy):
            return StepPolicies((Rule(given, given.max_reattempts),), unconditional=True)
        return StepPolicies(rules_of(self._read_policies(given, "on_exception", name)), unconditional=False)

    def _read_policies(self, given: object, option: str, name: str | None = None) -> Sequence[ExceptionPolicy]:
        if not isinstance(given, list | tuple):
            raise self._wrong(name, f"{option}={given!r} must be {_WANTED[option]}")
        if not given and option == "on_exception":
            raise self._wrong(name, "on_exception=[] says nothing: leave it out, or name a policy")
        for policy in given:
            if not isinstance(policy, ExceptionPolicy):
                raise self._wrong(name, f"{option} holds {policy!r}, which is not an ExceptionPolicy(...)")
        return given

    def _check_call(self, name: str, function: Callable[..., object], kind: str) -> None:
        """Refuse a function that cannot be called as it will be, or whose answer would be a generator."""
        it, what, count = _CALLS[kind]
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise self._wrong(name, f"{it} cannot yield: return a value")
        try:
            inspect.signature(function).bind(*range(count))
        except TypeError:
            raise self._wrong(name, f"{it} is called with {what} and nothing else: change its parameters") from None
        except ValueError:
            return

    def _within(self, name: str, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except StepConfigurationError as error:
            raise self._wrong(name, str(error)) from None

    def _wrong(self, name: str | None, what: str) -> StepConfigurationError:
        return StepConfigurationError(f"{self._owner}.{name}: {what}" if name else f"{self._owner}: {what}")


def _kind(value: object, declaration: Declaration | None) -> str | None:
    if isinstance(value, Gravestone):
        return StepDeclaration.kind
    return None if declaration is None else declaration.kind


def _kinds(definition: Definition) -> dict[str, str]:
    """Return what each method was declared to be."""
    handlers = [rule.policy.name for rule in definition.rules if isinstance(rule.policy, Handler)]
    return {
        **{step.attribute: StepDeclaration.kind for step in definition.steps if step.attribute},
        **{one.attribute: ConditionDeclaration.kind for one in definition.conditions if one.attribute},
        **{name: HandlerDeclaration.kind for name in handlers if name != ANONYMOUS},
    }
