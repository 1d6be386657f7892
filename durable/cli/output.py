"""How things are printed: times and lengths for people, one JSON document for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

STYLES = {
    "ready": "cyan",
    "performing": "blue",
    "waiting": "magenta",
    "paused": "yellow",
    "compensating": "magenta",
    "finished": "green",
    "canceled": "bright_black",
    "failed": "red",
    "rolled_back": "bright_black",
    "scheduled": "cyan",
    "in_progress": "blue",
    "completed": "green",
    "skipped": "bright_black",
}
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def print_json(value: object) -> None:
    """Print a value as the command's one JSON document."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=_plain))


def console() -> Console:
    """Return what tables are printed to; it takes text as it is."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False)


def table(*columns: str, right: Iterable[str] = ()) -> Table:
    """Make a table without any lines but the one under its headings."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def styled(text: object, style: str = "") -> Text:
    """Return text as a piece of a table: control characters of strangers never reach the terminal."""
    from rich.text import Text

    return Text(visible(str(text)), style=style)


def state_text(state: str) -> Text:
    """Return a state in its colour."""
    return styled(state, STYLES.get(state, ""))


def visible(text: str) -> str:
    """Return text with its control characters made harmless."""
    return "".join(sign if sign.isprintable() or sign == "\n" else "\N{REPLACEMENT CHARACTER}" for sign in text)


def span(length: timedelta) -> str:
    """Return a length of time in its two largest units."""
    seconds = abs(length.total_seconds())
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    if seconds < 10:
        return f"{seconds:.1f}s".replace(".0s", "s")
    rest, parts = round(seconds), list[str]()
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0"))


def many(count: object, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count} {noun}{'' if str(count) == '1' else 's'}"


def moment(time: datetime | None, *, now: datetime | None = None) -> str:
    """Return a time as this machine's people write it; near `now` the date is left out."""
    if time is None:
        return ""
    here = time.astimezone()
    if now is not None and here.date() == now.astimezone().date():
        return here.strftime("%H:%M:%S")
    return here.strftime("%Y-%m-%d %H:%M:%S")


def short_names(names: Iterable[str | None]) -> dict[str | None, str]:
    """Return the last part of each dotted name, or the whole where that would mean two things."""
    full = {name for name in names if name is not None}
    last = [name.rpartition(".")[2] for name in full]
    short = {name: name.rpartition(".")[2] for name in full}
    return {None: "", **{name: part if last.count(part) == 1 else name for name, part in short.items()}}


def _plain(value: object) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)
