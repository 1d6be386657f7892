"""The demo's customers, goods and orders, and how far they are."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from actors.demo_screen import Figure
from actors.demo_stage import Stage
from actors.models import Product, User
from actors.order_fulfilment import OrderFulfilment
from actors.shop import place_order, place_prepaid_order

GOODS = (
    *("mug", "pen", "lamp", "book", "chair", "clock", "scarf", "kettle"),
    *("basket", "candle", "map", "rug", "bowl", "vase", "tray", "ball"),
)
SHELF = dict.fromkeys(GOODS, 50)

FIRST = range(1, 33)
SECOND = range(33, 49)
IN_ADVANCE = range(1, 9)
"""The orders that are paid in advance; first somebody looks whether that is a fraud."""
DECLINED = (12, 20, 28, 36)
"""The orders whose card the bank declines."""

_PROGRESS = """
SELECT (SELECT count(*) FROM shop.orders) AS placed,
       (SELECT count(*) FROM shop.orders WHERE card IS NOT NULL) AS payable,
       (SELECT count(DISTINCT order_id) FROM shop.stock_movements) AS reserved,
       (SELECT count(*) FROM shop.charges) AS paid,
       (SELECT count(*) FROM shop.parcels) AS shipped,
       (SELECT count(*) FROM durable.workflows WHERE name = :name AND ended_at IS NOT NULL) AS done
"""


def fill_shop(engine: Engine) -> None:
    """Put goods on the shelf, and let two customers in: one pays, the other cannot."""
    with Session(engine) as session, session.begin():
        session.add_all([User(email="ada@example.org", card="4242"), User(email="bob@example.org")])
        session.add_all(
            Product(sku=sku, price=250 + 100 * number, in_stock=count)
            for number, (sku, count) in enumerate(SHELF.items())
        )


def take_orders(engine: Engine, numbers: Iterable[int]) -> None:
    """Place orders, each of which starts its workflow in the same transaction."""
    with Session(engine) as session, session.begin():
        ada, bob = session.scalars(select(User).order_by(User.email))
        for number in numbers:
            place = place_prepaid_order if number in IN_ADVANCE else place_order
            place(session, bob if number in DECLINED else ada, basket(number))


def basket(number: int) -> dict[str, int]:
    """Return what is ordered: two kinds of goods, others than in the orders that are fulfilled at the same time."""
    first = 2 * number % len(GOODS)
    return {GOODS[first]: 1 + number % 3, GOODS[first + 1]: 1}


def progress(stage: Stage) -> dict[str, Figure]:
    """Return how many orders have come how far."""
    [row] = stage.rows(_PROGRESS, name=OrderFulfilment.options.name)
    return {
        "reserved": Figure(row.reserved, row.placed),
        "paid": Figure(row.paid, row.payable),
        "shipped": Figure(row.shipped, row.payable),
        "done": Figure(row.done, row.placed),
    }
