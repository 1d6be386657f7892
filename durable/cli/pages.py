"""What `list` and `show` look like to people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rich.cells import cell_len
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from durable.cli.output import console, moment, short_names, span, state_text, styled, table, visible
from durable.store.rows import AuditEntry, Execution, WorkflowRow

_HEADINGS = ("id", "class", "hero", "state", "step", "age")
_REASON = "reason"
_ID, _GAP = 36, 2
_SHORTEST = 20
_JSON_LINES = 12


def print_list(rows: Sequence[WorkflowRow], now: datetime, *, more: bool) -> None:
    """Print a page of workflows: a line for each where that fits the terminal, else some."""
    out = console()
    if not rows:
        out.print("There are no such workflows.")
        return
    lines = _lines(rows, now)
    room = _room_beside(zip(_HEADINGS, *lines, strict=True), width=out.width)
    wanted = max(cell_len(text) for text in (_REASON, *(_first_line(row.reason) for row in rows)))
    fits = room >= min(wanted, _SHORTEST)
    out.print(_wide_list(rows, lines, room) if fits else _narrow_list(rows, lines, out.width))
    if more:
        out.print(styled(f"\nThere are more: add --after {rows[-1].id}", "dim"))


def _lines(rows: Sequence[WorkflowRow], now: datetime) -> list[tuple[str, ...]]:
    classes, heroes = short_names(row.name for row in rows), short_names(row.hero_type for row in rows)
    return [
        (
            str(row.id),
            visible(classes[row.name]),
            "" if row.hero_type is None else visible(f"{heroes[row.hero_type]}:{row.hero_key}"),
            row.state.value,
            visible(row.step or ""),
            span(now - row.created_at),
        )
        for row in rows
    ]


def _room_beside(columns: Iterable[Iterable[str]], *, width: int) -> int:
    """Return how much of a terminal's width other columns leave to one."""
    return width - sum(max(map(cell_len, column)) + _GAP for column in columns)


def _wide_list(rows: Sequence[WorkflowRow], lines: Sequence[tuple[str, ...]], room: int) -> Table:
    made = table(*_HEADINGS, _REASON, right=["age"])
    for row, (id, name, hero, state, step, age) in zip(rows, lines, strict=True):
        reason = _shortened(row.reason, room)
        made.add_row(id, styled(name), styled(hero), state_text(state), styled(step), age, reason)
    return made


def _narrow_list(rows: Sequence[WorkflowRow], lines: Sequence[tuple[str, ...]], width: int) -> Table:
    headings = ("id, class and hero, reason", "state, step", "age")
    _, _, _, states, steps, ages = zip(*lines, strict=True)
    room = _room_beside([(headings[1], *states, *steps), (headings[2], *ages)], width=width)
    made = table(*headings, right=["age"])
    made.columns[0].min_width = _ID
    for row, (id, name, hero, state, step, age) in zip(rows, lines, strict=True):
        about = [styled(id), styled(f"{name} {hero}")]
        if row.reason:
            about.append(_shortened(row.reason, max(room, _ID)))
        made.add_row(Text("\n").join(about), Text("\n").join([state_text(state), styled(step)]), age)
    return made


def _shortened(reason: str | None, room: int) -> Text:
    made = styled(_first_line(reason), "dim")
    made.truncate(room, overflow="ellipsis")
    return made


def _first_line(text: str | None) -> str:
    return (text or "").partition("\n")[0]


def print_workflow(
    row: WorkflowRow, history: Sequence[Execution], entries: Sequence[AuditEntry], now: datetime
) -> None:
    """Print everything of a workflow."""
    out = console()
    out.print(_facts(row, now))
    _print_section("History", _history(history, now) if history else None)
    _print_section("Errors", _errors(history))
    _print_section("Audit", _audit(entries, now) if entries else None)


def _print_section(title: str, content: Any) -> None:
    if content is not None:
        out = console()
        out.print(styled(f"\n{title}", "bold"))
        out.print(Padding(content, (0, 0, 0, 2), expand=False))


def _facts(row: WorkflowRow, now: datetime) -> Table:
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style="bold")
    made.add_column(overflow="fold")
    for label, value in _labelled(row, now):
        if value:
            made.add_row(label, value if isinstance(value, Text) else styled(value))
    return made


def _labelled(row: WorkflowRow, now: datetime) -> list[tuple[str, Text | str | None]]:
    ended = None if row.ended_at is None else f"{moment(row.ended_at)}, {span(now - row.ended_at)} ago"
    return [
        ("id", str(row.id)),
        ("class", f"{row.name}, version {row.version}"),
        ("hero", row.hero_type and f"{row.hero_type}:{row.hero_key}"),
        ("state", state_text(row.state)),
        ("asked for", row.stop_requested and f"{row.stop_requested}, done {row.stop_requested.when}"),
        ("reason", row.reason),
        ("step", row.step),
        ("queue", f"{row.queue}, priority {row.priority}"),
        ("created", f"{moment(row.created_at)}, {span(now - row.created_at)} ago"),
        ("ended", ended),
        ("unique key", row.unique_key),
        ("input", _json(row.input)),
        ("data", _json(row.data or None)),
        ("result", _json(row.result)),
    ]


def _json(value: object) -> str | None:
    """Return a value as JSON: on a line if it is short, else indented and cut."""
    if value is None:
        return None
    short = json.dumps(value, ensure_ascii=False)
    if len(short) <= 80:
        return short
    lines = json.dumps(value, ensure_ascii=False, indent=2).splitlines()
    rest = len(lines) - _JSON_LINES
    return "\n".join(lines[:_JSON_LINES] + ([f"… {rest} more lines: --json has all"] if rest > 0 else []))


def _history(history: Sequence[Execution], now: datetime) -> Table:
    made = table("step", "#", "state", "outcome", "due", "started", "took", "worker", right=["#", "took"])
    for execution in history:
        made.add_row(
            styled(execution.step),
            str(execution.attempt),
            state_text(execution.state),
            styled("" if execution.outcome == "success" else execution.outcome or ""),
            moment(execution.scheduled_for, now=now),
            moment(execution.started_at, now=now),
            _took(execution, now),
            styled((execution.worker or "")[:8], "dim"),
        )
    return made


def _took(execution: Execution, now: datetime) -> str:
    if execution.started_at is None:
        return ""
    return span((execution.finished_at or now) - execution.started_at)


def _errors(history: Sequence[Execution]) -> Group | None:
    """Lay out what was raised or said, under the table: there is no room for it beside the rest."""
    lines = [
        Text.assemble(styled(f"{execution.step} #{execution.attempt}  ", "bold"), styled(_said(execution), "red"))
        for execution in history
        if execution.error_class
    ]
    return Group(*lines) if lines else None


def _said(execution: Execution) -> str:
    return f"{execution.error_class}: {execution.error_message}".rstrip(": ")


def _audit(entries: Sequence[AuditEntry], now: datetime) -> Table:
    made = table("when", "verb", "by", "reason")
    for entry in entries:
        made.add_row(moment(entry.at, now=now), entry.verb, styled(entry.by or ""), styled(entry.reason or ""))
    return made
