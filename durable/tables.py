"""The SQLAlchemy tables, for joins of one's own. Read them as you like; change rows through the verbs only."""

from __future__ import annotations

from durable.schema import audit, executions, metadata, outbox, workers, workflows

__all__ = ["audit", "executions", "metadata", "outbox", "workers", "workflows"]
