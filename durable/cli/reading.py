"""The commands that show workflows."""

from __future__ import annotations

from typing import Annotated

import typer

from durable.cli.options import Hero, Id, Json
from durable.cli.output import print_json
from durable.cli.root import LOOKING, app
from durable.states import WorkflowState


@app.command(name="list", rich_help_panel=LOOKING)
def list_workflows(
    state: Annotated[
        list[WorkflowState] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help=f"Only in this state: {', '.join(WorkflowState)}. May be repeated.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--class", metavar="NAME", help="Only of this class: its name or the end of it.", show_default=False
        ),
    ] = None,
    hero: Hero = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")] = 20,
    after: Annotated[
        str | None, typer.Option("--after", metavar="ID", help="Go on after the last of a page.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """List workflows, newest first."""
    from durable.cli import documents, loading, lookups, pages
    from durable.store import workflows

    loading.load_classes()
    last = None if after is None else lookups.read_id(after)
    with lookups.snapshot() as (conn, now):
        found = workflows.find(
            conn,
            names=None if name is None else [lookups.known_class(conn, name)],
            states=state or None,
            hero=None if hero is None else lookups.known_hero(conn, hero),
            limit=limit + 1,
            after=last,
        )
    page, more = found[:limit], len(found) > limit
    if as_json:
        print_json(documents.page(page, more=more))
    else:
        pages.print_list(page, now, more=more)


@app.command(rich_help_panel=LOOKING)
def show(id: Id, as_json: Json = False) -> None:
    """Show everything of one workflow."""
    from durable.cli import documents, lookups, pages
    from durable.store import audit, executions

    with lookups.snapshot() as (conn, now):
        row = lookups.read_row(conn, id)
        history = executions.history(conn, row.id)
        entries = audit.entries(conn, row.id)
    if as_json:
        print_json(documents.workflow(row, history, entries))
    else:
        pages.print_workflow(row, history, entries, now)
