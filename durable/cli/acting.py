"""The commands that start workflows and steer them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from durable.cli import loading
from durable.cli.errors import REFUSED, misused, not_found, told_of
from durable.cli.options import By, Hero, Ids, Json, Reason, by_default
from durable.cli.output import print_json
from durable.cli.root import STEERING, app

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from durable.workflow import Workflow

    Verb = Callable[[Workflow[Any]], Workflow[Any]]


@app.command(rich_help_panel=STEERING)
def start(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The class: its name or the end of it.")],
    hero: Hero = None,
    input: Annotated[str | None, typer.Option(metavar="JSON", help="The workflow's input.", show_default=False)] = None,
    wait: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Begin later, e.g. 90s or 3d.", show_default=False)
    ] = None,
    priority: Annotated[int | None, typer.Option(help="Lower runs first.", show_default="the class's")] = None,
    as_json: Json = False,
) -> None:
    """Start a workflow and print its id."""
    from durable import runtime

    given = loading.read_json(input, "--input")
    delay = _read_wait(wait)
    loading.require_classes()
    workflow_class = loading.find_class(name)
    with runtime.current().session() as session, session.begin():
        found = None if hero is None else _load_hero(session, hero)
        started = workflow_class.create(found, given, session=session, wait=delay, priority=priority)
    if as_json:
        from durable.cli import documents

        print_json(documents.summary(started._row))
    else:
        typer.echo(started.id)


@app.command(rich_help_panel=STEERING)
def pause(ids: Ids, reason: Reason = None, by: By = None, as_json: Json = False) -> None:
    """Stop workflows before their next step."""
    who = by_default(by)
    _steer("pause", ids, lambda workflow: workflow.pause(reason, by=who), as_json=as_json)


@app.command(rich_help_panel=STEERING)
def resume(
    ids: Ids,
    input: Annotated[
        str | None, typer.Option(metavar="JSON", help="Reaches the step as self.resume_input.", show_default=False)
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="STEP", help="Go on with this step instead.", show_default=False)
    ] = None,
    reason: Reason = None,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Let paused or failed workflows go on."""
    who, given = by_default(by), loading.read_json(input, "--input")
    _steer("resume", ids, lambda workflow: workflow.resume(given, at, by=who, reason=reason), as_json=as_json)


@app.command(rich_help_panel=STEERING)
def skip(ids: Ids, reason: Reason = None, by: By = None, as_json: Json = False) -> None:
    """Pass over the step that is pending or stopped it."""
    who = by_default(by)
    _steer("skip", ids, lambda workflow: workflow.skip(reason, by=who), as_json=as_json)


@app.command(rich_help_panel=STEERING)
def cancel(ids: Ids, reason: Reason = None, by: By = None, as_json: Json = False) -> None:
    """End workflows; a step that is running is interrupted."""
    who = by_default(by)
    _steer("cancel", ids, lambda workflow: workflow.cancel(reason, by=who), as_json=as_json)


@app.command(rich_help_panel=STEERING)
def retry(
    ids: Ids,
    from_step: Annotated[
        str | None,
        typer.Option(metavar="STEP", help="From this step on.", show_default="the one that stopped it, else the first"),
    ] = None,
    reason: Reason = None,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Run workflows again that have ended or stopped."""
    who = by_default(by)
    _steer("retry", ids, lambda workflow: workflow.retry(from_step, by=who, reason=reason), as_json=as_json)


@dataclass(frozen=True)
class Deed:
    """What came of a verb on one workflow."""

    id: str
    done: bool
    state: str | None = None
    error: str | None = None
    code: int = 0


def _steer(verb: str, ids: Sequence[str], do: Verb, *, as_json: bool) -> None:
    """Use a verb on each workflow: a refusal of one does not keep the others from it."""
    loading.load_classes()
    deeds = []
    for id in ids:
        deed = _attempt(id, do)
        deeds.append(deed)
        if deed.error is not None:
            typer.echo(deed.error, err=True)
        elif not as_json:
            typer.echo(f"{deed.id} {_became(verb, deed)}")
    if as_json:
        results = [{"id": one.id, "done": one.done, "state": one.state, "error": one.error} for one in deeds]
        print_json({"verb": verb, "results": results})
    codes = {deed.code for deed in deeds if deed.code}
    if codes:
        raise typer.Exit(REFUSED if REFUSED in codes else max(codes))


def _attempt(id: str, do: Verb) -> Deed:
    from durable.workflow import Workflow

    try:
        workflow = do(Workflow.get(id))
    except Exception as error:
        told = told_of(error)
        if told is None:
            raise
        return Deed(id, done=False, error=told.sentence, code=told.code)
    return Deed(str(workflow.id), done=True, state=workflow.state)


def _became(verb: str, deed: Deed) -> str:
    from durable.states import StopRequest

    if deed.state == "performing" and verb in tuple(StopRequest):
        return f"is performing a step: the {verb} is done {StopRequest(verb).when}"
    return f"is {deed.state}"


def _read_wait(text: str | None) -> Any:
    from durable import durations
    from durable.errors import InvalidDuration

    try:
        return None if text is None else durations.parse(text)
    except InvalidDuration as error:
        raise misused(f"--wait: {error}") from None


def _load_hero(session: Session, text: str) -> object:
    """Return the hero that was named, by the full name of its class or the end of it."""
    from sqlalchemy.exc import DataError

    from durable import heroes
    from durable.errors import HeroUnresolvable
    from durable.heroes import HeroReference

    named = loading.read_hero(text)
    reference = HeroReference(_hero_type(named.type), named.key)
    try:
        found = heroes.load(session, reference)
    except (HeroUnresolvable, DataError):  # whose words are those of pydantic and of the database
        raise not_found(f"the key {reference.key!r} is not one that a {reference.type} can have") from None
    if found is None:
        raise not_found(f"there is no {reference.type} with the key {reference.key}")
    return found


def _hero_type(name: str) -> str:
    from durable import heroes
    from durable.errors import HeroUnresolvable

    try:
        heroes.resolve_type(name)
    except HeroUnresolvable:
        return loading.pick(name, loading.loaded_hero_types(), "hero type")
    return name
