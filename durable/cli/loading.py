"""The application's code: its workflow classes, as far as they can be loaded, and the things one names by them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from difflib import get_close_matches
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

import typer

from durable.cli.errors import REFUSED, CommandError, in_one_line, misused, not_found

if TYPE_CHECKING:
    from durable.heroes import HeroReference
    from durable.workflow import Workflow


def require_classes() -> None:
    """Import the application's workflows, or raise."""
    from durable import discovery, runtime
    from durable.errors import DurableError

    settings = runtime.current().settings
    try:
        with redirect_stdout(sys.stderr):  # what modules print must not get into a JSON document
            discovery.load_workflows(settings)
    except DurableError:
        raise
    except Exception as error:
        raise CommandError(_why_not_imported(error), REFUSED) from error


def load_classes() -> str | None:
    """Import the application's workflows if there are any, and return why not otherwise.

    Rows can be read and mostly steered without their classes: code that is broken must not stand in the way.
    """
    from durable.errors import DurableError, NoWorkflows

    try:
        require_classes()
    except NoWorkflows as nothing:
        return str(nothing)
    except (CommandError, DurableError) as error:
        typer.echo(f"{in_one_line(error)}; going on without their classes", err=True)
        return str(error)
    return None


def _why_not_imported(error: Exception) -> str:
    says, place = str(error), extract_tb(error.__traceback__)[-1]
    file, line = place.filename, place.lineno
    if isinstance(error, SyntaxError) and error.filename is not None:
        says, file, line = error.msg, error.filename, error.lineno  # raised by what imports, not by what is imported
    return f"the workflows cannot be imported: {type(error).__name__}: {says} ({file}, line {line})"


def find_class(name: str) -> type[Workflow[Any]]:
    """Return a loaded class by its stored name or the end of it."""
    from durable import registry

    found = registry.newest(pick(name, registry.loaded(), "workflow class"))
    assert found is not None
    return found


def loaded_hero_types() -> dict[str, type]:
    """Return the classes of heroes that the loaded workflows name."""
    from durable import heroes, registry

    classes = (found for versions in registry.loaded().values() for found in versions.values())
    return {heroes.type_name(hero): hero for found in classes for hero in found.hero_classes()}


def pick(wanted: str, known: Iterable[str], what: str) -> str:
    """Return the one known name that was meant: in full, or its last parts."""
    names = sorted(known)
    meant = [name for name in names if name == wanted] or [name for name in names if name.endswith(f".{wanted}")]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise misused(f"{wanted!r} may mean {' or '.join(meant)}: write more of the name")
    close = get_close_matches(wanted.rpartition(".")[2], {name.rpartition(".")[2] for name in names}, cutoff=0.7)
    if close:
        raise not_found(f"there is no {what} {wanted!r}: did you mean {' or '.join(close)}?")
    raise not_found(f"there is no {what} {wanted!r}: known are {', '.join(names) or 'none'}")


def read_hero(text: str) -> HeroReference:
    """Read TYPE:KEY."""
    from durable.heroes import HeroReference

    kind, colon, key = text.partition(":")
    if not (kind and colon and key):
        raise misused(f"cannot read the hero {text!r}: write TYPE:KEY, e.g. Order:42")
    return HeroReference(kind, key)


def read_json(text: str | None, option: str) -> Any:
    """Read the JSON of an option."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise misused(
            f"{option} is not JSON ({error}): put text in double quotes, e.g. {option} '{_EXAMPLE}'"
        ) from None


_EXAMPLE = '{"sku": "mug", "count": 2}'
