"""The demo: one order runs from nothing to its end, another survives the death of its worker."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from uuid import uuid4

from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

import durable
from actors.demo_crash import kill_a_worker, recover
from actors.demo_proofs import Proof, prove_all
from actors.demo_screen import begin_chapter, say, show_proofs, show_table
from actors.models import Product, User, create_tables
from actors.order_fulfilment import OrderFulfilment
from actors.shop import place_order
from durable import Execution, dev, executor, migrate, scratch, tables
from durable.runtime import Runtime

BASKET = {"mug": 2, "pen": 1}
SHELF = {"mug": 10, "pen": 10}


def main() -> int:
    """Run the demo and return its exit code: 0 if everything it claims holds."""
    logging.getLogger("durable").addHandler(logging.NullHandler())
    say("durable runs workflows that survive crashes. This is a small shop that uses it, on a real Postgres.")
    with a_shop() as runtime:
        begin_chapter("1. An order and its workflow, written in one transaction")
        first = take_order(runtime.engine)
        begin_chapter("2. Its steps, run one by one in this process")
        say("Between reserve_stock and charge_card it waits for an hour. The demo runs every step at once instead.\n")
        run_to_the_end(runtime, first)
        begin_chapter("3. A second order, whose worker is killed in the middle of a step")
        second = take_order(runtime.engine)
        say("")
        kill_a_worker(runtime, second)
        begin_chapter("4. The recovery")
        recover(runtime, second)
        run_to_the_end(runtime, second)
        begin_chapter("5. The proof, from the rows in the database")
        proofs = prove_all(runtime.engine, [first, second], killed=second, shelf=SHELF)
    return conclude(proofs)


@contextmanager
def a_shop() -> Iterator[Runtime]:
    """Give a shop in a database of its own, which is dropped afterwards."""
    with dev.postgres(durable=True) as server, scratch.database(server.url, f"demo_{uuid4().hex[:8]}") as url:
        runtime = durable.configure(database_url=url.render_as_string(hide_password=False), lost_worker_after="2s")
        try:
            migrate.migrate(runtime.engine)
            create_tables(runtime.engine)
            with Session(runtime.engine) as session, session.begin():
                session.add(User(email="ada@example.org", card="4242"))
                session.add_all(Product(sku=sku, price=500, in_stock=count) for sku, count in SHELF.items())
            yield runtime
        finally:
            runtime.engine.dispose()


def take_order(engine: Engine) -> OrderFulfilment:
    """Place an order, which starts its fulfilment in the same transaction."""
    with Session(engine) as session, session.begin():
        created = place_order(session, session.scalars(select(User)).one(), BASKET)
    fulfilment = OrderFulfilment.get(created.id)
    show_database(engine, fulfilment)
    return fulfilment


def show_database(engine: Engine, fulfilment: OrderFulfilment) -> None:
    """Show what the database knows of a fulfilment that has just begun."""
    order, [execution] = fulfilment.hero, fulfilment.history
    with engine.connect() as conn:
        messages = conn.scalar(select(func.count()).where(tables.outbox.c.execution_id == execution.id))
    rows = [
        ("shop.orders", f"order {order.id} is {order.status} and costs {order.total} cents"),
        ("durable.workflows", f"the fulfilment of order {order.id} is {fulfilment.state}"),
        ("durable.executions", f"its step {execution.step} is {execution.state}"),
        ("durable.outbox", f"{messages} message waits for a worker"),
    ]
    show_table(("table", "what it says"), rows)


def run_to_the_end(runtime: Runtime, fulfilment: OrderFulfilment) -> None:
    """Run what is scheduled until nothing is; nobody wants to sit through the waits here."""
    while scheduled := fulfilment.current_execution:
        executor.perform(runtime, OrderFulfilment, scheduled.id, early=True)
    show_table(("step", "attempt", "was due", "started", "outcome"), map(as_row, fulfilment.history))
    say(f"\nThe workflow is {fulfilment.refresh().state}.")


def as_row(execution: Execution) -> Sequence[object]:
    """Return what is worth seeing of an execution."""
    due, started = (f"{at:%H:%M:%S}" if at else "" for at in (execution.scheduled_for, execution.started_at))
    return execution.step, execution.attempt, due, started, execution.outcome or execution.state


def conclude(proofs: Sequence[Proof]) -> int:
    """Show the proofs and say what they mean."""
    show_proofs(proofs)
    if not all(proof.holds for proof in proofs):
        say("\nSomething was lost or done twice: this is a bug in durable.")
        return 1
    begin_chapter("What you have seen")
    say(
        "A workflow is a class with steps, and a row about one row of yours: here an order.\n"
        "What a step writes is committed together with its outcome and the message for the next step.\n"
        "A worker died in the middle of a step: what it had written was undone, the step ran again,\n"
        "and every stock movement and every charge is there exactly once.\n"
        "The workflow is in actors/order_fulfilment.py."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
