"""The workflow classes of this process, by stored name and version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from durable.errors import StepConfigurationError

_classes: dict[str, dict[int, type[Any]]] = {}
_subscribers: list[Callable[[type[Any]], None]] = []


def register(workflow_class: type[Any], name: str, version: int) -> None:
    """Make a class known; a class that is defined again (a reload) takes the place of its former self."""
    taken = _classes.get(name, {}).get(version)
    if taken is not None and _path(taken) != _path(workflow_class):
        raise StepConfigurationError(
            f"{_path(workflow_class)}: the name {name!r} with version {version} is {_path(taken)}'s: "
            "give one of them another name= or version="
        )
    _classes.setdefault(name, {})[version] = workflow_class
    for subscriber in tuple(_subscribers):
        subscriber(workflow_class)


def subscribe(subscriber: Callable[[type[Any]], None]) -> None:
    """Have every class told to a function: those that are known, and those to come."""
    _subscribers.append(subscriber)
    for versions in _classes.values():
        for workflow_class in versions.values():
            subscriber(workflow_class)


def resolve(name: str, version: int) -> type[Any] | None:
    """Return the class for a row: its own version, else the newest, None if there is none."""
    return _classes.get(name, {}).get(version) or newest(name)


def newest(name: str) -> type[Any] | None:
    """Return the newest version of a class, None if there is none."""
    versions = _classes.get(name)
    return versions[max(versions)] if versions else None


def forget(name: str) -> None:
    """Make a class unknown again, in all its versions."""
    _classes.pop(name, None)


def loaded() -> dict[str, dict[int, type[Any]]]:
    """Return all classes, by name and version."""
    return {name: dict(versions) for name, versions in _classes.items()}


def _path(workflow_class: type[Any]) -> str:
    return f"{workflow_class.__module__}.{workflow_class.__qualname__}"
