"""The first tables.

Revision: 0001, after none
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "workflows",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("hero_type", sa.Text(), nullable=True),
        sa.Column("hero_key", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column(
            "step",
            sa.Text(),
            nullable=True,
            comment="where it stands: the step that runs, runs next, or stopped it",
        ),
        sa.Column("reason", sa.Text(), nullable=True, comment="why it is paused, canceled or failed"),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("priority", sa.SmallInteger(), nullable=False),
        sa.Column("input", postgresql.JSONB(), nullable=True),
        sa.Column("data", postgresql.JSONB(), nullable=False),
        sa.Column("result", postgresql.JSONB(), nullable=True),
        sa.Column("unique_key", sa.Text(), nullable=True),
        sa.Column(
            "unique_in",
            postgresql.ARRAY(sa.Text()),
            nullable=True,
            comment="the states that occupy the slot; null: all ongoing ones",
        ),
        sa.Column(
            "slot",
            sa.Text(),
            sa.Computed(
                "CASE WHEN CASE WHEN unique_in IS NULL THEN state <> ALL (ARRAY['finished'::text, 'canceled'::text, 'failed'::text, 'rolled_back'::text]) ELSE state = ANY (unique_in) END THEN unique_key ELSE NULL::text END",
                persisted=True,
            ),
            nullable=True,
            comment="the unique key while it is occupied",
        ),
        sa.Column("stop_requested", sa.Text(), nullable=True, comment="what a caller asked for while a step runs"),
        sa.Column("stop_reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(ended_at IS NOT NULL) = (state IN ('finished', 'canceled', 'failed', 'rolled_back'))",
            name=op.f("workflows_ended_check"),
        ),
        sa.CheckConstraint("jsonb_typeof(data) = 'object'", name=op.f("workflows_data_check")),
        sa.CheckConstraint("state <> 'paused' OR reason IS NOT NULL", name=op.f("workflows_paused_with_reason_check")),
        sa.CheckConstraint(
            "state IN ('ready', 'performing', 'waiting', 'paused', 'compensating', 'finished', 'canceled', 'failed', 'rolled_back')",
            name=op.f("workflows_state_check"),
        ),
        sa.CheckConstraint(
            "stop_requested IS NULL OR (state = 'performing' AND stop_requested IN ('pause', 'cancel'))",
            name=op.f("workflows_stop_requested_check"),
        ),
        sa.CheckConstraint("(hero_type IS NULL) = (hero_key IS NULL)", name=op.f("workflows_hero_check")),
        sa.PrimaryKeyConstraint("id", name=op.f("workflows_pkey")),
        schema="durable",
    )
    op.create_index("workflows_hero_idx", "workflows", ["hero_type", "hero_key"], unique=False, schema="durable")
    op.create_index("workflows_name_idx", "workflows", ["name", "id"], unique=False, schema="durable")
    op.create_index(
        "workflows_slot_key",
        "workflows",
        ["name", "slot"],
        unique=True,
        schema="durable",
        postgresql_where=sa.text("slot IS NOT NULL"),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("workflow_id", sa.Uuid(), nullable=False),
        sa.Column("verb", sa.Text(), nullable=False),
        sa.Column("by", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["workflow_id"], ["durable.workflows.id"], name=op.f("audit_workflow_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("audit_pkey")),
        schema="durable",
    )
    op.create_index("audit_workflow_id_idx", "audit", ["workflow_id", "id"], unique=False, schema="durable")
    op.create_table(
        "executions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column(
            "seq",
            sa.BigInteger(),
            sa.Identity(always=True),
            nullable=False,
            comment="order of history; ids come from many clocks",
        ),
        sa.Column("workflow_id", sa.Uuid(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True, comment="why it was canceled, skipped or paused"),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column(
            "reattempts",
            sa.Integer(),
            nullable=False,
            comment="exception reattempts in a row before this one",
        ),
        sa.Column("crashes", sa.Integer(), nullable=False, comment="workers lost in a row before this one"),
        sa.Column("idempotency_key", sa.Uuid(), nullable=False),
        sa.Column("resume_input", postgresql.JSONB(), nullable=True),
        sa.Column("scheduled_for", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("claim", sa.Uuid(), nullable=True),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("result", postgresql.JSONB(), nullable=True),
        sa.Column("error_class", sa.Text(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("error_traceback", sa.Text(), nullable=True),
        sa.CheckConstraint("(state = 'in_progress') = (claim IS NOT NULL)", name=op.f("executions_claim_check")),
        sa.CheckConstraint(
            "(state IN ('completed', 'failed', 'canceled', 'skipped')) = (finished_at IS NOT NULL)",
            name=op.f("executions_finished_check"),
        ),
        sa.CheckConstraint(
            "(state IN ('completed', 'failed', 'canceled', 'skipped')) = (outcome IS NOT NULL)",
            name=op.f("executions_ended_with_outcome_check"),
        ),
        sa.CheckConstraint(
            "outcome IS NULL OR outcome IN ('success', 'finished', 'paused', 'canceled', 'reattempted', 'skipped', 'failed', 'recovered', 'interrupted', 'removed', 'hero_gone', 'replaced')",
            name=op.f("executions_outcome_check"),
        ),
        sa.CheckConstraint("state <> 'in_progress' OR started_at IS NOT NULL", name=op.f("executions_started_check")),
        sa.CheckConstraint("state <> 'scheduled' OR started_at IS NULL", name=op.f("executions_not_started_check")),
        sa.CheckConstraint(
            "state IN ('scheduled', 'waiting', 'in_progress', 'completed', 'failed', 'canceled', 'skipped')",
            name=op.f("executions_state_check"),
        ),
        sa.CheckConstraint("(claim IS NULL) = (lease_until IS NULL)", name=op.f("executions_lease_check")),
        sa.CheckConstraint("attempt >= 1 AND reattempts >= 0 AND crashes >= 0", name=op.f("executions_counts_check")),
        sa.ForeignKeyConstraint(
            ["workflow_id"],
            ["durable.workflows.id"],
            name=op.f("executions_workflow_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("executions_pkey")),
        schema="durable",
    )
    op.create_index("executions_history_idx", "executions", ["workflow_id", "seq"], unique=False, schema="durable")
    op.create_index(
        "executions_lease_idx",
        "executions",
        ["lease_until"],
        unique=False,
        schema="durable",
        postgresql_where=sa.text("lease_until IS NOT NULL"),
    )
    op.create_index(
        "executions_one_live_key",
        "executions",
        ["workflow_id"],
        unique=True,
        schema="durable",
        postgresql_where=sa.text("state IN ('scheduled', 'waiting', 'in_progress')"),
    )
    op.create_table(
        "outbox",
        sa.Column(
            "execution_id", sa.Uuid(), nullable=False, comment="without a foreign key: every step would pay for it"
        ),
        sa.Column("name", sa.Text(), nullable=False, comment="the workflow's class: which actor the message is for"),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("priority", sa.SmallInteger(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("execution_id", name=op.f("outbox_pkey")),
        schema="durable",
    )
    op.create_index("outbox_due_at_idx", "outbox", ["due_at"], unique=False, schema="durable")


def downgrade() -> None:
    op.drop_index("outbox_due_at_idx", table_name="outbox", schema="durable")
    op.drop_table("outbox", schema="durable")
    op.drop_index(
        "executions_one_live_key",
        table_name="executions",
        schema="durable",
        postgresql_where=sa.text("state IN ('scheduled', 'waiting', 'in_progress')"),
    )
    op.drop_index(
        "executions_lease_idx",
        table_name="executions",
        schema="durable",
        postgresql_where=sa.text("lease_until IS NOT NULL"),
    )
    op.drop_index("executions_history_idx", table_name="executions", schema="durable")
    op.drop_table("executions", schema="durable")
    op.drop_index("audit_workflow_id_idx", table_name="audit", schema="durable")
    op.drop_table("audit", schema="durable")
    op.drop_index(
        "workflows_slot_key",
        table_name="workflows",
        schema="durable",
        postgresql_where=sa.text("slot IS NOT NULL"),
    )
    op.drop_index("workflows_name_idx", table_name="workflows", schema="durable")
    op.drop_index("workflows_hero_idx", table_name="workflows", schema="durable")
    op.drop_table("workflows", schema="durable")
