"""The figures of `stats`: counted up to a cap, so that they come at once from tables of any size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from rich.padding import Padding
from rich.table import Table

from durable import runtime
from durable.cli.output import STYLES, console, short_names, span, styled, table
from durable.states import WorkflowState
from durable.store import statistics
from durable.store.statistics import Backlog, Count, FailureGroup, Pace, Tally, WorkerRow

MANY = 100_000
SOME = 10_000
LATE = timedelta(seconds=30)
_MINUTE, _HOUR = timedelta(minutes=1), timedelta(hours=1)


@dataclass(frozen=True)
class Figures:
    """How everything stands at one moment."""

    now: datetime
    tallies: list[Tally]
    backlog: Backlog
    workers: list[WorkerRow]
    paces: list[Pace]
    failures: list[FailureGroup]


def gather() -> Figures:
    """Count everything."""
    current = runtime.current()
    clock, settings = current.clock, current.settings
    with current.statement() as conn:
        found = statistics.workers(conn, clock, lost_after=settings.lost_worker_after)
        return Figures(
            now=statistics.now(conn, clock),
            tallies=statistics.ongoing(conn, cap=MANY) + statistics.ended(conn, cap=SOME),
            backlog=statistics.backlog(conn, clock, late=LATE, reach=settings.stuck_scheduled_after, cap=SOME),
            workers=[worker for worker in found if worker.alive],
            paces=[statistics.pace(conn, clock, within=within, cap=MANY) for within in (_MINUTE, _HOUR)],
            failures=statistics.failures(conn, clock, within=_HOUR, cap=SOME),
        )


def document(figures: Figures) -> dict[str, Any]:
    """Return the figures for programs; where `more` is true, the number is the least that there are."""
    minute, hour = figures.paces
    return {
        "now": figures.now,
        "workflows": [{"class": t.name, "state": t.state, **_counted(t.count)} for t in figures.tallies],
        "messages": {
            "outbox": figures.backlog.size,
            "due": figures.backlog.due,
            "overdue": figures.backlog.overdue,
            "lag_seconds": figures.backlog.lag,
            "oldest_workflow": figures.backlog.oldest,
        },
        "workers": figures.workers,
        "throughput": {"last_minute": _pace(minute), "last_hour": _pace(hour)},
        "failures": [_failure(group) for group in figures.failures],
    }


def _counted(count: Count) -> dict[str, Any]:
    return {"number": count.number, "more": count.more}


def _pace(pace: Pace) -> dict[str, Any]:
    return {"executions": pace.executions, "workflows": pace.workflows}


def _failure(group: FailureGroup) -> dict[str, Any]:
    return {
        "class": group.name,
        "step": group.step,
        "error_class": group.error_class,
        "count": group.count,
        "last": group.last,
        "workflow_id": group.workflow_id,
    }


def print_figures(figures: Figures) -> None:
    """Print the figures for people."""
    _print_part("Workflows", _workflows(figures.tallies))
    _print_part("Messages", _messages(figures.backlog))
    _print_part("Throughput", _throughput(figures.paces))
    _print_part("Workers", _workers(figures) or "none alive: start one with `durable worker`")
    _print_part("Failures of the last hour", _failures(figures) or "none")


def _print_part(title: str, content: Table | str) -> None:
    out = console()
    out.print(styled(title, "bold underline"))
    out.print(Padding(content, (0, 0, 1, 2), expand=False))


def _workflows(tallies: Sequence[Tally]) -> Table | str:
    """Lay out a row for each class and a column for each state that occurs."""
    if not tallies:
        return "none"
    states = [state for state in WorkflowState if any(tally.state is state for tally in tallies)]
    names = sorted({tally.name for tally in tallies})
    short = short_names(names)
    made = table("class", *states, right=states)
    for column, state in zip(made.columns[1:], states, strict=True):
        column.style = STYLES[state]
    counts = {(tally.name, tally.state): tally.count for tally in tallies}
    for name in names:
        made.add_row(styled(short[name]), *[_cell(counts.get((name, state))) for state in states])
    if len(names) > 1:
        made.add_section()
        made.add_row("all", *[_cell(total(tallies, state)) for state in states])
    return made


def _cell(count: Count | None) -> str:
    return "·" if count is None else str(count)


def total(tallies: Sequence[Tally], state: WorkflowState) -> Count:
    """Return how many workflows of all classes are in a state."""
    counts = [tally.count for tally in tallies if tally.state is state]
    return Count(sum(count.number for count in counts), any(count.more for count in counts))


def _messages(backlog: Backlog) -> str:
    waiting = f"{backlog.size} in the outbox, {backlog.due} due, {backlog.overdue} overdue by more than {span(LATE)}"
    if backlog.oldest is None:
        return waiting
    return f"{waiting}\nlag {span(backlog.lag)}: see `durable explain {backlog.oldest}`"


def _throughput(paces: Sequence[Pace]) -> Table:
    made = table("ended in the last", "executions", "workflows", right=["executions", "workflows"])
    for pace, name in zip(paces, ("minute", "hour"), strict=True):
        made.add_row(name, str(pace.executions), str(pace.workflows))
    return made


def _workers(figures: Figures) -> Table | None:
    if not figures.workers:
        return None
    made = table("worker", "host", "queues", "classes", "performing", "up", right=["classes", "performing", "up"])
    for worker in figures.workers:
        made.add_row(
            styled(worker.id[:8]),
            styled(f"{worker.host}:{worker.pid}"),
            styled(", ".join(worker.queues)),
            str(len(worker.classes)),
            str(worker.performing),
            span(figures.now - worker.started_at),
        )
    return made


def _failures(figures: Figures) -> Table | None:
    if not figures.failures:
        return None
    short = short_names(group.name for group in figures.failures)
    made = table("count", "class", "step", "error", "last", right=["count", "last"])
    for group in figures.failures:
        made.add_row(
            f"{group.count:,}",
            styled(short[group.name]),
            styled(group.step),
            styled(group.error_class.rpartition(".")[2], "red"),
            f"{span(figures.now - group.last)} ago",
        )
    return made
