"""Draw the blocks of the documentation that come from the code: `python3 dev.py python docs/diagrams.py`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Literal, get_args, get_origin

import durationpy
from pydantic.fields import FieldInfo

from durable import Settings
from durable.states import ENDED, EXECUTION_MOVES, TERMINAL, WORKFLOW_MOVES, ExecutionState, WorkflowState
from durable.verbs import ALLOWED

DOCS = Path(__file__).parent
BLOCK = re.compile(
    r"(?P<begin>^<!-- drawn: (?P<name>[a-z ]+) -->\n).*?(?P<end>^<!-- end -->$)", re.DOTALL | re.MULTILINE
)

KINDS = {
    str: "text",
    int: "a whole number",
    bool: "`true`, `false`",
    tuple: "names",
    timedelta: "a duration",
    Callable: "a function",
}
DAY = timedelta(days=1)


def main() -> None:
    """Redraw every page that has drawn blocks."""
    for page in sorted(DOCS.rglob("*.md")):
        written = page.read_text()
        drawn = redraw(written)
        if drawn != written:
            page.write_text(drawn)


def redraw(text: str) -> str:
    """Return a page with its drawn blocks as the code has them now."""
    return BLOCK.sub(lambda found: f"{found['begin']}{DRAWINGS[found['name']]()}\n{found['end']}", text)


def workflow_states() -> str:
    """Draw the states of a workflow."""
    return diagram(WorkflowState.READY, WORKFLOW_MOVES.pairs(), TERMINAL)


def execution_states() -> str:
    """Draw the states of an execution."""
    return diagram(ExecutionState.SCHEDULED, EXECUTION_MOVES.pairs(), ENDED)


def diagram(first: StrEnum, moves: Iterable[tuple[StrEnum, StrEnum]], last: Iterable[StrEnum]) -> str:
    """Draw a state machine; a state that no move leads to or from is left out."""
    moves = list(moves)
    reached = {target for _, target in moves}
    arrows = [("[*]", first), *moves, *((state, "[*]") for state in last if state in reached)]
    lines = [f"    {origin} --> {target}" for origin, target in arrows]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def verbs() -> str:
    """Draw in which states each verb is allowed."""
    return table(("verb", "allowed while the workflow is"), ((f"`{verb}`", codes(ALLOWED[verb])) for verb in ALLOWED))


def settings() -> str:
    """Draw the table of settings."""
    headings = ("setting", "environment", "takes", "default", "what it is")
    return table(headings, (setting(name, field) for name, field in Settings.model_fields.items()))


def setting(name: str, field: FieldInfo) -> Iterator[str]:
    """Draw one setting."""
    kind = kind_of(field.annotation)
    yield f"`{name}`"
    yield "only in code" if kind == KINDS[Callable] else f"`{Settings.model_config['env_prefix']}{name.upper()}`"
    yield f"{kind}, or `never`" if can_be_turned_off(field) else kind
    yield default_of(field)
    yield str(field.description)


def kind_of(annotation: object) -> str:
    """Return what a setting takes, in words."""
    if get_origin(annotation) is Literal:
        return codes(get_args(annotation))
    if get_origin(annotation) in KINDS:
        return KINDS[get_origin(annotation)]
    if annotation in KINDS:
        return KINDS[annotation]
    (given,) = [kind for kind in get_args(annotation) if kind is not NoneType]
    return kind_of(given)


def can_be_turned_off(field: FieldInfo) -> bool:
    """Tell whether a setting that has a default may also be nothing."""
    return field.default is not None and NoneType in get_args(field.annotation)


def default_of(field: FieldInfo) -> str:
    """Return a setting's default as it would be written."""
    if field.default is None or field.default == ():
        return "none"
    if isinstance(field.default, bool):
        return f"`{str(field.default).lower()}`"
    if isinstance(field.default, timedelta):
        return f"`{duration(field.default)}`"
    return f"`{field.default}`"


def duration(length: timedelta) -> str:
    """Return a duration as people write it: days, where it is days."""
    return durationpy.to_str(length) if length % DAY else f"{length // DAY}d"


def codes(words: Iterable[str]) -> str:
    """Return words as code, with commas."""
    return ", ".join(f"`{word}`" for word in words)


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    headings = tuple(headings)
    cells = [headings, ("---",) * len(headings), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


DRAWINGS: dict[str, Callable[[], str]] = {
    "workflow states": workflow_states,
    "execution states": execution_states,
    "verbs": verbs,
    "settings": settings,
}


if __name__ == "__main__":
    main()
