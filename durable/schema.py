"""The tables, in a Postgres schema of their own; their constraints carry the promises."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Computed,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import ARRAY

from durable.states import ENDED, TERMINAL, ExecutionState, Outcome, StopRequest, WorkflowState

SCHEMA = "durable"

JSONB = postgresql.JSONB(none_as_null=True)

metadata = MetaData(
    schema=SCHEMA,
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
        "ix": "%(table_name)s_%(column_0_name)s_idx",
        "uq": "%(table_name)s_%(column_0_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
    },
)


def quoted(values: Iterable[str]) -> str:
    """Return values as a SQL list of literals."""
    return ", ".join(f"'{value}'" for value in values)


def _texts(values: Iterable[str]) -> str:
    return ", ".join(f"'{value}'::text" for value in values)


def _timestamp(name: str, *, nullable: bool = True) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=nullable)


workflows = Table(
    "workflows",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("hero_type", Text),
    Column("hero_key", Text),
    Column("state", Text, nullable=False),
    Column("step", Text, comment="where it stands: the step that runs, runs next, or stopped it"),
    Column("reason", Text, comment="why it is paused, canceled or failed"),
    Column("queue", Text, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("input", JSONB),
    Column("data", JSONB, nullable=False),
    Column("result", JSONB),
    Column("unique_key", Text),
    Column("unique_in", ARRAY(Text), comment="the states that occupy the slot; null: all ongoing ones"),
    Column(
        "slot",
        Text,
        Computed(
            # as Postgres itself writes it down, so that Alembic finds nothing to change
            f"CASE WHEN CASE WHEN unique_in IS NULL THEN state <> ALL (ARRAY[{_texts(TERMINAL)}]) "
            "ELSE state = ANY (unique_in) END THEN unique_key ELSE NULL::text END",
            persisted=True,
        ),
        comment="the unique key while it is occupied",
    ),
    Column("stop_requested", Text, comment="what a caller asked for while a step runs"),
    Column("stop_reason", Text),
    _timestamp("created_at", nullable=False),
    _timestamp("ended_at"),
    CheckConstraint(f"state IN ({quoted(WorkflowState)})", name="state"),
    CheckConstraint(f"(ended_at IS NOT NULL) = (state IN ({quoted(TERMINAL)}))", name="ended"),
    CheckConstraint("(hero_type IS NULL) = (hero_key IS NULL)", name="hero"),
    CheckConstraint("state <> 'paused' OR reason IS NOT NULL", name="paused_with_reason"),
    CheckConstraint(
        f"stop_requested IS NULL OR (state = 'performing' AND stop_requested IN ({quoted(StopRequest)}))",
        name="stop_requested",
    ),
    CheckConstraint("jsonb_typeof(data) = 'object'", name="data"),
)

Index(
    "workflows_slot_key",
    workflows.c.name,
    workflows.c.slot,
    unique=True,
    postgresql_where=text("slot IS NOT NULL"),
)
Index("workflows_hero_idx", workflows.c.hero_type, workflows.c.hero_key)
Index("workflows_name_idx", workflows.c.name, workflows.c.id)
Index("workflows_ended_at_idx", workflows.c.ended_at, postgresql_where=text("ended_at IS NOT NULL"))

executions = Table(
    "executions",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column(
        "seq",
        BigInteger,
        Identity(always=True),
        nullable=False,
        comment="order of history; ids come from many clocks",
    ),
    Column("workflow_id", Uuid, ForeignKey("workflows.id", ondelete="CASCADE"), nullable=False),
    Column("step", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("outcome", Text),
    Column("reason", Text, comment="why it was canceled, skipped or paused"),
    Column("attempt", Integer, nullable=False),
    Column("reattempts", Integer, nullable=False, comment="exception reattempts in a row before this one"),
    Column("crashes", Integer, nullable=False, comment="workers lost in a row before this one"),
    Column("idempotency_key", Uuid, nullable=False),
    Column("resume_input", JSONB),
    _timestamp("scheduled_for", nullable=False),
    _timestamp("started_at"),
    _timestamp("finished_at"),
    Column("claim", Uuid),
    Column("worker", Text),
    _timestamp("lease_until"),
    Column("result", JSONB),
    Column("error_class", Text),
    Column("error_message", Text),
    Column("error_traceback", Text),
    CheckConstraint(f"state IN ({quoted(ExecutionState)})", name="state"),
    CheckConstraint(f"outcome IS NULL OR outcome IN ({quoted(Outcome)})", name="outcome"),
    CheckConstraint(f"(state IN ({quoted(ENDED)})) = (finished_at IS NOT NULL)", name="finished"),
    CheckConstraint(f"(state IN ({quoted(ENDED)})) = (outcome IS NOT NULL)", name="ended_with_outcome"),
    CheckConstraint("(state = 'in_progress') = (claim IS NOT NULL)", name="claim"),
    CheckConstraint("(claim IS NULL) = (lease_until IS NULL)", name="lease"),
    CheckConstraint("state <> 'in_progress' OR started_at IS NOT NULL", name="started"),
    CheckConstraint("state <> 'scheduled' OR started_at IS NULL", name="not_started"),
    CheckConstraint("attempt >= 1 AND reattempts >= 0 AND crashes >= 0", name="counts"),
)

# Told by columns that no statement compares otherwise: an index of few rows seems to Postgres the cheapest way to any
# row that must be in it, and it goes on believing in few when they are many.
Index(
    "executions_one_live_key",
    executions.c.workflow_id,
    unique=True,
    postgresql_where=text("finished_at IS NULL"),
)
Index("executions_history_idx", executions.c.workflow_id, executions.c.seq)
Index("executions_worker_idx", executions.c.worker, postgresql_where=text("lease_until IS NOT NULL"))
Index("executions_lease_idx", executions.c.lease_until, postgresql_where=text("lease_until IS NOT NULL"))

outbox = Table(
    "outbox",
    metadata,
    Column("execution_id", Uuid, primary_key=True, comment="without a foreign key: every step would pay for it"),
    Column("name", Text, nullable=False, comment="the workflow's class: which actor the message is for"),
    Column("queue", Text, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("due_at", DateTime(timezone=True), nullable=False, comment="when the relay looks at it next"),
    Column("sends", SmallInteger, nullable=False, server_default=text("0"), comment="how often the relay sent it"),
)

Index("outbox_due_at_idx", outbox.c.due_at)

workers = Table(
    "workers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("lock_key", BigInteger, nullable=False, comment="the advisory lock held while it lives"),
    Column("broker_id", Text, comment="under which name its broker keeps the messages that it has fetched"),
    Column("queues", ARRAY(Text), nullable=False),
    Column("classes", ARRAY(Text), nullable=False, comment="the names of the workflow classes that it has loaded"),
    _timestamp("started_at", nullable=False),
    _timestamp("seen_at", nullable=False),
)

audit = Table(
    "audit",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("workflow_id", Uuid, ForeignKey("workflows.id", ondelete="CASCADE"), nullable=False),
    Column("verb", Text, nullable=False),
    Column("by", Text),
    Column("reason", Text),
    _timestamp("at", nullable=False),
)

Index("audit_workflow_id_idx", audit.c.workflow_id, audit.c.id)
