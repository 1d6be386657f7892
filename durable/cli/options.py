"""The arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Id = Annotated[str, typer.Argument(metavar="ID", help="The workflow's id.", show_default=False)]
Ids = Annotated[list[str], typer.Argument(metavar="ID", help="The ids of the workflows.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]
By = Annotated[
    str | None, typer.Option("--by", help="Who does it, for the audit.", show_default="cli:<your login name>")
]
Reason = Annotated[str | None, typer.Option("--reason", help="Why, for the audit.", show_default=False)]
Hero = Annotated[
    str | None, typer.Option("--hero", metavar="TYPE:KEY", help="The hero, e.g. Order:42.", show_default=False)
]


def by_default(by: str | None) -> str:
    """Return who uses a verb: whom the option names, else the person at the terminal."""
    from getpass import getuser

    if by is not None:
        return by
    try:
        return f"cli:{getuser()}"
    except (OSError, KeyError):  # a container may have no name for its user
        import os

        return f"cli:{os.getuid()}"
