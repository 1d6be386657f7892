"""The command `durable`."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(name="durable", no_args_is_help=True, add_completion=False)


@app.callback()
def main() -> None:
    """Workflows that survive crashes, deploys and long waits."""


def refused(why: str) -> typer.Exit:
    """Say why, and return what ends the command."""
    typer.echo(why, err=True)
    return typer.Exit(1)


@app.command()
def migrate(
    check: Annotated[bool, typer.Option(help="Change nothing; fail if the database is behind.")] = False,
    sql: Annotated[bool, typer.Option(help="Print the SQL of a new database's schema instead.")] = False,
) -> None:
    """Bring the database's schema up to date."""
    from sqlalchemy.exc import OperationalError

    from durable import migrate as migrations
    from durable import runtime
    from durable.errors import DurableError

    if sql:
        typer.echo(migrations.sql())
        return
    try:
        engine = runtime.current().engine
        if not check:
            migrations.migrate(engine)
        migrations.check(engine)
    except DurableError as error:
        raise refused(str(error)) from None
    except OperationalError as error:
        raise refused(f"cannot reach the database: {error.orig}") from None
    typer.echo(f"the schema is at {migrations.newest()}")
