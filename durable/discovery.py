"""Where an application's workflows are: which modules to import, and who named them."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from durable import registry
from durable.errors import NoWorkflows
from durable.settings import Settings

ENTRY_POINTS = "durable.workflows"


@dataclass(frozen=True)
class Source:
    """A module that defines workflows, and where its name stands."""

    module: str
    origin: str


def load_workflows(settings: Settings) -> list[Source]:
    """Import the modules that define workflows; the first place that names any decides."""
    found = next(filter(None, (list(sources) for sources in _places(settings))), [])
    _see_own_folder()
    for source in found:
        _import(source)
    if not registry.loaded():
        raise NoWorkflows(_nothing_in(found))
    return found


def _places(settings: Settings) -> Iterator[Iterator[Source]]:
    yield (Source(module, "DURABLE_MODULES or configure(modules=...)") for module in settings.modules)
    yield _in_pyproject()
    yield (Source(point.module, f"entry point {point.name}") for point in metadata.entry_points(group=ENTRY_POINTS))


def _in_pyproject() -> Iterator[Source]:
    """Read `[tool.durable] modules` of the nearest pyproject.toml, from the working directory upwards."""
    folder = Path.cwd()
    file = next((at / "pyproject.toml" for at in (folder, *folder.parents) if (at / "pyproject.toml").is_file()), None)
    if file is None:
        return
    try:
        modules = tomllib.loads(file.read_text()).get("tool", {}).get("durable", {}).get("modules", [])
    except tomllib.TOMLDecodeError as error:
        raise NoWorkflows(f"{file} cannot be read: {error}") from None
    for module in _checked(modules, file):
        yield Source(module, f"[tool.durable] modules in {file}")


def _checked(modules: Any, file: Path) -> list[str]:
    if isinstance(modules, list) and all(isinstance(module, str) for module in modules):
        return modules
    raise NoWorkflows(f'[tool.durable] modules in {file} must be a list of names, as in modules = ["myapp.workflows"]')


def _see_own_folder() -> None:
    """Let modules of the working directory be imported, as `dramatiq` and `python -m` do."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def _import(source: Source) -> None:
    try:
        import_module(source.module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{source.module}.".startswith(f"{error.name}."):
            raise
        raise NoWorkflows(
            f"there is no module {error.name!r}, which {source.origin} names: is the name right, and is its folder "
            "the working directory or on PYTHONPATH?"
        ) from None


def _nothing_in(found: list[Source]) -> str:
    if found:
        looked = ", ".join(source.module for source in found)
        return f"there is no workflow class in {looked} ({found[0].origin})"
    return (
        "no workflows were found: name the modules that define them in DURABLE_MODULES=myapp.workflows, or as "
        '[tool.durable] modules = ["myapp.workflows"] in pyproject.toml, or as entry points of the group '
        f"{ENTRY_POINTS}"
    )
