"""`python -m durable.cli` is `durable`."""

from __future__ import annotations

from durable.cli import app

app()
