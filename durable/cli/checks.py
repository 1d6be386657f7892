"""The checks of `doctor`: each tells in a line whether something works, and what mends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

from rich.table import Table
from rich.text import Text
from sqlalchemy import Connection

from durable import migrate, registry, runtime
from durable.cli import loading
from durable.cli.errors import told_of
from durable.cli.figures import LATE, MANY, SOME, total
from durable.cli.output import console, many, span, styled
from durable.errors import NoBroker
from durable.runtime import Runtime
from durable.states import WorkflowState
from durable.store import statistics
from durable.store.statistics import Backlog, Damage, Tally, WorkerRow

MOST_SKEW = timedelta(seconds=2)

Status = Literal["ok", "problem", "information", "unchecked"]
T = TypeVar("T")


@dataclass(frozen=True)
class Check:
    """What came of one check."""

    name: str
    status: Status
    says: str
    mend: str | None = None


@dataclass(frozen=True)
class View:
    """What the checks look at, once the database answers."""

    runtime: Runtime
    conn: Connection
    broker_answers: bool
    why_no_classes: str | None
    alive: list[WorkerRow]
    tallies: list[Tally]
    backlog: Backlog
    stuck: Backlog
    damage: Damage


def examine() -> list[Check]:
    """Check everything; what cannot be checked before something else works is passed over."""
    why_no_classes = loading.load_classes()
    current = runtime.current()
    database = _attempt("database", _database, current)
    schema = _attempt("schema", _schema, current) if database.status == "ok" else _unchecked("schema")
    broker = _attempt("broker", _broker, current)
    reached = [database, schema, broker]
    if schema.status != "ok":
        return reached + [_unchecked(name) for name in _LOOKING]
    with current.statement() as conn:
        view = _view(current, conn, broker_answers=broker.status == "ok", why_no_classes=why_no_classes)
        return reached + [_attempt(name, check, view) for name, check in _LOOKING.items()]


def print_checks(checks: Sequence[Check]) -> None:
    """Print the checks for people, one below the other."""
    made = Table.grid(padding=(0, 2, 0, 0))
    for check in checks:
        says = styled(check.says)
        mend = styled(f"\n→ {check.mend}", "bold") if check.mend else Text()
        made.add_row(_LABELS[check.status], styled(check.name), Text.assemble(says, mend))
    console().print(made)


_LABELS = {
    "ok": styled("OK", "green"),
    "problem": styled("PROBLEM", "bold red"),
    "information": styled("INFO", "cyan"),
    "unchecked": styled("-", "bright_black"),
}


def _attempt(name: str, check: Callable[[T], Check], subject: T) -> Check:
    """Check something; an error that was to be expected is the problem."""
    try:
        return check(subject)
    except Exception as error:
        told = told_of(error)
        if told is None:
            raise
        return Check(name, "problem", told.sentence)


def _unchecked(name: str) -> Check:
    return Check(name, "unchecked", "not checked before the problem above is mended")


def _view(current: Runtime, conn: Connection, *, broker_answers: bool, why_no_classes: str | None) -> View:
    clock, settings = current.clock, current.settings
    workers = statistics.workers(conn, clock, lost_after=settings.lost_worker_after)
    stuck = settings.stuck_scheduled_after
    return View(
        runtime=current,
        conn=conn,
        broker_answers=broker_answers,
        why_no_classes=why_no_classes,
        alive=[worker for worker in workers if worker.alive],
        tallies=statistics.ongoing(conn, cap=MANY),
        backlog=statistics.backlog(conn, clock, late=LATE, reach=stuck, cap=SOME),
        stuck=statistics.backlog(conn, clock, late=stuck, reach=stuck, cap=SOME),
        damage=statistics.damage(conn, clock, overdue=stuck, cap=SOME),
    )


def _database(current: Runtime) -> Check:
    with current.statement() as conn:
        statistics.server_time(conn)
    return Check("database", "ok", f"{current.engine.url.set(query={}).render_as_string()} answers")


def _schema(current: Runtime) -> Check:
    migrate.check(current.engine)
    return Check("schema", "ok", f"at {migrate.newest()}, the newest")


def _broker(current: Runtime) -> Check:
    broker: Any = current.broker
    if broker is None:
        raise NoBroker
    if hasattr(broker, "client"):
        broker.client.ping()
        return Check("broker", "ok", "Redis answers")
    _ = broker.connection
    return Check("broker", "ok", "RabbitMQ answers")


def _dead_letters(view: View) -> Check:
    """Count the messages that Dramatiq gave up; they are all of what it keeps, the truth is in the database."""
    client = getattr(view.runtime.broker, "client", None)
    if client is None or not view.broker_answers:
        return Check("dead letters", "unchecked", "only counted in a Redis that answers")
    space = view.runtime.settings.redis_namespace
    keys = [f"{space}:{queue}.XQ" for queue in _queues(view)]
    full = {key: number for key in keys if (number := int(client.zcard(key)))}
    if not full:
        return Check("dead letters", "ok", f"none in {many(len(keys), 'queue')}")
    named = ", ".join(f"{number} in {key}" for key, number in full.items())
    lists = " ".join(f"{key} {key}.msgs" for key in full)
    mend = f"read the workers' logs; no workflow needs them, so clear them with `redis-cli DEL {lists}`"
    return Check("dead letters", "problem", named, mend)


def _queues(view: View) -> list[str]:
    loaded = (one for versions in registry.loaded().values() for one in versions.values())
    return sorted({one.options.queue for one in loaded} | {queue for worker in view.alive for queue in worker.queues})


def _clock(view: View) -> Check:
    before = _this_machine()
    theirs = statistics.server_time(view.conn)
    off = skew(theirs, before=before, after=_this_machine())
    if off <= MOST_SKEW:
        return Check("clock", "ok", "this machine and the database agree")
    mend = "let both take the time from NTP, e.g. `timedatectl set-ntp true`"
    return Check("clock", "problem", f"this machine and the database are {span(off)} apart", mend)


def skew(theirs: datetime, *, before: datetime, after: datetime) -> timedelta:
    """Return how far another clock is off, when it was read between two looks at one's own."""
    return max(before - theirs, theirs - after, timedelta())


def _this_machine() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  # the one thing that is asked about this very clock


def _workers(view: View) -> Check:
    if not view.alive:
        return Check("workers", "problem", "none is alive, so nothing moves", "`durable worker`")
    performing = sum(worker.performing for worker in view.alive)
    return Check("workers", "ok", f"{len(view.alive)} alive, performing {many(performing, 'execution')}")


def _lag(view: View) -> Check:
    backlog = view.backlog
    if backlog.oldest is None:
        return Check("lag", "ok", "no message is due")
    if backlog.lag <= LATE:
        return Check("lag", "ok", f"{many(backlog.due, 'message')} due, the oldest for {span(backlog.lag)}")
    says = f"{many(backlog.overdue, 'message')} overdue by more than {span(LATE)}, the oldest by {span(backlog.lag)}"
    return Check("lag", "problem", says, f"`durable explain {backlog.oldest}`")


def _stuck(view: View) -> Check:
    overdue = f"overdue by more than {span(view.runtime.settings.stuck_scheduled_after)}"
    reap, explain = "`durable reap --once`", f"`durable explain {view.stuck.oldest}`"
    kinds = (
        (view.damage.without_message, "execution", f"{overdue} without a message", reap),
        (view.damage.without_execution, "workflow", "ready with nothing scheduled", reap),
        (view.stuck.overdue, "execution", overdue, explain),
    )
    found = {f"{many(count, noun)} {how}": mend for count, noun, how, mend in kinds if count.number}
    if not found:
        return Check("stuck", "ok", f"no execution is {overdue}")
    return Check("stuck", "problem", ", ".join(found), ", then ".join(dict.fromkeys(found.values())))


def _classes(view: View) -> Check:
    here = set(registry.loaded())
    elsewhere = {name for worker in view.alive for name in worker.classes}
    stranded = sorted({tally.name for tally in view.tallies} - here - elsewhere)
    if stranded:
        says = f"ongoing workflows have classes that are loaded nowhere: {', '.join(stranded)}"
        mend = f"deploy their code, or name its module in DURABLE_MODULES; see `durable list --class {stranded[0]}`"
        return Check("classes", "problem", says, mend)
    if not here and not elsewhere:
        return Check("classes", "problem", view.why_no_classes or "no workflow class is loaded")
    return Check("classes", "ok", f"{len(here)} loaded here, {len(elsewhere)} by live workers")


def _paused(view: View) -> Check:
    count = total(view.tallies, WorkflowState.PAUSED)
    if not count.number:
        return Check("paused", "ok", "no workflow is paused")
    return Check("paused", "information", many(count, "workflow"), "`durable list --state paused`")


_LOOKING: dict[str, Callable[[View], Check]] = {
    "dead letters": _dead_letters,
    "clock": _clock,
    "workers": _workers,
    "lag": _lag,
    "stuck": _stuck,
    "classes": _classes,
    "paused": _paused,
}
