"""Why a workflow is not moving, in sentences; it reads a situation and asks nobody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from durable.cli.errors import in_one_line
from durable.cli.output import console, many, moment, span, state_text, styled
from durable.cli.situation import Situation
from durable.states import WorkflowState
from durable.store.rows import Execution
from durable.store.statistics import WorkerRow

_RELAY_IS_LATE = timedelta(seconds=10)
_FOR_THE_REAPER = "wait for the reaper, which runs in every worker unless told otherwise, or `durable reap --once`"


@dataclass
class Explanation:
    """Sentences that say why, and commands or advice that say what to do."""

    why: list[str] = field(default_factory=list)
    do: list[str] = field(default_factory=list)


def explain(s: Situation) -> Explanation:
    """Explain where a workflow stands."""
    explanation = Explanation()
    _BY_STATE.get(s.row.state, _ended)(s, explanation)
    return explanation


def print_explanation(s: Situation, explanation: Explanation) -> None:
    """Print the sentences for people."""
    out = console()
    out.print(styled(f"{s.row.name.rpartition('.')[2]} {s.id}", "bold"), state_text(s.row.state))
    for sentence in explanation.why:
        out.print(styled(sentence))
    if explanation.do:
        out.print(styled("\nWhat to do:", "bold"))
    for advice in explanation.do:
        out.print(styled(f"  - {advice}"), soft_wrap=True)  # a command that is copied must stay in one piece


def _ready(s: Situation, e: Explanation) -> None:
    live = s.live
    if live is None:
        _add_stranded(s, e)
        return
    if live.scheduled_for > s.now:
        due_in = span(live.scheduled_for - s.now)
        e.why.append(f"It is ready: its step {live.step} is due in {due_in}, at {moment(live.scheduled_for)}.")
        _add_hands(s, e, due=False)
        if not e.do:
            e.do.append("Nothing: it goes on by itself.")
        return
    overdue = f"by {span(s.since(live.scheduled_for))}, since {moment(live.scheduled_for)}"
    e.why.append(f"It is ready, and its step {live.step} is overdue {overdue}.")
    _add_message(s, e)
    _add_hands(s, e, due=True)


def _add_stranded(s: Situation, e: Explanation) -> None:
    """Say how a workflow gets on that is ready with nothing scheduled."""
    patience = s.settings.stuck_scheduled_after
    left = patience - s.since(s.row.created_at)
    e.why.append("It is ready, but no execution is scheduled: somebody has changed its rows by hand.")
    if left > timedelta():
        e.why.append(
            f"The reaper pauses such a workflow {span(patience)} after its creation, which is in {span(left)}."
        )
        e.do.append(f"wait until then, and {_FOR_THE_REAPER}")
    else:
        e.why.append(f"The reaper pauses it when it looks for damage, every {span(patience)}.")
        e.do.append(_FOR_THE_REAPER)
    e.do.append(f"then `durable resume {s.id}`, which schedules its step again")


def _add_message(s: Situation, e: Explanation) -> None:
    """Say how far its message has come."""
    message = s.message
    if message is None:
        patience = span(s.settings.stuck_scheduled_after)
        e.why.append(
            "It has no message in the outbox: somebody has deleted it. The reaper writes it anew once it is "
            f"{patience} overdue."
        )
        e.do.append(_FOR_THE_REAPER)
        return
    if message.sends:
        e.why.append(f"Its message was sent {_times(message.sends)} by the relay and nobody has taken it.")
    else:
        e.why.append("Its message was not yet sent by the relay.")
    late = s.now - message.due_at
    if late > _RELAY_IS_LATE:
        e.why.append(f"The relay should have looked at it {span(late)} ago: no relay seems to run.")
        e.do.append("`durable relay`, or a worker, which runs a relay unless told otherwise")


def _add_hands(s: Situation, e: Explanation, *, due: bool) -> None:
    """Say who could take it, and why they do not."""
    row, alive = s.row, s.alive
    serving = [worker for worker in alive if row.queue in worker.queues]
    knowing = [worker for worker in alive if row.name in worker.classes]
    if not alive:
        e.why.append("No worker is alive.")
        e.do.append("`durable worker`")
    elif not serving:
        served = ", ".join(sorted({queue for worker in alive for queue in worker.queues})) or "none"
        e.why.append(f"No live worker serves the queue {row.queue} (served: {served}).")
        e.do.append(f"`durable worker --queue {row.queue}`")
    elif not knowing:
        e.why.append(f"No live worker has loaded the class {row.name}.")
        e.do.append("deploy the code that has it, or name its module in DURABLE_MODULES of the workers")
    elif not [worker for worker in serving if worker in knowing]:
        e.why.append(f"No live worker both serves the queue {row.queue} and has loaded the class {row.name}.")
        e.do.append(f"`durable worker --queue {row.queue}`, with the module of the class in DURABLE_MODULES")
    elif due:
        _add_busy(s, e, [worker for worker in serving if worker in knowing])


def _add_busy(s: Situation, e: Explanation, able: list[WorkerRow]) -> None:
    performing = sum(worker.performing for worker in able)
    e.why.append(
        f"{many(len(able), 'live worker')} could take it, with {many(performing, 'execution')} to perform now; in all "
        f"queues {many(s.due, 'due message')} wait for a worker."
    )
    e.do.append("wait, or start more workers: `durable worker`" if performing else "`durable doctor`")


def _performing(s: Situation, e: Explanation) -> None:
    live = s.live
    if live is None or live.started_at is None:
        e.why.append("It is performing, but no execution is in progress: somebody has changed its rows by hand.")
        return
    since = f"since {span(s.since(live.started_at))} (attempt {live.attempt})"
    e.why.append(f"Its step {live.step} is performed {since} by worker {(live.worker or 'unknown')[:8]}.")
    worker = next((one for one in s.workers if one.id == live.worker), None)
    if worker is not None and worker.alive:
        e.why.append(f"{_place(worker)} is alive, last seen {span(s.since(worker.seen_at))} ago.")
    else:
        _add_lost(s, e, worker)
    if s.row.stop_requested is not None:
        e.why.append(f"A {s.row.stop_requested} was asked for; it is done {s.row.stop_requested.when}.")
    if not e.do:
        e.do.append("wait until the step ends; a `timeout` of the step limits that")


def _add_lost(s: Situation, e: Explanation, worker: WorkerRow | None) -> None:
    """Say when a claim of a worker that gives no sign of life is taken from it."""
    left = None if s.lease_until is None else s.lease_until - s.now
    if left is not None and left > timedelta():
        if worker is not None:
            e.why.append(f"{_place(worker)} was not seen for {span(s.since(worker.seen_at))}: it is lost.")
            e.why.append(f"The reaper takes the execution from it within {span(left)}.")
        else:
            e.why.append(f"That worker is not registered; it may keep its claim for another {span(left)}.")
    else:
        e.why.append(f"That worker is lost: its claim ran out{'' if left is None else f' {span(left)} ago'}.")
        e.why.append("The reaper takes the execution from it at its next look.")
    if not s.alive:
        e.why.append("No worker is alive whose reaper could do that.")
        e.do.append("`durable worker`, or `durable reap`")


def _paused(s: Situation, e: Explanation) -> None:
    since = _paused_since(s)
    e.why.append(f"It is paused{'' if since is None else f' for {span(s.since(since))} now'}: {s.row.reason}.")
    by = _by(s, "pause")
    if by:
        e.why.append(f"It was paused by {by}.")
    live, last = s.live, s.last
    if live is not None:
        due = live.scheduled_for - s.now
        when = f"in {span(due)}" if due > timedelta() else "at once: it is overdue"
        e.why.append(f"When it is resumed, its step {live.step} runs {when}.")
    elif last is not None and last.error_class:
        raised = "this" if last.error_class in (s.row.reason or "") else _error(last)
        e.why.append(f"Its step {last.step} raised {raised} in attempt {last.attempt}.")
    e.do.append(f"`durable resume {s.id}` to go on" + (f" with the step {s.row.step}" if s.row.step else ""))
    if s.row.step:
        e.do.append(f"`durable skip {s.id}` to pass over that step")
    e.do.append(f"`durable cancel {s.id}` to end it")
    if last is not None and last.error_class:
        e.do.append(f"`durable show {s.id} --json` for the traceback")
    _add_not_loaded(s, e)


def _add_not_loaded(s: Situation, e: Explanation) -> None:
    if not s.loaded:
        e.why.append(
            f"The class {s.row.name} is not loaded here: to skip or retry, name its module in DURABLE_MODULES."
        )


def _waiting(s: Situation, e: Explanation) -> None:
    step = s.row.step or "?"
    e.why.append(f"It is waiting: its step {step} starts when what it waits for has come.")
    e.do.append(f"`durable skip {s.id}` to pass over that step")
    e.do.append(f"`durable cancel {s.id}` to end it")


def _compensating(s: Situation, e: Explanation) -> None:
    e.why.append("It is undoing what it did, and ends as rolled back.")
    e.do.append("Nothing: it goes on by itself.")


def _ended(s: Situation, e: Explanation) -> None:
    row = s.row
    ago = "" if row.ended_at is None else f" {span(s.since(row.ended_at))} ago"
    because = f": {row.reason}" if row.reason else ""
    e.why.append(f"It has ended as {row.state}{ago}{because}.")
    by = _by(s, "cancel")
    if row.state is WorkflowState.CANCELED and by:
        e.why.append(f"It was canceled by {by}.")
    if s.last is not None and s.last.error_class and row.state is not WorkflowState.FINISHED:
        e.why.append(f"Its step {s.last.step} raised {_error(s.last)} in attempt {s.last.attempt}.")
    if row.state is WorkflowState.ROLLED_BACK:
        e.do.append("Nothing: what was undone stays undone.")
    else:
        e.do.append(f"Nothing, or `durable retry {s.id}` to run it again")


_BY_STATE: dict[WorkflowState, Callable[[Situation, Explanation], None]] = {
    WorkflowState.READY: _ready,
    WorkflowState.PERFORMING: _performing,
    WorkflowState.PAUSED: _paused,
    WorkflowState.WAITING: _waiting,
    WorkflowState.COMPENSATING: _compensating,
}


def _paused_since(s: Situation) -> datetime | None:
    """Return when it was paused: by the execution that ended last, or by a caller after it."""
    times = [] if s.last is None or s.last.finished_at is None else [s.last.finished_at]
    times += [entry.at for entry in s.audit[-1:] if entry.verb == "pause"]
    return max(times, default=None)


def _by(s: Situation, verb: str) -> str | None:
    """Return who used a verb on it, if that is the last thing that anybody did."""
    return next((entry.by for entry in s.audit[-1:] if entry.verb == verb), None)


def _error(execution: Execution) -> str:
    return f"{execution.error_class}: {in_one_line(execution.error_message or '')}".removesuffix(": ")


def _place(worker: WorkerRow) -> str:
    return f"Worker {worker.id[:8]} ({worker.host}, process {worker.pid})"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
