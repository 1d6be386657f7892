"""The commands of compose.yaml, run here as processes: together they do what the page in compose/ says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, text

from durable import dev, migrate, scratch
from tests.unit.test_compose import HEALTHCHECK, PAGE, ROOT, SERVICES, variables
from tests.waiting import PATIENCE, until

BIN = Path(sys.executable).parent


@pytest.fixture
def world(durable_server: str) -> Iterator[dict[str, str]]:
    """What a container's processes have: an empty database, a Redis, and the variables of compose.yaml."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("DURABLE_")}
    with dev.redis(durable=False) as redis, scratch.database(durable_server, f"compose_{uuid4().hex[:8]}") as url:
        urls = {
            "DURABLE_DATABASE_URL": url.set(drivername="postgresql").render_as_string(hide_password=False),
            "DURABLE_REDIS_URL": redis.url,
        }
        yield own | variables() | urls | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "SHOP_HOUR": "1s"}


@contextmanager
def a_service(name: str, world: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a service's command; it ends with this block at the latest."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            SERVICES[name]["command"], env=world, cwd=ROOT, stdout=file, stderr=file, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run(world: dict[str, str], *command: str, **options: Any) -> int:
    """Run a command to its end and return its exit code."""
    return subprocess.run(command, env=world, cwd=ROOT, timeout=PATIENCE, check=False, **options).returncode


def health(world: dict[str, str], name: str = "worker") -> int:
    """Run a service's health check, with the script where it is here."""
    check = SERVICES[name].get("healthcheck", {"test": ["CMD", "python", HEALTHCHECK]})["test"][1:]
    here = ["compose/healthcheck.py" if word == HEALTHCHECK else word for word in check]
    return run(world, *here, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("name", ["relay", "reaper"])
def test_relay_and_reaper_are_well_on_a_schema_that_is_ahead_but_not_on_one_that_is_behind(world, name):
    migrate.migrate(engine := create_engine(world["DURABLE_DATABASE_URL"].replace("://", "+psycopg://")))
    codes = []
    for revision in ("0001", migrate.newest(), "9999"):
        with engine.begin() as conn:
            conn.execute(text("UPDATE durable.alembic_version SET version_num = :revision"), {"revision": revision})
        codes.append(health(world, name))
    engine.dispose()

    assert codes == [1, 0, 0]


def test_relay_and_reaper_are_not_well_without_their_database(world):
    nowhere = world | {"DURABLE_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}

    assert health(nowhere, "relay") == 1


@pytest.mark.slow
def test_the_services_work_together_and_end_when_they_are_told_to(world, tmp_path):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    engine = create_engine(world["DURABLE_DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://"))
    assert health(world, "relay") == 1
    assert run(world, *SERVICES["migrate"]["command"], **quiet) == 0
    assert health(world, "relay") == 0

    with ExitStack() as stack:
        assert health(world) == 1
        services = {
            name: stack.enter_context(a_service(name, world, tmp_path / f"{name}.log"))
            for name in ("worker", "relay", "reaper")
        }
        until(lambda: health(world) == 0, "the worker is healthy")

        [orders] = re.findall(r"python - <<'END'\n(.*?)END\n", PAGE, re.DOTALL)
        assert run(world, "python", "-", input=orders, text=True) == 0
        until(lambda: fulfilled(engine) == 32, "all orders have come to their end")
        assert [name for name, process in services.items() if process.poll() is not None] == []

        for process in services.values():
            process.send_signal(signal.SIGTERM)
        codes = {name: process.wait(PATIENCE) for name, process in services.items()}

    assert codes == {"worker": 0, "relay": 0, "reaper": 0}, [log.read_text() for log in tmp_path.glob("*.log")]
    assert health(world) == 1
    engine.dispose()


def fulfilled(engine: Any) -> int:
    """Return how many orders have been shipped or turned down; the relay alone sends what waited for a second."""
    with engine.connect() as conn:
        return int(conn.scalar(text("SELECT count(*) FROM shop.orders WHERE status IN ('shipped', 'canceled')")))
