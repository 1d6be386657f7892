"""How a workflow comes to be: in the caller's transaction, in its unique slot, or not at all."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any, Generic
from uuid import UUID

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session
from typing_extensions import TypeVar

from durable import heroes, payloads
from durable.errors import AlreadyOngoing, DurableError, InvalidHero, InvalidInput, NotJson
from durable.heroes import HeroReference
from durable.ids import new_id
from durable.options import ClassOptions
from durable.post import post
from durable.runtime import Place, Runtime
from durable.steps import Definition
from durable.store import births
from durable.store.rows import Birth, Inserted, Newborn, WorkflowRow

HeroT = TypeVar("HeroT", default=Any)

BATCH = 2_000
WRITERS = 2
_TRIES = 10


@dataclass(frozen=True)
class Created(Generic[HeroT]):
    """What `create_many` did."""

    created: list[UUID]
    skipped: list[HeroT]


@dataclass(frozen=True)
class Plans:
    """What a class brings along to the creation of its workflows."""

    options: ClassOptions
    definition: Definition
    input_adapter: TypeAdapter[Any] | None

    def read(self, stored: object) -> object:
        """Return a stored input as steps see it."""
        return stored if self.input_adapter is None else self.input_adapter.validate_python(stored)

    def birth(self, *, wait: timedelta | None, priority: int | None) -> Birth:
        """Return what all workflows created now have in common."""
        first = self.definition.first
        return Birth(
            name=self.options.name,
            version=self.options.version,
            queue=self.options.queue,
            priority=self.options.priority if priority is None else priority,
            step=first.name if first else None,
            wait=wait if wait is not None else (first.wait if first else timedelta()),
            unique_in=self.options.unique_in,
        )


def place_of(runtime: Runtime, hero: object, session: Session | AsyncSession | None) -> Place | None:
    """Return the session in whose transaction the workflow is created: the one given, else the hero's own."""
    if isinstance(session, AsyncSession):
        raise InvalidHero("an AsyncSession needs the awaitable twin: await ….acreate(hero, session=session)")
    joined = session if session is not None else heroes.session_of(hero) if hero is not None else None
    if joined is None:
        return None
    place = Place(joined, None if hero is None else heroes.mapper_of(type(hero)))
    runtime.check_same_database(place, "the session" if hero is None else f"this {type(hero).__qualname__}")
    if hero is not None and hero in joined.new:
        joined.flush()
    return place


def create(
    runtime: Runtime,
    plans: Plans,
    birth: Birth,
    hero: object,
    value: object,
    *,
    place: Place | None,
    key: str | None,
) -> WorkflowRow:
    """Create one workflow, or raise `AlreadyOngoing`."""
    newborn = _conceive(plans, hero, read_input(runtime, plans, value), key=key)
    with _writing(runtime, place) as conn:
        for _ in range(_TRIES):
            inserted = births.insert(conn, runtime.clock, birth, [newborn], look=runtime.look)
            if inserted.ids:
                post(runtime, [births.letter_of(birth, newborn)], None if place is None else place.session)
                return births.row_of(birth, newborn, inserted.created_at)
            assert newborn.unique_key is not None
            holder = births.holder(conn, birth.name, newborn.unique_key)
            if holder is not None:
                raise AlreadyOngoing(birth.name, newborn.unique_key, holder)
    raise DurableError(f"the slot {newborn.unique_key} of {birth.name} is taken and freed all the time: try again")


def create_many(
    runtime: Runtime, plans: Plans, birth: Birth, many: Iterable[Any], value: object, *, session: Session | None
) -> Created[Any]:
    """Create a workflow for each hero whose slot is free, some thousands in a statement.

    Batches that commit by themselves are written by threads, while the next ones are made here.
    """
    done: Created[Any] = Created([], [])
    given = read_input(runtime, plans, value)
    under_way: deque[_Batch] = deque()
    with ThreadPoolExecutor(WRITERS, thread_name_prefix="durable-create") as writers:
        for heroes_of_batch in _batches(many):
            place = _common_place(runtime, heroes_of_batch, session)
            newborns = [_conceive(plans, hero, given, key=None) for hero in heroes_of_batch]
            write = partial(_write, runtime, birth, newborns, place)
            inserted = writers.submit(write) if place is None else _finished(write())
            under_way.append(_Batch(heroes_of_batch, newborns, inserted))
            if len(under_way) > WRITERS:
                under_way.popleft().report_to(done)
        for batch in under_way:
            batch.report_to(done)
    return done


@dataclass(frozen=True)
class _Batch:
    heroes: Sequence[Any]
    newborns: Sequence[Newborn]
    inserted: Future[Inserted]

    def report_to(self, done: Created[Any]) -> None:
        ids = self.inserted.result().ids
        for newborn, hero in zip(self.newborns, self.heroes, strict=True):
            if newborn.id in ids:
                done.created.append(newborn.id)
            else:
                done.skipped.append(hero)


def _write(runtime: Runtime, birth: Birth, newborns: Sequence[Newborn], place: Place | None) -> Inserted:
    with _writing(runtime, place) as conn:
        inserted = births.insert(conn, runtime.clock, birth, newborns, look=runtime.look)
    letters = (births.letter_of(birth, newborn) for newborn in newborns if newborn.id in inserted.ids)
    post(runtime, letters, None if place is None else place.session)
    return inserted


def _finished(inserted: Inserted) -> Future[Inserted]:
    future: Future[Inserted] = Future()
    future.set_result(inserted)
    return future


def _conceive(plans: Plans, hero: object, given: Input, *, key: str | None) -> Newborn:
    """Return everything that is a workflow's own before it exists."""
    reference = None if hero is None else heroes.refer(hero)
    return Newborn(
        id=new_id(),
        execution_id=new_id(),
        hero_type=reference.type if reference else None,
        hero_key=reference.key if reference else None,
        unique_key=_unique_key(plans.options, reference, hero, given.typed, key),
        input=given.text,
    )


@dataclass(frozen=True)
class Input:
    """An input as steps will see it, and as it is kept."""

    typed: object
    text: str | None


def read_input(runtime: Runtime, plans: Plans, value: object) -> Input:
    """Check an input against what the class says of it, or raise `InvalidInput`."""
    typed = value
    if plans.input_adapter is not None:
        try:
            typed = plans.read(value)
        except ValidationError as error:
            raise InvalidInput(f"the input of {plans.options.name} is not right: {error}") from None
        value = plans.input_adapter.dump_python(typed, mode="json")
    return Input(typed, encode_input(runtime, value, f"the input of {plans.options.name}"))


def encode_input(runtime: Runtime, value: object, what: str) -> str | None:
    """Return an input as JSON text, or raise `InvalidInput`."""
    if value is None:
        return None
    try:
        return payloads.encode(value, what=what, limit=runtime.settings.max_payload)
    except NotJson as error:
        raise InvalidInput(str(error)) from None


def _unique_key(
    options: ClassOptions, reference: HeroReference | None, hero: object, value: object, given: str | None
) -> str | None:
    if given is not None:
        return _checked_key(options, given)
    if options.unique == "none":
        return None
    if options.unique == "hero":
        return None if reference is None else str(reference)
    return _checked_key(options, options.unique(hero, value))


def _checked_key(options: ClassOptions, key: object) -> str:
    if isinstance(key, str) and 0 < len(key) <= 1000 and "\x00" not in key:
        return key
    raise InvalidInput(f"the unique key {key!r} of {options.name} must be text of 1 to 1000 characters")


@contextmanager
def _writing(runtime: Runtime, place: Place | None) -> Iterator[Connection]:
    if place is not None:
        yield place.connection()
        return
    with runtime.statement() as conn:
        yield conn


def _common_place(runtime: Runtime, batch: Sequence[Any], session: Session | None) -> Place | None:
    """Return the session in whose transaction a batch is created: the one given, else the one all heroes share."""
    sessions = {session} if session is not None else {heroes.session_of(hero) for hero in batch if hero is not None}
    if len(sessions) > 1:
        raise InvalidHero("these heroes belong to different sessions: say which one with session=...")
    (joined,) = sessions or {None}
    place = place_of(runtime, batch[0], joined)
    if place is not None and place.session.new:
        place.session.flush()
    return place


def _batches(many: Iterable[Any]) -> Iterator[Sequence[Any]]:
    iterator = iter(many)
    while batch := list(islice(iterator, BATCH)):
        yield batch
