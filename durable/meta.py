"""How a workflow class is made: its body is watched, its keywords are checked, and only then is it registered."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, get_args, get_origin

from durable import heroes, registry
from durable.errors import StepConfigurationError
from durable.grammar import HOOKS, ClassBody
from durable.options import ClassOptions, read_options
from durable.steps import Definition, combine, declarations_of


class WorkflowMeta(type):
    """The class of workflow classes."""

    definition: Definition
    options: ClassOptions
    _hero_classes: dict[str, type]

    @classmethod
    def __prepare__(mcs, name: str, bases: tuple[type, ...], /, **keywords: Any) -> ClassBody:
        """Give the class body a namespace that sees every binding."""
        base = _base(name, bases)
        return ClassBody(
            name,
            combine(one.definition for one in bases if isinstance(one, WorkflowMeta)),
            reserved=frozenset() if base is None else _reserved(_workflow(base)),
            methods=frozenset(attribute for one in bases for attribute in dir(one)),
        )

    def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any], /, **keywords: Any) -> WorkflowMeta:
        """Make the class of a body that declares nothing wrong, and register it."""
        if not isinstance(body, ClassBody):
            raise StepConfigurationError(
                f"{name}: write a workflow as a class statement, its body cannot be watched otherwise"
            )
        base = _base(name, bases)
        made = super().__new__(mcs, name, bases, {**body.attributes, "definition": body.definition})
        _check_mixins(made)
        made.options = _options(made, base, keywords)
        made._hero_classes = _hero_classes(made, base)
        if base is not None:
            registry.register(made, made.options.name, made.options.version)
        return made

    def __init__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], /, **keywords: Any) -> None:
        super().__init__(name, bases, body)

    def know_hero(cls, hero_class: type) -> None:
        """Remember that heroes of a class occur, so that the claim can tell whether they are there."""
        cls._hero_classes.setdefault(heroes.type_name(hero_class), hero_class)

    def hero_classes(cls) -> list[type]:
        """Return the classes of heroes that are known to occur."""
        return list(cls._hero_classes.values())


def _base(name: str, bases: tuple[type, ...]) -> WorkflowMeta | None:
    """Return the workflow class that a new one continues: only one of its bases may have steps."""
    candidates = [base for base in bases if isinstance(base, WorkflowMeta)]
    with_steps = [base for base in candidates if base.definition.steps and not _is_continued(base, candidates)]
    if len(with_steps) > 1:
        names = " and ".join(base.__qualname__ for base in with_steps)
        raise StepConfigurationError(f"{name}: it continues {names}, but only one base may have steps: choose one")
    return next(iter(with_steps or candidates), None)


def _is_continued(base: WorkflowMeta, candidates: Iterable[WorkflowMeta]) -> bool:
    return any(other is not base and issubclass(other, base) for other in candidates)


def _workflow(made: WorkflowMeta) -> WorkflowMeta:
    """Return `Workflow` itself, which every workflow class comes from."""
    return next(one for one in reversed(made.__mro__) if isinstance(one, WorkflowMeta))


@cache
def _reserved(workflow: WorkflowMeta) -> frozenset[str]:
    """Return the names that a class body may not bind: all of Workflow's own but the hooks."""
    annotated = {name for one in workflow.__mro__ for name in inspect.get_annotations(one)}
    names = {*dir(workflow), *annotated, *vars(WorkflowMeta)} - HOOKS
    return frozenset(name for name in names if not (name.startswith("__") and name.endswith("__")))


def _check_mixins(made: WorkflowMeta) -> None:
    """Refuse bases that are no workflows and yet declare steps, or hide what is Workflow's own."""
    workflow = _workflow(made)
    place = made.__mro__.index(workflow)
    for depth, mixin in enumerate(made.__mro__):
        if isinstance(mixin, WorkflowMeta) or mixin in workflow.__mro__:
            continue
        for name, value in vars(mixin).items():
            where = f"{made.__qualname__}: its base's {mixin.__qualname__}.{name}"
            if declarations_of(value):
                kind = declarations_of(value)[0].kind
                raise StepConfigurationError(f"{where} is declared with @{kind}: make {mixin.__qualname__} a Workflow")
            if depth < place and name in _reserved(workflow):
                raise StepConfigurationError(f"{where} has a name that is Workflow's own: choose another")


def _options(made: WorkflowMeta, base: WorkflowMeta | None, keywords: Mapping[str, object]) -> ClassOptions:
    return read_options(
        keywords,
        owner=made.__qualname__,
        default_name=f"{made.__module__}.{made.__qualname__}",
        base=None if base is None else base.options,
    )


def _hero_classes(made: WorkflowMeta, base: WorkflowMeta | None) -> dict[str, type]:
    """Return the hero class named by `Workflow[Hero]`, else the base's."""
    for generic in made.__dict__.get("__orig_bases__", ()):
        hero_class = next(iter(get_args(generic)), None)
        if isinstance(get_origin(generic), WorkflowMeta) and isinstance(hero_class, type):
            if heroes.mapper_of(hero_class) is None:
                return {}
            heroes.declare(hero_class)
            return {heroes.type_name(hero_class): hero_class}
    return {} if base is None else dict(base._hero_classes)
