"""The application of these tests: its steps keep a ledger, in which every effect must stand exactly once."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from sqlalchemy import create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from durable import Workflow, step
from durable.failpoints import failpoint


class Base(DeclarativeBase):
    """The application's tables."""


class Subject(Base):
    """A hero."""

    __tablename__ = "subjects"

    id: Mapped[int] = mapped_column(primary_key=True)
    note: Mapped[str] = mapped_column(default="")


class Effect(Base):
    """An effect of a step, written through its session. Nothing but durable keeps it from standing here twice."""

    __tablename__ = "effects"

    id: Mapped[int] = mapped_column(primary_key=True)
    workflow_id: Mapped[UUID] = mapped_column(index=True)
    step: Mapped[str]


class Chain(Workflow[Subject], name="chain"):
    """Three steps, each of which writes one effect."""

    @step
    def one(self) -> None:
        self.leave_effect()
        failpoint("body")

    @step
    def two(self) -> None:
        self.leave_effect()

    @step
    def three(self) -> None:
        self.leave_effect()

    def leave_effect(self) -> None:
        self.session.add(Effect(workflow_id=self.id, step=self.execution.step))
        self.session.flush()


class Hold(Workflow[Subject], name="hold"):
    """A step that runs until a file is there, or for the number of seconds that its input says."""

    @step
    def hold(self) -> None:
        self.session.add(Effect(workflow_id=self.id, step="hold"))
        self.session.flush()
        journal(self.id, "began")
        if isinstance(self.input, str):
            while not Path(self.input).exists():
                time.sleep(0.02)
        else:
            deadline = time.monotonic() + float(self.input)
            while time.monotonic() < deadline:
                time.sleep(0.02)
        journal(self.id, "ended")

    @step
    def after(self) -> None:
        self.session.add(Effect(workflow_id=self.id, step="after"))


class Deaf(Workflow[Subject], name="deaf"):
    """A step inside a call that nothing can interrupt."""

    @step(timeout=timedelta(minutes=10))
    def sleep(self) -> None:
        journal(self.id, "began")
        time.sleep(float(self.input))


class Limited(Workflow[Subject], name="limited"):
    """A step that takes longer than it may."""

    @step(timeout="300ms", on_exception="skip")
    def too_long(self) -> None:
        self.session.add(Effect(workflow_id=self.id, step="too_long"))
        self.session.flush()
        while True:
            time.sleep(0.02)

    @step
    async def patient(self) -> str:
        await asyncio.sleep(0.01)
        return "done"


class Deadly(Workflow[Subject], name="deadly"):
    """A step that ends its process each time."""

    @step
    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Later(Workflow[Subject], name="later"):
    """Waits, then one step."""

    @step
    def note(self) -> None:
        self.session.add(Effect(workflow_id=self.id, step="note"))


def journal(workflow_id: UUID, event: str) -> None:
    """Write down what a body does, in a transaction of its own that nothing undoes."""
    engine = create_engine(os.environ["DURABLE_DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as conn:
        values = {"workflow": workflow_id, "event": event, "pid": os.getpid()}
        conn.execute(text("INSERT INTO journal (workflow_id, event, pid) VALUES (:workflow, :event, :pid)"), values)
    engine.dispose()
