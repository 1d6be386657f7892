"""The stock: what is on the shelf, and every movement of it."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from actors.models import Order, Product, StockMovement


def take(session: Session, order: Order) -> list[str]:
    """Take an order's goods off the shelf; if anything is short, take nothing and return what."""
    wanted = {line.sku: line.quantity for line in order.lines}
    products = _locked(session, wanted)
    short = [product.sku for product in products if product.in_stock < wanted[product.sku]]
    if not short:
        for product in products:
            _move(session, order, product, -wanted[product.sku])
    return short


def give_back(session: Session, order: Order) -> None:
    """Put everything that an order has taken back on the shelf."""
    taken = _taken(session, order)
    for product in _locked(session, taken):
        _move(session, order, product, taken[product.sku])


def _taken(session: Session, order: Order) -> dict[str, int]:
    query = (
        select(StockMovement.sku, -func.sum(StockMovement.quantity))
        .where(StockMovement.order_id == order.id)
        .group_by(StockMovement.sku)
    )
    return {sku: quantity for sku, quantity in session.execute(query) if quantity}


def _locked(session: Session, skus: Iterable[str]) -> list[Product]:
    """Lock products, always in the same order, so that two orders never wait for each other."""
    query = select(Product).where(Product.sku.in_(skus)).order_by(Product.sku).with_for_update()
    return list(session.scalars(query))


def _move(session: Session, order: Order, product: Product, quantity: int) -> None:
    product.in_stock += quantity
    session.add(StockMovement(order_id=order.id, sku=product.sku, quantity=quantity))
