"""The commands that stay, as an operator uses them: worker, relay, reap and dev."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from durable.dev.process import is_running
from durable.runtime import Runtime
from durable.settings import Settings
from tests.acceptance.processes.app import Chain, Hold, Later
from tests.acceptance.processes.stage import ROOT, children_of
from tests.waiting import until

FLOWS = """
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from durable import Workflow, step


class Base(DeclarativeBase):
    pass


class Thing(Base):
    __tablename__ = "things"
    id: Mapped[int] = mapped_column(primary_key=True)
    note: Mapped[str] = mapped_column(default="")


class Note(Workflow[Thing], name="note", unique="none"):
    @step
    def write(self):
        self.hero.note = "first"
"""


def workers(stage):
    return {pid for (pid,) in stage.rows("SELECT pid FROM durable.workers")}


def durable(stage, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "durable.cli", *arguments],
        capture_output=True,
        text=True,
        env=stage.environment | environment,
        timeout=60,
        cwd=ROOT,
    )


@pytest.mark.slow
def test_a_supervised_worker_that_is_killed_is_started_again_and_its_neighbour_lives_on(stage):
    command = stage.run_command("durable.cli", "worker", "--processes", "2", "--threads", "2")
    before = until(lambda: len(workers(stage)) == 2 and workers(stage), "two workers are there")
    victim, neighbour = sorted(before)
    os.kill(victim, signal.SIGKILL)
    until(lambda: len(workers(stage) - {victim}) == 2, "another one has taken its place")

    assert neighbour in workers(stage)
    stage.create(Chain)
    stage.await_finished(1)
    command.terminate()
    assert command.process.wait(30) == 0
    assert workers(stage) <= {victim}
    assert not is_running(neighbour)


def test_a_supervised_worker_that_is_killed_while_it_begins_is_started_again_soon(stage):
    command = stage.run_command("durable.cli", "worker", "--processes", "1", "--threads", "2")
    (master,) = until(lambda: children_of(command.process.pid), "it has started Dramatiq")
    (victim,) = until(lambda: children_of(master), "Dramatiq has started its process")
    os.kill(victim, signal.SIGKILL)

    (another,) = until(lambda: workers(stage), "another one has taken its place", seconds=20)  # Dramatiq waits for 30
    assert another != victim


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has died")
def test_no_process_works_on_unseen_when_dramatiq_is_killed(stage):
    command = stage.run_command("durable.cli", "worker", "--processes", "1", "--threads", "2")
    (orphan,) = until(lambda: workers(stage), "a worker is there")
    (master,) = children_of(command.process.pid)
    os.kill(master, signal.SIGKILL)

    until(lambda: not is_running(orphan), "it has ended")
    until(lambda: workers(stage) - {orphan}, "another one has taken its place")


@pytest.mark.slow
def test_a_second_signal_does_not_wait_for_steps_that_run(stage):
    command = stage.run_command("durable.cli", "worker", "--processes", "1", "--threads", "2", shutdown_grace="10m")
    (pid,) = until(lambda: workers(stage), "a worker is there")
    stage.create(Hold, input=600)
    until(lambda: stage.began() == 1, "a step runs")

    command.terminate()
    until(lambda: "Shutting down" in command.told, "the worker knows")
    assert is_running(pid)
    command.terminate()

    until(lambda: command.ended and not is_running(pid), "all have ended")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has died")
def test_workers_end_in_good_order_when_their_supervisor_is_killed(stage):
    command = stage.run_command("durable.cli", "worker", "--processes", "2", "--threads", "2")
    pids = until(lambda: len(workers(stage)) == 2 and workers(stage), "two workers are there")
    command.process.kill()

    until(lambda: not workers(stage), "they have said that they end")
    until(lambda: not any(map(is_running, pids)), "they have ended")


def test_a_worker_that_can_never_start_ends_with_a_sentence(stage):
    refused = durable(stage, "worker", "--processes", "1", DURABLE_MODULES="there.is.none")

    assert refused.returncode == 1
    assert "there is no module 'there'" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("command", ["relay", "reap"])
def test_relay_and_reaper_end_in_good_order_when_told_to(stage, command):
    started = stage.run_command("durable.cli", command)
    until(lambda: "runs" in started.told, "it runs")
    started.terminate()

    assert started.process.wait(20) == 0
    assert "Traceback" not in started.told


TWO_WORKERS = """
import dramatiq
import durable.actors
from durable import runtime
from sqlalchemy.orm import Session
from tests.acceptance.processes.app import Hold, Subject
from tests.waiting import until

for seconds in (0, 2):  # the second step outlasts the grace of the first worker
    worker = dramatiq.Worker(dramatiq.get_broker(), worker_threads=2)
    worker.start()
    with Session(runtime.current().engine) as session, session.begin():
        session.add(subject := Subject(note=""))
        workflow = Hold.create(subject, seconds)
    until(lambda: workflow.refresh().state == "finished", "it is finished")
    worker.stop()
"""


def test_a_process_may_have_one_worker_after_the_other(stage):
    environment = stage.environment | {"DURABLE_SHUTDOWN_GRACE": "1s"}
    ended = subprocess.run([sys.executable, "-c", TWO_WORKERS], env=environment, cwd=ROOT, timeout=100)

    assert ended.returncode == 0
    assert stage.count("finished") == 2
    assert stage.rows("SELECT DISTINCT outcome FROM durable.executions") == [("success",)]
    assert workers(stage) == set()


def test_relay_and_reaper_do_their_work_once(stage):
    Later.create_many(stage.subjects(3), wait="1ms")
    until(lambda: durable(stage, "relay", "--once").stdout == "3 messages were due\n", "they were due")

    assert stage.redis.llen("dramatiq:default") == 3
    reaped = durable(stage, "reap", "--once").stdout
    assert reaped == "0 steps recovered, 0 stuck workflows rescued, 0 ended workflows deleted\n"


def test_the_relay_without_a_broker_or_a_schema_says_what_to_do(stage):
    without = durable(stage, "relay", DURABLE_REDIS_URL="")
    assert (without.returncode, "set DURABLE_REDIS_URL" in without.stderr) == (1, True)

    empty = stage.database.url.replace("/durable", "/postgres")
    behind = durable(stage, "relay", DURABLE_DATABASE_URL=empty)
    assert (behind.returncode, "run `durable migrate`" in behind.stderr) == (1, True)


def exported(told, name):
    found = re.search(rf"^export DURABLE_{name}=(\S+)$", told, re.MULTILINE)
    return found and found[1]


@pytest.mark.slow
def test_dev_brings_servers_and_workers_and_starts_anew_when_code_changes(tmp_path):
    (tmp_path / "flows.py").write_text(FLOWS)
    (tmp_path / "pyproject.toml").write_text('[tool.durable]\nmodules = ["flows"]\n')
    environment = {key: value for key, value in os.environ.items() if not key.startswith("DURABLE_")}
    log = tmp_path / "dev.log"
    command = [sys.executable, "-m", "durable.cli", "dev"]
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=file, stderr=file)
    try:
        until(lambda: "ready for action" in log.read_text() or process.poll(), "a worker is ready")
        urls = {name: exported(log.read_text(), name.upper()) for name in ("database_url", "redis_url")}
        assert note_of_a_new_thing(tmp_path, urls) == "first"

        (tmp_path / "flows.py").write_text("import there_is_none")
        until(lambda: "there_is_none" in log.read_text(), "the worker cannot start")
        (tmp_path / "flows.py").write_text(FLOWS.replace("first", "second"))
        until(lambda: log.read_text().count("ready for action") == 2, "the worker has started anew")
        assert note_of_a_new_thing(tmp_path, urls) == "second"
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(40) == 0


def note_of_a_new_thing(folder: Path, urls: dict[str, str]) -> str:
    """Start a workflow from a process of the application, and return what its step has written."""
    script = (
        "import durable, flows\n"
        "from sqlalchemy.orm import Session\n"
        "engine = durable.configure().engine\n"
        "flows.Base.metadata.create_all(engine)\n"
        "with Session(engine) as session, session.begin():\n"
        "    session.add(thing := flows.Thing(note=''))\n"
        "    flows.Note.create(thing)\n"
        "    print(thing.id)\n"
    )
    given = {f"DURABLE_{name.upper()}": url for name, url in urls.items()}
    made = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=os.environ | given, capture_output=True, text=True, check=True
    )
    runtime = Runtime(Settings(database_url=urls["database_url"]))

    def read() -> object:
        with runtime.engine.connect() as conn:
            return conn.scalar(text("SELECT note FROM things WHERE id = :id"), {"id": int(made.stdout)})

    try:
        return str(until(read, "its step has run"))
    finally:
        runtime.engine.dispose()
