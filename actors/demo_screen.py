"""How the demo looks: chapters and sentences, with bars on a terminal and a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table

WIDTH = 80
MOVE_EVERY = 0.1
LINE_EVERY = 3.0

console = Console(highlight=False)
console.width = min(console.width, WIDTH)


def begin_chapter(title: str) -> None:
    """Begin a chapter."""
    console.print(f"\n[bold]{escape(title)}[/]\n")


def say(text: str) -> None:
    """Tell the story; lines are broken where they must be."""
    console.print(escape(text))


def show_table(headings: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """Show rows under their headings."""
    table = Table(*headings, box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    console.print(Padding(table, (1, 0, 1, 2), expand=False))


def show_verdict(claim: str, *, holds: bool) -> None:
    """Show a claim, and whether it holds."""
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_row("[green]holds[/]" if holds else "[bold red]FAILS[/]", escape(claim))
    console.print(table)


def show_failure(text: str) -> None:
    """Say in one clear line what went wrong."""
    console.print(f"\n[bold red]{escape(text)}[/]")


def show_log(text: str) -> None:
    """Show the end of a worker's log, which keeps the width that it has."""
    console.print("\nThis is how the log of a worker ends:\n", style="dim")
    console.print(escape(text), style="dim", soft_wrap=True)


@dataclass(frozen=True)
class Figure:
    """How far something has come."""

    done: int
    of: int


@dataclass
class Board:
    """Shows how far the orders are."""

    progress: Progress
    look: Callable[[], Mapping[str, Figure]]
    tasks: dict[str, TaskID] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    shown: float = field(default_factory=time.monotonic)

    def tick(self) -> None:
        """Show the present, if that was not done just now."""
        now = time.monotonic()
        if now - self.shown < (MOVE_EVERY if console.is_terminal else LINE_EVERY):
            return
        self.shown = now
        figures = self.look()
        if console.is_terminal:
            for name, figure in figures.items():
                self._move_bar(name, figure)
        else:
            told = ", ".join(f"{figure.done} of {figure.of} {name}" for name, figure in figures.items())
            console.print(f"  after {now - self.began:.0f} s: {told}", style="dim")

    def _move_bar(self, name: str, figure: Figure) -> None:
        if name not in self.tasks:
            self.tasks[name] = self.progress.add_task(name, total=figure.of)
        self.progress.update(self.tasks[name], completed=figure.done, total=figure.of)


@contextmanager
def a_board(look: Callable[[], Mapping[str, Figure]]) -> Iterator[Board]:
    """Give a board that stays below whatever is said meanwhile, and is gone afterwards."""
    columns = (
        TextColumn("  {task.description:<9}"),
        BarColumn(40),
        TextColumn("{task.completed:.0f} of {task.total:.0f}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Board(progress, look)
