"""The commands that tell how things are going, and why something is not."""

from __future__ import annotations

import typer

from durable.cli.errors import REFUSED
from durable.cli.options import Id, Json
from durable.cli.output import print_json
from durable.cli.root import LOOKING, app


@app.command(rich_help_panel=LOOKING)
def stats(as_json: Json = False) -> None:
    """Count workflows, messages, errors and workers."""
    from durable.cli import figures

    gathered = figures.gather()
    if as_json:
        print_json(figures.document(gathered))
    else:
        figures.print_figures(gathered)


@app.command(rich_help_panel=LOOKING)
def explain(id: Id, as_json: Json = False) -> None:
    """Explain why a workflow is not moving, and what to do."""
    from durable.cli import explaining, loading, situation

    loading.load_classes()
    found = situation.look(id)
    explanation = explaining.explain(found)
    if as_json:
        print_json({"id": found.row.id, "state": found.row.state, "why": explanation.why, "do": explanation.do})
    else:
        explaining.print_explanation(found, explanation)


@app.command(rich_help_panel=LOOKING)
def doctor(as_json: Json = False) -> None:
    """Check everything that workflows need to move."""
    from durable.cli import checks

    done = checks.examine()
    ok = not any(check.status == "problem" for check in done)
    if as_json:
        print_json({"ok": ok, "checks": done})
    else:
        checks.print_checks(done)
    if not ok:
        raise typer.Exit(REFUSED)
