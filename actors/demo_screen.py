"""How the demo looks in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from actors.demo_proofs import Proof

console = Console(highlight=False, soft_wrap=True)


def begin_chapter(title: str) -> None:
    """Begin a chapter."""
    console.print(f"\n[bold]{title}[/]\n")


def say(text: str) -> None:
    """Tell the story."""
    console.print(text)


def show_table(headings: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """Show rows under their headings."""
    table = Table(*headings, box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for row in rows:
        table.add_row(*map(str, row))
    console.print(table)


def show_proofs(proofs: Iterable[Proof]) -> None:
    """Show what holds and what does not."""
    for proof in proofs:
        console.print("[green]holds[/]" if proof.holds else "[bold red]FAILS[/]", proof.claim)
