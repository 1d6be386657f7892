"""Workers, messages that are sent again, and outcomes of interrupted steps.

Revision: 0002, after 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_BEFORE = (
    "'success', 'finished', 'paused', 'canceled', 'reattempted', 'skipped', 'failed', 'recovered', 'interrupted', "
)
_AFTER = "'removed', 'hero_gone', 'replaced'"


def upgrade() -> None:
    op.create_table(
        "workers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column(
            "lock_key",
            sa.BigInteger(),
            nullable=False,
            comment="the advisory lock held while it lives",
        ),
        sa.Column(
            "broker_id",
            sa.Text(),
            nullable=True,
            comment="under which name its broker keeps the messages that it has fetched",
        ),
        sa.Column("queues", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column(
            "classes",
            postgresql.ARRAY(sa.Text()),
            nullable=False,
            comment="the names of the workflow classes that it has loaded",
        ),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("workers_pkey")),
        schema="durable",
    )
    op.add_column(
        "outbox",
        sa.Column(
            "sends",
            sa.SmallInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="how often the relay sent it",
        ),
        schema="durable",
    )
    op.alter_column("outbox", "due_at", comment="when the relay looks at it next", schema="durable")
    op.create_index(
        "workflows_ended_at_idx",
        "workflows",
        ["ended_at"],
        schema="durable",
        postgresql_where=sa.text("ended_at IS NOT NULL"),
    )
    op.create_index(
        "executions_worker_idx",
        "executions",
        ["worker"],
        schema="durable",
        postgresql_where=sa.text("lease_until IS NOT NULL"),
    )
    _tell_live_by("finished_at IS NULL")
    _allow_outcomes(f"{_BEFORE}'handed_back', 'timed_out', {_AFTER}")


def downgrade() -> None:
    op.execute("UPDATE durable.executions SET outcome = 'interrupted' WHERE outcome IN ('handed_back', 'timed_out')")
    _allow_outcomes(_BEFORE + _AFTER)
    _tell_live_by("state IN ('scheduled', 'waiting', 'in_progress')")
    op.drop_index("executions_worker_idx", table_name="executions", schema="durable")
    op.drop_index("workflows_ended_at_idx", table_name="workflows", schema="durable")
    op.alter_column("outbox", "due_at", comment=None, schema="durable")
    op.drop_column("outbox", "sends", schema="durable")
    op.drop_table("workers", schema="durable")


def _tell_live_by(condition: str) -> None:
    op.drop_index("executions_one_live_key", table_name="executions", schema="durable")
    op.create_index(
        "executions_one_live_key",
        "executions",
        ["workflow_id"],
        unique=True,
        schema="durable",
        postgresql_where=sa.text(condition),
    )


def _allow_outcomes(outcomes: str) -> None:
    op.drop_constraint(op.f("executions_outcome_check"), "executions", schema="durable", type_="check")
    op.create_check_constraint(
        op.f("executions_outcome_check"), "executions", f"outcome IS NULL OR outcome IN ({outcomes})", schema="durable"
    )
