"""The example shop, ready for customers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from actors import gateways
from actors.gateways.messaging import Messenger
from actors.models import Base, Product, User, create_tables
from durable import Workflow
from durable.runtime import Runtime
from tests.invariants import violations


@pytest.fixture(scope="session")
def shop_tables(durable_runtime: Runtime) -> str:
    """The names of the shop's tables, which are there."""
    create_tables(durable_runtime.engine)
    return ", ".join(table.fullname for table in Base.metadata.sorted_tables)


@pytest.fixture
def shop(shop_tables: str, durable: Runtime) -> Iterator[Session]:
    """A session of an empty shop, with everything outside it in good order."""
    gateways.reset()
    with Session(durable.engine) as session:
        yield session
    assert not violations(durable.engine)
    with durable.engine.begin() as conn:
        conn.execute(text(f"TRUNCATE {shop_tables} RESTART IDENTITY"))


@pytest.fixture
def user(shop: Session) -> User:
    """A customer."""
    customer = User(email="ada@example.org", phone="+44 1", card="4242")
    shop.add(customer)
    shop.commit()
    return customer


@pytest.fixture
def shelf(shop: Session) -> dict[str, Product]:
    """Ten mugs and ten pens."""
    products = {"mug": Product(sku="mug", price=900, in_stock=10), "pen": Product(sku="pen", price=250, in_stock=10)}
    shop.add_all(products.values())
    shop.commit()
    return products


def due_in(workflow: Workflow[Any]) -> timedelta:
    """Return how long after the end of its last step (or its creation) a workflow's next step is due."""
    *earlier, scheduled = workflow.history
    since = earlier[-1].finished_at if earlier else workflow.created_at
    assert since is not None
    return scheduled.scheduled_for - since


def told(messenger: Messenger) -> list[str]:
    """Return the texts of what was sent."""
    return [message.text for message in messenger.outbox]
