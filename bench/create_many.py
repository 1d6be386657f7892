"""How much faster `create_many` is than `create` one by one: `python3 dev.py python -m bench.create_many`."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from rich.console import Console
from rich.table import Table
from sqlalchemy import insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import durable
from durable import Workflow, dev, migrate, scratch, step
from durable.runtime import Runtime

HEROES = 10_000
ONE_BY_ONE = 1_000
PASSES = 3


class Base(DeclarativeBase):
    """The benchmark's own table."""


class Customer(Base):
    """A hero."""

    __tablename__ = "customers"

    id: Mapped[int] = mapped_column(primary_key=True)


class Mailing(Workflow[Customer]):
    """One step, never run here."""

    @step
    def send(self) -> None:
        """Do nothing."""


def rate(count: int, work: Callable[[], object]) -> float:
    """Return how many a second."""
    start = perf_counter()
    work()
    return count / (perf_counter() - start)


def one_by_one(heroes: list[Customer]) -> None:
    """Create workflows as an application does, each in a transaction of its own."""
    for hero in heroes:
        Mailing.create(hero)


def measure(runtime: Runtime, heroes: list[Customer]) -> tuple[float, float]:
    """Return the rates of one pass, each on empty tables."""
    single = rate(ONE_BY_ONE, lambda: one_by_one(heroes[:ONE_BY_ONE]))
    scratch.empty(runtime.engine)
    many = rate(HEROES, lambda: Mailing.create_many(heroes))
    assert Mailing.count() == HEROES
    again = Mailing.create_many(heroes)
    assert (len(again.created), len(again.skipped)) == (0, HEROES)
    scratch.empty(runtime.engine)
    return single, many


def main() -> None:
    """Measure and print a table."""
    with dev.postgres(durable=True) as server:
        runtime = durable.configure(database_url=server.url)
        migrate.migrate(runtime.engine)
        Base.metadata.create_all(runtime.engine)
        with Session(runtime.engine) as session, session.begin():
            session.execute(insert(Customer), [{"id": number} for number in range(HEROES)])
        with Session(runtime.engine) as session:
            heroes = list(session.scalars(select(Customer)))
            session.expunge_all()
        table = Table("pass", "create, one by one", f"create_many of {HEROES:,}", "ratio")
        for number in range(1, PASSES + 1):
            single, many = measure(runtime, heroes)
            table.add_row(str(number), f"{single:,.0f}/s", f"{many:,.0f}/s", f"{many / single:.1f}")
        runtime.engine.dispose()
    Console().print(table)


if __name__ == "__main__":
    main()
