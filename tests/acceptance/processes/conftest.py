"""A stage for each test: servers of its own, and workers that end with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.processes.stage import Stage, a_stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Postgres, Redis and nobody at work yet."""
    with a_stage(tmp_path) as stage:
        yield stage
