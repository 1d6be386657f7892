"""The command's root: what all commands have in common is that their errors become a sentence and an exit code."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from durable.cli.errors import told_of


class Guarded(TyperGroup):
    """Commands whose expected errors are told in a sentence, never as a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            told = told_of(error)
            if told is None:
                raise
            typer.echo(told.sentence, err=True)
            raise typer.Exit(told.code) from None


LOOKING, STEERING = "Looking", "Steering"

app = typer.Typer(
    name="durable",
    cls=Guarded,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def main() -> None:
    """Workflows that survive crashes, deploys and long waits.

    Exit codes: 0 done, 1 refused or failed, 2 a mistake of usage, 3 not found.
    """
