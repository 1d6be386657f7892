"""When messages leave: after the commit that they are part of, and never after a rollback."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction

from durable.courier import Courier
from durable.runtime import Runtime
from durable.store.rows import Letter

_HELD = "durable.letters"


@dataclass(frozen=True)
class _Held:
    letter: Letter
    courier: Courier
    within: tuple[SessionTransaction, ...]


def post(runtime: Runtime, letters: Iterable[Letter | None], session: Session | None = None) -> None:
    """Send messages: at once, or when the session in whose transaction they were written commits."""
    known = [letter for letter in letters if letter is not None]
    courier = runtime.courier
    if courier is None or not known:
        return
    if session is None:
        courier.send(known)
        return
    within = _open_transactions(session)
    if _HELD not in session.info:
        session.info[_HELD] = []
        event.listen(session, "after_commit", _committed)
        event.listen(session, "after_soft_rollback", _rolled_back)
        event.listen(session, "after_transaction_end", _ended)
    session.info[_HELD].extend(_Held(letter, courier, within) for letter in known)


def _committed(session: Session) -> None:
    if session.in_nested_transaction():
        return
    held: Sequence[_Held] = session.info[_HELD]
    session.info[_HELD] = []
    for courier in {one.courier for one in held}:
        courier.send([one.letter for one in held if one.courier is courier])


def _rolled_back(session: Session, transaction: SessionTransaction) -> None:
    session.info[_HELD] = [one for one in session.info[_HELD] if transaction not in one.within]


def _ended(session: Session, transaction: SessionTransaction) -> None:
    """Drop what a session that was closed without a word has left; what was committed is sent by now."""
    if transaction.parent is None:
        session.info[_HELD] = []


def _open_transactions(session: Session) -> tuple[SessionTransaction, ...]:
    """Return the session's transaction and the savepoints in it that are open now."""
    found = []
    transaction = session.get_nested_transaction() or session.get_transaction()
    while transaction is not None:
        found.append(transaction)
        transaction = transaction.parent
    return tuple(found)
