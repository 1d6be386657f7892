"""Workflow: what users subclass to write one, and what they hold to steer one."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from copy import deepcopy
from functools import cache, partial
from typing import Any, ClassVar, Generic, Self, TypeAlias, get_type_hints
from uuid import UUID

from pydantic import TypeAdapter, ValidationError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from durable import creation, durations, heroes, registry, runtime
from durable.context import StepContext
from durable.coroutines import awaited
from durable.creation import Created, HeroT, Plans
from durable.durations import Duration
from durable.errors import AlreadyOngoing, DurableError, InvalidInput, StepConfigurationError, WorkflowNotFound
from durable.handle import reading
from durable.meta import WorkflowMeta
from durable.options import ClassOptions, Unique, read_priority
from durable.policies import ExceptionPolicy
from durable.runtime import Place
from durable.states import WorkflowState
from durable.steering import Steering
from durable.steps import Definition
from durable.store import workflows
from durable.store.rows import WorkflowRow

States: TypeAlias = "WorkflowState | str | Iterable[WorkflowState | str]"
AnySession: TypeAlias = "Session | AsyncSession"


class Workflow(Steering, Generic[HeroT], metaclass=WorkflowMeta):
    """A process about one row of the user's database, its hero: steps that run one after the other.

    Subclass it and declare steps with `@step`; start one with `create(hero)`.
    """

    policies: ClassVar[Sequence[ExceptionPolicy]] = ()
    definition: ClassVar[Definition]
    options: ClassVar[ClassOptions]

    input: Any

    def __init_subclass__(
        cls,
        *,
        name: str = "",
        version: int = 1,
        queue: str = "default",
        priority: int = 0,
        may_proceed_without_hero: bool = False,
        unique: Unique = "hero",
        unique_in: Sequence[WorkflowState | str] = (),
    ) -> None:
        """Name the class keywords; `meta` reads them."""
        super().__init_subclass__()

    def __init__(self, *_: object, **__: object) -> None:
        raise DurableError(
            f"a workflow is started with {type(self).__qualname__}.create(hero), not by calling its class"
        )

    # --- creating

    @classmethod
    def create(
        cls,
        hero: HeroT,
        input: object = None,
        *,
        session: Session | None = None,
        wait: Duration | None = None,
        unique_key: str | None = None,
        priority: int | None = None,
    ) -> Self:
        """Create a workflow for a hero, in the transaction of `session` or of the hero's own session.

        With neither it is committed at once. `wait` takes the place of the first step's own wait.
        """
        now = runtime.current()
        birth = cls._plans().birth(**cls._timing(wait, priority))
        place = creation.place_of(now, hero, session)
        row = creation.create(now, cls._plans(), birth, hero, input, place=place, key=unique_key)
        if hero is not None:
            cls.know_hero(type(hero))
        return cls._from_row(row, place)

    @classmethod
    def get_or_create(
        cls,
        hero: HeroT,
        input: object = None,
        *,
        session: Session | None = None,
        wait: Duration | None = None,
        unique_key: str | None = None,
        priority: int | None = None,
    ) -> Self:
        """Create a workflow, or return the one that holds its slot."""
        options: dict[str, Any] = {"wait": wait, "unique_key": unique_key, "priority": priority}
        try:
            return cls.create(hero, input, session=session, **options)
        except AlreadyOngoing as taken:
            place = creation.place_of(runtime.current(), hero, session)
            return cls._from_row(_read(taken.workflow_id, place), place)

    @classmethod
    def create_many(
        cls,
        heroes: Iterable[HeroT],
        input: object = None,
        *,
        session: Session | None = None,
        wait: Duration | None = None,
        priority: int | None = None,
    ) -> Created[HeroT]:
        """Create a workflow for each hero whose slot is free: set-based, some thousands in a statement.

        All of it is in the transaction of `session`, or of the session that the heroes share; with neither, each batch
        is committed by itself.
        """
        now = runtime.current()
        birth = cls._plans().birth(**cls._timing(wait, priority))
        return creation.create_many(now, cls._plans(), birth, heroes, input, session=session)

    # --- reading

    @classmethod
    def get(cls, id: UUID | str, *, session: Session | None = None) -> Self:
        """Return a workflow of this class (of any class: `Workflow.get`), or raise `WorkflowNotFound`."""
        place = _opened(session)
        row = _read(id, place)
        if cls is not Workflow and row.name != cls.options.name:
            raise WorkflowNotFound(id, cls.options.name)
        return cls._from_row(row, place)

    @classmethod
    def list(
        cls,
        *,
        state: States | None = None,
        hero: object = None,
        limit: int = 100,
        after: UUID | Workflow[Any] | None = None,
        session: Session | None = None,
    ) -> Sequence[Self]:
        """Return workflows of this class (of all classes: `Workflow.list`), newest first; `after` turns the page."""
        place = _opened(session)
        last = after.id if isinstance(after, Workflow) else after
        with reading(place) as conn:
            rows = workflows.find(conn, **cls._filters(state, hero), limit=limit, after=last)
        return [cls._from_row(row, place) for row in rows]

    @classmethod
    def count(cls, *, state: States | None = None, hero: object = None) -> int:
        """Return how many workflows there are."""
        with reading(None) as conn:
            return workflows.count(conn, **cls._filters(state, hero))

    @classmethod
    def ongoing(cls, hero: HeroT) -> Self | None:
        """Return the ongoing workflow of this class for a hero."""
        session = heroes.session_of(hero)
        place = None if session is None else Place(session, heroes.mapper_of(type(hero)))
        reference = heroes.refer(hero)
        with reading(place) as conn:
            row = workflows.ongoing_of(conn, cls.options.name, (reference.type, reference.key))
        return None if row is None else cls._from_row(row, place)

    @property
    def hero(self) -> HeroT:
        """The row that the workflow serves."""
        loaded: HeroT = self._loaded_hero() if self._context is None else self._context.hero()
        return loaded

    def refresh(self) -> Self:
        """Read the row again."""
        self._show(self._refreshed())
        return self

    # --- awaitable twins

    @classmethod
    async def acreate(
        cls,
        hero: HeroT,
        input: object = None,
        *,
        session: AnySession | None = None,
        wait: Duration | None = None,
        unique_key: str | None = None,
        priority: int | None = None,
    ) -> Self:
        """Create a workflow, as `create` does, on an AsyncSession too."""
        call = partial(cls.create, hero, input, session=_sync(session), wait=wait, priority=priority)
        return await awaited(partial(call, unique_key=unique_key), _sync(session) or _session_of(hero))

    @classmethod
    async def aget_or_create(
        cls,
        hero: HeroT,
        input: object = None,
        *,
        session: AnySession | None = None,
        wait: Duration | None = None,
        unique_key: str | None = None,
        priority: int | None = None,
    ) -> Self:
        """Create a workflow or return the one that holds its slot, as `get_or_create` does."""
        call = partial(cls.get_or_create, hero, input, session=_sync(session), wait=wait, priority=priority)
        return await awaited(partial(call, unique_key=unique_key), _sync(session) or _session_of(hero))

    @classmethod
    async def acreate_many(
        cls,
        heroes: Iterable[HeroT],
        input: object = None,
        *,
        session: AnySession | None = None,
        wait: Duration | None = None,
        priority: int | None = None,
    ) -> Created[HeroT]:
        """Create many, as `create_many` does."""
        many = [*heroes]
        call = partial(cls.create_many, many, input, session=_sync(session), wait=wait, priority=priority)
        return await awaited(call, _sync(session) or _session_of(next(iter(many), None)))

    @classmethod
    async def aget(cls, id: UUID | str, *, session: AnySession | None = None) -> Self:
        """Return a workflow, as `get` does."""
        joined = _sync(session)
        return await awaited(lambda: cls.get(id, session=joined), joined)

    @classmethod
    async def alist(
        cls,
        *,
        state: States | None = None,
        hero: object = None,
        limit: int = 100,
        after: UUID | Workflow[Any] | None = None,
        session: AnySession | None = None,
    ) -> Sequence[Self]:
        """Return workflows, as `list` does."""
        call = partial(cls.list, state=state, hero=hero, limit=limit, after=after, session=_sync(session))
        return await awaited(call, _sync(session))

    async def arefresh(self) -> Self:
        """Read the row again."""
        return await self._awaited(self.refresh)

    # --- how one is made

    @classmethod
    def _from_row(cls, row: WorkflowRow, place: Place | None) -> Self:
        """Make the handle of a row; of its own class, where that is loaded."""
        of_row = cls if cls is not Workflow else registry.resolve(row.name, row.version) or cls
        handle: Self = object.__new__(of_row)
        handle._place = place
        handle._show(row)
        return handle

    @classmethod
    def _for_step(cls, context: StepContext) -> Self:
        """Make the instance that runs one step; its input is read by `_open`, where a failure is the step's."""
        workflow = object.__new__(cls)
        workflow._place = None
        workflow._context = context
        workflow._row = context.claim.workflow
        workflow.data = deepcopy(context.claim.data)
        workflow.resume_input = context.claim.resume_input
        return workflow

    def _open(self) -> None:
        if self._context is not None:
            self.input = self._plans().read(self._context.claim.input)

    def _show(self, row: WorkflowRow) -> None:
        self._row = row
        self.data = row.data
        try:
            self.input = self._plans().read(row.input)
        except ValidationError:
            self.input = row.input

    @classmethod
    def _plans(cls) -> Plans:
        return Plans(cls.options, cls.definition, _input_adapter(cls))

    @classmethod
    def _timing(cls, wait: Duration | None, priority: int | None) -> dict[str, Any]:
        return {
            "wait": None if wait is None else durations.parse(wait),
            "priority": None if priority is None else read_priority(priority, cls.__qualname__),
        }

    @classmethod
    def _filters(cls, state: States | None, hero: object) -> dict[str, Any]:
        reference = None if hero is None else heroes.refer(hero)
        return {
            "names": None if cls is Workflow else [cls.options.name],
            "states": None if state is None else _states(state),
            "hero": None if reference is None else (reference.type, reference.key),
        }


def _read(id: UUID | str, place: Place | None) -> WorkflowRow:
    try:
        workflow_id = id if isinstance(id, UUID) else UUID(id)
    except ValueError:
        raise WorkflowNotFound(id) from None
    with reading(place) as conn:
        row = workflows.get(conn, workflow_id)
    if row is None:
        raise WorkflowNotFound(workflow_id)
    return row


def _opened(session: Session | None) -> Place | None:
    """Return the place of a session that is read from, its transaction begun as by any other query."""
    if session is None:
        return None
    place = Place(session)
    place.connection()
    return place


def _states(state: States) -> list[WorkflowState]:
    several = [state] if isinstance(state, str) else list(state)
    try:
        return [WorkflowState(one) for one in several]
    except ValueError as error:
        raise InvalidInput(f"{error}: use {', '.join(WorkflowState)}") from None


def _sync(session: AnySession | None) -> Session | None:
    return session.sync_session if isinstance(session, AsyncSession) else session


def _session_of(hero: object) -> Session | None:
    return None if hero is None else heroes.session_of(hero)


@cache
def _input_adapter(workflow_class: type[Workflow[Any]]) -> TypeAdapter[Any] | None:
    """Return what reads the class's input; None if it says nothing of it. Made once: that costs more than a step."""
    for one in workflow_class.__mro__[: workflow_class.__mro__.index(Workflow)]:
        if "input" in inspect.get_annotations(one):
            return TypeAdapter(_resolved(one))
    return None


def _resolved(workflow_class: type) -> Any:
    try:
        return get_type_hints(workflow_class)["input"]
    except NameError as error:
        raise StepConfigurationError(
            f"{workflow_class.__qualname__}.input: {error}: define the model at the top level of the module"
        ) from None
