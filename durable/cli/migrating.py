"""The command that brings the database's schema up to date."""

from __future__ import annotations

from typing import Annotated

import typer

from durable.cli.options import Json
from durable.cli.output import print_json
from durable.cli.root import app


@app.command()
def migrate(
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; fail unless the schema is this code's.")
    ] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Print the SQL of a new database's schema instead.")] = False,
    as_json: Json = False,
) -> None:
    """Bring the database's schema up to date."""
    from durable import migrate as migrations
    from durable import runtime

    if sql:
        typer.echo(migrations.sql())
        return
    engine = runtime.current().engine
    if not check:
        migrations.migrate(engine)
    revision, newest = migrations.check(engine, may_be_ahead=not check), migrations.newest()
    if as_json:
        print_json({"revision": revision})
    elif revision == newest:
        typer.echo(f"the schema is at {revision}")
    else:
        typer.echo(migrations.SchemaAhead(revision, newest))
