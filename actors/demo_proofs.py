"""What the demo proves, each claim from rows of the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Row, func, select
from sqlalchemy.orm import Session

from actors.models import Charge, Order, Parcel, Product, StockMovement
from actors.order_fulfilment import OrderFulfilment
from actors.status_polling import StatusPolling
from durable import Outcome, WorkflowState
from durable.tables import executions, outbox, workflows

UNDONE = (Outcome.RECOVERED, Outcome.INTERRUPTED, Outcome.HANDED_BACK, Outcome.REATTEMPTED)
"""Ways in which an execution ends that leave nothing behind: the step runs again."""


@dataclass(frozen=True)
class Proof:
    """A claim, and whether the database bears it out."""

    claim: str
    holds: bool


@dataclass(frozen=True)
class Account:
    """One order, and everything that the shop's books say of it."""

    order: Order
    movements: Sequence[tuple[str, int]]
    charges: Sequence[int]
    parcels: int
    states: Sequence[str]

    @property
    def payable(self) -> bool:
        """Whether there is a card that the bank accepts."""
        return self.order.card is not None

    @property
    def expected_movements(self) -> list[tuple[str, int]]:
        """Each line leaves the shelf once, and comes back once where the card is declined."""
        out = [(line.sku, -line.quantity) for line in self.order.lines]
        back = [] if self.payable else [(sku, -quantity) for sku, quantity in out]
        return sorted(out + back)


def prove_all(session: Session, *, shelf: Mapping[str, int]) -> list[Proof]:
    """Prove that everything was done, and nothing twice."""
    accounts = list(read_accounts(session))
    return [
        prove_ends(accounts),
        prove_movements(accounts),
        prove_charges(accounts),
        prove_parcels(accounts),
        prove_shelf(session, accounts, shelf),
        prove_steps(session),
        prove_watches(session),
    ]


def read_accounts(session: Session) -> Iterator[Account]:
    """Read the books, order by order."""
    for order in session.scalars(select(Order).order_by(Order.id)):
        moved = select(StockMovement.sku, StockMovement.quantity).where(StockMovement.order_id == order.id)
        fulfilments = select(workflows.c.state).where(
            workflows.c.name == OrderFulfilment.options.name, workflows.c.hero_key == str(order.id)
        )
        yield Account(
            order,
            movements=sorted((sku, quantity) for sku, quantity in session.execute(moved)),
            charges=session.scalars(select(Charge.amount).where(Charge.order_id == order.id)).all(),
            parcels=session.scalar(select(func.count()).where(Parcel.order_id == order.id)) or 0,
            states=session.scalars(fulfilments).all(),
        )


def prove_ends(accounts: Sequence[Account]) -> Proof:
    """Prove that each order came to the end that it should."""
    ends = Counter(account.order.status for account in accounts)
    claim = (
        f"{len(accounts)} orders: {ends['shipped']} are shipped, {ends['canceled']} ended as the bank declined the card"
    )
    return _for_each(claim, accounts, [_ended_well(account) for account in accounts])


def prove_movements(accounts: Sequence[Account]) -> Proof:
    """Prove that goods moved once."""
    moves = sum(len(account.movements) for account in accounts)
    claim = f"{moves} stock movements: every line of every order left the shelf once"
    if not all(account.payable for account in accounts):
        claim += ", and came back once where the card was declined"
    return _for_each(claim, accounts, [account.movements == account.expected_movements for account in accounts])


def prove_charges(accounts: Sequence[Account]) -> Proof:
    """Prove that each customer paid once, and what it costs."""
    count, cents = sum(len(account.charges) for account in accounts), sum(sum(account.charges) for account in accounts)
    claim = f"{count} charges of {cents / 100:.2f} in all: one per shipped order, of what it costs"
    return _for_each(
        claim, accounts, [account.charges == [account.order.total] * account.payable for account in accounts]
    )


def prove_parcels(accounts: Sequence[Account]) -> Proof:
    """Prove that each order was sent once."""
    claim = f"{sum(account.parcels for account in accounts)} parcels: one per shipped order"
    return _for_each(claim, accounts, [account.parcels == account.payable for account in accounts])


def prove_shelf(session: Session, accounts: Sequence[Account], shelf: Mapping[str, int]) -> Proof:
    """Prove that the shelf holds what it held, less what was sold."""
    sold = Counter[str]()
    for account in accounts:
        sold.update({line.sku: line.quantity for line in account.order.lines if account.payable})
    left = {product.sku: product.in_stock for product in session.scalars(select(Product))}
    wrong = sorted(sku for sku, had in shelf.items() if left.get(sku) != had - sold[sku])
    claim = f"{sum(shelf.values())} pieces were on the shelf, {sold.total()} are sold, {sum(left.values())} are left"
    return _unless(wrong, claim, "products")


def prove_steps(session: Session) -> Proof:
    """Prove that no workflow has a step that was completed twice."""
    completed = (
        select(executions.c.workflow_id, executions.c.step, func.count().label("times"))
        .where(executions.c.outcome.is_not(None), executions.c.outcome.not_in(UNDONE))
        .group_by(executions.c.workflow_id, executions.c.step)
    )
    found = session.execute(completed).all()
    doubled = sorted({row.step for row in found if row.times != 1})
    return _unless(doubled, f"{len(found)} steps of workflows were completed, each of them once", "steps")


def prove_watches(session: Session) -> Proof:
    """Prove that each parcel has a workflow that sleeps until it is time to look for it."""
    sleeping = (
        select(workflows.c.hero_key)
        .join_from(workflows, executions, executions.c.workflow_id == workflows.c.id)
        .join(outbox, outbox.c.execution_id == executions.c.id)
        .where(workflows.c.name == StatusPolling.options.name, workflows.c.state == WorkflowState.READY)
        .where(outbox.c.due_at > func.now())
    )
    asleep = Counter(session.scalars(sleeping))
    wrong = [str(key) for key in session.scalars(select(Parcel.id).order_by(Parcel.id)) if asleep[str(key)] != 1]
    claim = f"{asleep.total()} workflows sleep, one per parcel: the carrier is asked in an hour"
    return _unless(wrong, claim, "parcels")


def prove_nothing_left(movements: int) -> Proof:
    """Prove that a worker which died in the middle of its steps left nothing of them behind."""
    return Proof(f"{movements} stock movements were left behind by the worker that died", movements == 0)


def prove_recovery(session: Session, lost: Sequence[UUID]) -> Proof:
    """Prove that the steps which a dead worker had not ended were completed by another one, as the same deeds."""
    found = session.execute(select(executions).where(executions.c.id.in_(lost))).all()
    wrong = [row.step for row in found if not _recovered(session, row)]
    claim = f"{len(lost)} steps died with their worker: each ran again, under the same key, and was completed once"
    return Proof(claim, bool(lost) and len(found) == len(lost)) if not wrong else _unless(wrong, claim, "steps")


def prove_messages(session: Session, lost: Sequence[UUID]) -> Proof:
    """Prove that the steps whose messages were lost ran all the same."""
    ran = select(executions.c.id).where(executions.c.id.in_(lost), executions.c.outcome.is_not(None))
    missing = len(set(lost) - set(session.scalars(ran)))
    claim = f"{len(lost)} messages were lost with Redis: the steps that they were about have all run"
    return Proof(f"{claim}: not so for {missing} of them" if missing else claim, bool(lost) and not missing)


def _recovered(session: Session, lost: Row[Any]) -> bool:
    later = session.execute(
        select(executions).where(
            executions.c.workflow_id == lost.workflow_id, executions.c.step == lost.step, executions.c.seq > lost.seq
        )
    ).all()
    completed = [row for row in later if row.outcome is not None and row.outcome not in UNDONE]
    same = all(row.idempotency_key == lost.idempotency_key for row in later)
    return lost.outcome == Outcome.RECOVERED and same and len(completed) == 1


def _ended_well(account: Account) -> bool:
    expected = ("shipped", WorkflowState.FINISHED) if account.payable else ("canceled", WorkflowState.CANCELED)
    return [(account.order.status, state) for state in account.states] == [expected]


def _for_each(claim: str, accounts: Iterable[Account], held: Iterable[bool]) -> Proof:
    wrong = [str(account.order.id) for account, holds in zip(accounts, held, strict=True) if not holds]
    return _unless(wrong, claim, "orders")


def _unless(wrong: Sequence[str], claim: str, what: str) -> Proof:
    return Proof(f"{claim}: not so for the {what} {', '.join(wrong)}" if wrong else claim, not wrong)
