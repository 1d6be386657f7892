"""What the demo proves, each from rows of the database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from actors.models import Charge, Order, OrderLine, Parcel, Product, StockMovement
from actors.order_fulfilment import OrderFulfilment
from durable import Outcome, WorkflowState


@dataclass(frozen=True)
class Proof:
    """A claim, and whether the database bears it out."""

    claim: str
    holds: bool


def prove_all(
    engine: Engine, fulfilments: Sequence[OrderFulfilment], *, killed: OrderFulfilment, shelf: Mapping[str, int]
) -> list[Proof]:
    """Prove that everything happened exactly once, though a worker was killed in between."""
    with Session(engine) as session:
        return [
            *(proof for fulfilment in fulfilments for proof in prove_order(session, fulfilment)),
            *prove_stock(session, shelf),
            *prove_recovery(killed),
        ]


def prove_order(session: Session, fulfilment: OrderFulfilment) -> Iterator[Proof]:
    """Prove that an order was taken from stock, charged and shipped once."""
    order, state = fulfilment.hero, fulfilment.refresh().state
    yield Proof(f"order {order.id}: its workflow is {state}", state is WorkflowState.FINISHED)
    yield prove_movements(session, order)
    charges = session.scalars(select(Charge.amount).where(Charge.order_id == order.id)).all()
    yield Proof(f"order {order.id}: {len(charges)} charge, {sum(charges)} cents", charges == [order.total])
    parcels = session.scalars(select(Parcel.tracking_number).where(Parcel.order_id == order.id)).all()
    yield Proof(f"order {order.id}: {len(parcels)} parcel", len(parcels) == 1)


def prove_movements(session: Session, order: Order) -> Proof:
    """Prove that each line of an order left the shelf once."""
    query = select(StockMovement).where(StockMovement.order_id == order.id).order_by(StockMovement.sku)
    moved = [(movement.sku, -movement.quantity) for movement in session.scalars(query)]
    ordered = [(line.sku, line.quantity) for line in order.lines]
    return Proof(f"order {order.id}: {len(moved)} stock movements for its {len(ordered)} lines", moved == ordered)


def prove_stock(session: Session, shelf: Mapping[str, int]) -> Iterator[Proof]:
    """Prove that the shelf holds what it held, less what was ordered."""
    query = select(OrderLine.sku, func.sum(OrderLine.quantity)).group_by(OrderLine.sku)
    ordered = {sku: int(quantity) for sku, quantity in session.execute(query)}
    for product in session.scalars(select(Product).order_by(Product.sku)):
        had, gone = shelf[product.sku], ordered.get(product.sku, 0)
        claim = f"{product.sku}: {had} were on the shelf, {gone} ordered, {product.in_stock} are left"
        yield Proof(claim, product.in_stock == had - gone)


def prove_recovery(fulfilment: OrderFulfilment) -> Iterator[Proof]:
    """Prove that the step of the worker that was lost ran again, as the same deed."""
    lost, repeated = fulfilment.history[:2]
    as_told = (lost.outcome, repeated.outcome) == (Outcome.RECOVERED, Outcome.SUCCESS)
    yield Proof(f"{lost.step}: first {lost.outcome}, then {repeated.outcome}", as_told)
    same = lost.idempotency_key == repeated.idempotency_key
    yield Proof(f"{lost.step}: both attempts had the idempotency key {lost.idempotency_key}", same)
