"""What a running step has besides its class: its claim, its session, its hero, and the ways to end it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import psycopg
from sqlalchemy import Connection, event
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.orm import Session, SessionTransaction

from durable import heroes, verdicts
from durable.errors import SessionMisused
from durable.heroes import HeroReference
from durable.logs import TaggedLogger, logger_of
from durable.runtime import Runtime, driver_connection
from durable.store import executions
from durable.store.rows import Claim
from durable.verdicts import Verdict

_NOT_LOADED = object()


class FlowControl(BaseException):
    """Ends a step at once. Not an Exception, so that a step's own `except Exception` lets it pass."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.outcome)
        self.verdict = verdict


class StepContext:
    """One execution while it runs."""

    def __init__(self, runtime: Runtime, claim: Claim, *, may_proceed_without_hero: bool) -> None:
        self.runtime = runtime
        self.claim = claim
        self.flow: Verdict | None = None
        self.logger: TaggedLogger = logger_of(claim)
        self._may_proceed_without_hero = may_proceed_without_hero
        self._session: Session | None = None
        self._hero: Any = _NOT_LOADED
        self._may_commit = False
        self._connection: psycopg.Connection[Any] | None = None

    def end(self, verdict: Verdict) -> NoReturn:
        """End the step by flow control; kept here as well, should the step swallow it."""
        self.flow = verdict
        raise FlowControl(verdict)

    @property
    def session(self) -> Session:
        """The session whose writes commit with the step's outcome. It takes a connection when it is first used."""
        if self._session is None:
            self._session = self.runtime.session()
            for name, listener in self._listeners:
                event.listen(self._session, name, listener)
        return self._session

    @property
    def writes(self) -> bool:
        """Whether the settle must happen in the session's transaction."""
        session = self._session
        if session is None:
            return False
        return session.in_transaction() or bool(session.new or session.dirty or session.deleted)

    @property
    def lost_connection(self) -> bool:
        """Whether the session's connection broke in the middle of its transaction.

        One that it gave back is the pool's to close, and other connections of the step's are its own affair.
        """
        return self._connection is not None and self._connection.closed

    def hero(self) -> Any:
        """Return the hero; loading it leaves no transaction open."""
        if self._hero is _NOT_LOADED:
            self._hero = self._load_hero()
        return self._hero

    def results(self) -> dict[str, Any]:
        """Return what the earlier steps returned."""
        with self.runtime.statement() as conn:
            return executions.results(conn, self.claim.workflow_id)

    def commit(self) -> None:
        """Commit the session: the engine's own act, at the end."""
        self._may_commit = True
        try:
            self.session.commit()
        finally:
            self._may_commit = False

    def undo(self) -> None:
        """Drop what the step wrote through its session; one that an interrupt left in disorder goes altogether."""
        if self._session is None:
            return
        try:
            self._session.rollback()
        except (InvalidRequestError, psycopg.Error):
            self._session.invalidate()

    def close(self) -> None:
        """Give everything back; the session itself may be another step's next, from a factory that gives it again."""
        session = self._session
        if session is None:
            return
        try:
            session.close()
        finally:
            for name, listener in self._listeners:
                event.remove(session, name, listener)

    @property
    def _listeners(self) -> tuple[tuple[str, Callable[..., None]], ...]:
        return (
            ("before_commit", self._refuse_commit),
            ("after_begin", self._note_connection),
            ("after_transaction_end", self._forget_connection),
        )

    def _load_hero(self) -> Any:
        claim = self.claim
        if claim.hero_type is None or claim.hero_key is None:
            return None
        idle = not self.writes
        hero = heroes.load(self.session, HeroReference(claim.hero_type, claim.hero_key))
        if idle:
            self.commit()
        if hero is None and not self._may_proceed_without_hero:
            self.end(verdicts.hero_gone())
        return hero

    def _note_connection(self, session: Session, transaction: object, conn: Connection) -> None:
        self._connection = driver_connection(conn)

    def _forget_connection(self, session: Session, transaction: SessionTransaction) -> None:
        if transaction.parent is None:
            self._connection = None

    def _refuse_commit(self, session: Session) -> None:
        if not self._may_commit and not session.in_nested_transaction():
            raise SessionMisused
