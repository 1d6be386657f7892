"""Every error that `durable` raises, each a sentence that says what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID


class DurableError(Exception):
    """The base of all errors of this library."""


class NotConfigured(DurableError):
    """No database is known."""

    def __init__(self) -> None:
        super().__init__(
            "durable does not know its database: call durable.configure(database_url=...) or set DURABLE_DATABASE_URL"
        )


class NoBroker(DurableError):
    """No broker is known."""

    def __init__(self) -> None:
        super().__init__(
            "durable does not know its broker: call durable.configure(redis_url=...) or set DURABLE_REDIS_URL, "
            "e.g. redis://localhost:6379/0 (or DURABLE_RABBITMQ_URL)"
        )


class NoWorkflows(DurableError):
    """No module is known that defines workflows."""


class StepConfigurationError(DurableError):
    """A workflow class, a step or a policy is declared in a way that cannot work."""


class InvalidDuration(DurableError, ValueError):
    """A duration that cannot be understood, or is negative."""


class InvalidInput(DurableError, ValueError):
    """The input given to `create` or `resume` does not fit the workflow."""


class InvalidHero(DurableError, ValueError):
    """The hero cannot be stored as type and key, or lives elsewhere."""


class NotJson(DurableError, ValueError):
    """A value that must be kept as JSON is not JSON."""


class HeroUnresolvable(DurableError):
    """The hero's type or key no longer means anything to the code at hand."""


class StepNotDefined(DurableError):
    """An execution names a step that the class does not have (any more)."""

    def __init__(self, name: str, step: str, known: Iterable[str]) -> None:
        super().__init__(
            f"{name} has no step {step!r} (it has {', '.join(known) or 'none'}): declare it again, leave "
            f"{step} = removed_step() in its place, or resume(at=...) another step"
        )
        self.step = step


class AlreadyOngoing(DurableError):
    """The unique slot is taken by another workflow."""

    def __init__(self, name: str, unique_key: str, workflow_id: UUID) -> None:
        super().__init__(
            f"workflow {workflow_id} holds the slot of {name} for {unique_key}: "
            "get_or_create() returns it, and it is free once that workflow has left it"
        )
        self.workflow_id = workflow_id


class WorkflowNotFound(DurableError, LookupError):
    """There is no workflow with this id (in this class)."""

    def __init__(self, workflow_id: object, name: str | None = None) -> None:
        super().__init__(f"there is no {name or 'workflow'} with the id {workflow_id}")
        self.workflow_id = workflow_id


class InvalidTransition(DurableError):
    """A verb was called in a state that does not allow it; nothing was changed."""

    def __init__(self, workflow_id: UUID, verb: str, state: str, why: str) -> None:
        super().__init__(f"cannot {verb} workflow {workflow_id}, it is {state}: {why}")
        self.workflow_id = workflow_id
        self.verb = verb
        self.state = state


class ClassNotLoaded(DurableError):
    """The workflow's class is not imported in this process."""

    def __init__(self, name: str, verb: str) -> None:
        super().__init__(f"cannot {verb}: the workflow class {name!r} is not loaded here; import its module first")


class OutsideStep(DurableError):
    """Flow control, or what only a running step has, was used on a workflow that is not running a step."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is for the code of a step, while it runs")


class InsideStep(DurableError):
    """A verb for callers was used by a step on its own workflow."""

    def __init__(self, verb: str) -> None:
        super().__init__(f"a step cannot {verb} its own workflow: end the step by flow control instead")


class ClaimLost(DurableError):
    """The worker was slower than its lease; what it did in this transaction is undone."""

    def __init__(self, execution_id: UUID) -> None:
        super().__init__(f"execution {execution_id} is no longer claimed by this worker")
        self.execution_id = execution_id


class StepTimeout(DurableError, TimeoutError):
    """A step's body ran for longer than its `timeout`."""

    def __init__(self, step: str, timeout: timedelta) -> None:
        super().__init__(f"step {step!r} ran for longer than its timeout of {timeout}")
        self.step = step
        self.timeout = timeout


class SessionMisused(DurableError):
    """A step tried to commit its session by itself."""

    def __init__(self) -> None:
        super().__init__(
            "a step's session is committed with the step's outcome, never by the step: "
            "use self.session.flush(), or a session of your own for what must be committed apart"
        )


class SessionAborted(DurableError):
    """A step caught an error of the database and went on in a transaction that can only be rolled back."""

    def __init__(self) -> None:
        super().__init__(
            "the step's transaction is aborted: an error of the database was caught without a rollback; "
            "try such statements inside `with self.session.begin_nested():`"
        )


class NonRetryable(DurableError):
    """Raise it, or a subclass, in a step whose failure no reattempt can mend."""
