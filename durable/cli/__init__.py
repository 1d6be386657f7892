"""The command `durable`."""

from __future__ import annotations

from durable.cli import acting, diagnosing, migrating, reading, running  # registers commands
from durable.cli.root import app

__all__ = ["acting", "app", "diagnosing", "migrating", "reading", "running"]
