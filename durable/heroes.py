"""Heroes: the rows that workflows serve, kept as type and key."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from sqlalchemy import ColumnElement, Dialect, Select, cast, inspect, literal_column, make_url, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import InstanceState, Mapper, Session
from sqlalchemy.orm.attributes import instance_state

from durable.errors import HeroUnresolvable, InvalidHero


@dataclass(frozen=True)
class HeroReference:
    """A hero as it is stored."""

    type: str
    key: str

    def __str__(self) -> str:
        return f"{self.type}:{self.key}"


@dataclass(frozen=True)
class _Kind:
    """What is known of a hero's class."""

    name: str
    mapper: Mapper[Any]
    plain_types: tuple[type, ...] | None


_declared: dict[str, type] = {}
_kinds: dict[type, _Kind] = {}
_PLAIN = (int, str, UUID)
_adapters: dict[type, TypeAdapter[Any]] = {}
_DIALECT: Dialect = make_url("postgresql+psycopg://").get_dialect()()


def type_name(hero_class: type) -> str:
    """Return what rows store for a hero's class: its `__hero_type__`, else module and name."""
    name = getattr(hero_class, "__hero_type__", None)
    return name if isinstance(name, str) else f"{hero_class.__module__}.{hero_class.__qualname__}"


def declare(hero_class: type) -> None:
    """Make a class known by its stored name."""
    _declared[type_name(hero_class)] = hero_class


def mapper_of(hero_class: type) -> Mapper[Any] | None:
    """Return the mapper of a class, None if SQLAlchemy does not know it."""
    mapped: object = inspect(hero_class, raiseerr=False)
    return mapped if isinstance(mapped, Mapper) else None


def session_of(hero: object) -> Session | None:
    """Return the session that a hero belongs to."""
    state: object = inspect(hero, raiseerr=False)
    return state.session if isinstance(state, InstanceState) else None


def refer(hero: object) -> HeroReference:
    """Return type and key of a hero."""
    kind = _kind(type(hero))
    if kind is None:
        raise InvalidHero(f"{hero!r} cannot be a hero: it must be an instance of a class mapped by SQLAlchemy, or None")
    _declared[kind.name] = type(hero)
    key = instance_state(hero).identity or tuple(kind.mapper.primary_key_from_instance(hero))
    if None in key:
        raise InvalidHero(
            f"this {type(hero).__qualname__} has no key yet: add it to a session and flush, "
            "or create the workflow with session=..."
        )
    return HeroReference(kind.name, _encode(kind, key))


def resolve_type(name: str) -> type:
    """Return the class of a stored type: declared, or already imported. Nothing is imported because a row says so."""
    found = _declared.get(name) or _imported(name)
    if found is None or mapper_of(found) is None:
        raise HeroUnresolvable(
            f"the hero's type {name!r} is not a mapped class here: import its module, or give the class that took "
            f"its place __hero_type__ = {name!r}"
        )
    return found


def load(session: Session, reference: HeroReference) -> object | None:
    """Return the hero, None if its row is gone."""
    hero_class = resolve_type(reference.type)
    mapper = mapper_of(hero_class)
    assert mapper is not None
    declare(hero_class)
    return session.get(hero_class, _decode(mapper, reference))


def presence(hero_types: Iterable[type]) -> str:
    """Return SQL over a workflow `w` that tells whether its hero's row is there; null where that is not known."""
    branches = [_presence(hero_class) for hero_class in hero_types]
    known = " ".join(branch for branch in branches if branch is not None)
    return f"CASE w.hero_type {known} ELSE NULL::boolean END" if known else "NULL::boolean"


@cache
def _presence(hero_class: type) -> str | None:
    mapper = mapper_of(hero_class)
    if mapper is None:
        return None
    columns = mapper.primary_key
    wanted = [cast(_stored_part(index, len(columns)), column.type) for index, column in enumerate(columns)]
    query: Select[Any] = select(literal_column("1")).select_from(hero_class)
    for column, part in zip(columns, wanted, strict=True):
        query = query.where(column == part)
    sql = query.compile(dialect=_DIALECT, compile_kwargs={"literal_binds": True})
    stored = type_name(hero_class).replace("'", "''").replace("%", "%%")
    return f"WHEN '{stored}' THEN EXISTS ({sql})"


def _stored_part(index: int, count: int) -> ColumnElement[Any]:
    if count == 1:
        return literal_column("w.hero_key")
    part: ColumnElement[Any] = cast(literal_column("w.hero_key"), JSONB)[index].astext
    return part


def _imported(name: str) -> type | None:
    """Look a class up among the modules already imported."""
    parts = name.split(".")
    for place in range(len(parts) - 1, 0, -1):
        found: object = sys.modules.get(".".join(parts[:place]))
        for part in parts[place:]:
            found = getattr(found, part, None)
        if isinstance(found, type):
            return found
    return None


def _adapter(kind: type) -> TypeAdapter[Any]:
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def _kind(hero_class: type) -> _Kind | None:
    if hero_class not in _kinds:
        mapper = mapper_of(hero_class)
        if mapper is None:
            return None
        _kinds[hero_class] = _Kind(type_name(hero_class), mapper, _plain_types(mapper))
    return _kinds[hero_class]


def _plain_types(mapper: Mapper[Any]) -> tuple[type, ...] | None:
    """Return the types of the key's parts, None unless their text surely reads back."""
    try:
        types = tuple(column.type.python_type for column in mapper.primary_key)
    except NotImplementedError:
        return None
    return types if all(one in _PLAIN for one in types) else None


def _encode(kind: _Kind, key: tuple[Any, ...]) -> str:
    if tuple(map(type, key)) == kind.plain_types:
        return _joined([str(part) for part in key])
    text = _joined([_encode_part(part) for part in key])
    if not _reads_back(kind, text, key):
        raise InvalidHero(f"the key {key!r} of {kind.name} cannot be stored as text and read back")
    return text


def _joined(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else json.dumps(parts)


def _reads_back(kind: _Kind, text: str, key: tuple[Any, ...]) -> bool:
    try:
        return _decode(kind.mapper, HeroReference(kind.name, text)) == key
    except HeroUnresolvable:
        return False


def _encode_part(part: object) -> str:
    try:
        return str(_adapter(type(part)).dump_python(part, mode="json"))
    except Exception:
        return str(part)


def _decode(mapper: Mapper[Any], reference: HeroReference) -> tuple[Any, ...]:
    parts = [reference.key] if len(mapper.primary_key) == 1 else _composite(mapper, reference)
    try:
        return tuple(
            _adapter(column.type.python_type).validate_strings(part)
            for column, part in zip(mapper.primary_key, parts, strict=True)
        )
    except (ValidationError, PydanticUserError, NotImplementedError, ValueError) as error:
        raise HeroUnresolvable(f"the key {reference.key!r} is not one of {reference.type}: {error}") from None


def _composite(mapper: Mapper[Any], reference: HeroReference) -> list[str]:
    try:
        parts = json.loads(reference.key)
    except ValueError:
        parts = None
    if not isinstance(parts, list) or len(parts) != len(mapper.primary_key):
        raise HeroUnresolvable(f"the key {reference.key!r} of {reference.type} does not have the parts of its key")
    return [str(part) for part in parts]
