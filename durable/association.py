"""`workflow_of`: a hero's own way to its ongoing workflow."""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar, overload

from durable import registry
from durable.errors import ClassNotLoaded
from durable.workflow import Workflow

W = TypeVar("W", bound=Workflow[Any])


class workflow_of(Generic[W]):  # noqa: N801 - it reads as a declaration in a class body
    """On a hero's class: `renewal = workflow_of(Renewal)` makes `subscription.renewal` the ongoing one, or None."""

    @overload
    def __init__(self, workflow_class: type[W]) -> None: ...
    @overload
    def __init__(self: workflow_of[Workflow[Any]], workflow_class: str) -> None: ...
    def __init__(self, workflow_class: type[W] | str) -> None:
        """Take the class, or its stored name where importing it would go round in a circle."""
        self._workflow_class = workflow_class

    @overload
    def __get__(self, hero: None, owner: type) -> Self: ...
    @overload
    def __get__(self, hero: object, owner: type) -> W | None: ...
    def __get__(self, hero: object | None, owner: type) -> Self | W | None:
        """Look the ongoing workflow up."""
        return self if hero is None else self._resolved().ongoing(hero)

    def _resolved(self) -> type[W]:
        named = self._workflow_class
        if not isinstance(named, str):
            return named
        found = registry.newest(named)
        if found is None:
            raise ClassNotLoaded(named, "look a workflow up")
        return found
