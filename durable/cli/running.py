"""The commands that stay: workers, relay, reaper, and everything at once for development."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from durable.cli.errors import REFUSED, CommandError
from durable.cli.output import many
from durable.cli.root import app

if TYPE_CHECKING:
    from durable.loops import Loop
    from durable.runtime import Runtime

Processes = Annotated[int, typer.Option("--processes", "-p", min=1, help="How many worker processes.")]
Threads = Annotated[int, typer.Option("--threads", "-t", min=1, help="How many steps each runs at a time.")]
Once = Annotated[bool, typer.Option("--once", help="Do it once and end.")]

CORES = os.cpu_count() or 1
DEMO = "actors.demo"
_FORMAT = "[%(asctime)s] [PID %(process)d] [%(name)s] [%(levelname)s] %(message)s"


@app.command()
def worker(
    processes: Processes = CORES,
    threads: Threads = 8,
    queues: Annotated[list[str] | None, typer.Option("--queue", "-Q", help="Only these queues.")] = None,
    reload: Annotated[bool, typer.Option("--reload", help="Start anew when Python files here change.")] = False,
) -> None:
    """Run workers; one that dies is started again."""
    from durable import runtime
    from durable.supervisor import Supervisor

    _log()
    runtime.current()  # settings that make no sense are refused here, not by every worker
    watched = Path.cwd() if reload else None
    supervisor = Supervisor(processes=processes, threads=threads, queues=queues or (), watched=watched)
    raise typer.Exit(1 if supervisor.run() else 0)


@app.command()
def relay(once: Once = False) -> None:
    """Send messages that are due. Workers do it by themselves unless DURABLE_RELAY_IN_WORKERS=false."""
    from durable import relay as relays

    runtime = _ready()
    if once:
        drained = relays.drain(runtime)
        typer.echo(f"{many(drained, 'message')} {'was' if drained == 1 else 'were'} due")
        return
    _keep(relays.relay_loop(runtime))


@app.command()
def reap(once: Once = False) -> None:
    """Recover what crashed workers held, delete what is old. Workers do it by themselves unless told otherwise."""
    from durable import reaper

    runtime = _ready()
    if once:
        recovered, rescued = reaper.recover_lost_claims(runtime), reaper.rescue_stuck(runtime)
        deleted = reaper.delete_ended(runtime)
        typer.echo(
            f"{many(recovered, 'step')} recovered, {many(rescued, 'stuck workflow')} rescued, "
            f"{many(deleted, 'ended workflow')} deleted"
        )
        return
    _keep(reaper.Reaper(runtime).loop())


@app.command()
def dev(
    processes: Processes = 1,
    threads: Threads = 8,
    folder: Annotated[Path, typer.Option(help="Where the servers keep their data.")] = Path(".durable"),
) -> None:
    """Run everything for development: embedded Postgres and Redis, migrated, and workers that reload."""
    from durable import dev as servers
    from durable import migrate, runtime
    from durable.supervisor import Supervisor

    _log()
    with servers.postgres(folder) as postgres, servers.redis(folder) as redis:
        os.environ["DURABLE_DATABASE_URL"], os.environ["DURABLE_REDIS_URL"] = postgres.url, redis.url
        migrate.migrate(runtime.configure().engine)
        typer.echo(f"export DURABLE_DATABASE_URL={postgres.url}")
        typer.echo(f"export DURABLE_REDIS_URL={redis.url}")
        typer.echo("Both servers and the workers run until Ctrl-C. Your application connects with the lines above.")
        code = Supervisor(processes=processes, threads=threads, watched=Path.cwd()).run()
    raise typer.Exit(1 if code else 0)


@app.command()
def demo() -> None:
    """Run the example shop: a worker is killed, Redis is flushed, and every order is fulfilled once."""
    if not (Path.cwd() / "actors" / "demo.py").is_file():
        raise CommandError("the demo is part of the source tree: run it in the folder of a clone", REFUSED)
    raise typer.Exit(subprocess.run([sys.executable, "-m", DEMO], check=False).returncode)


def _ready() -> Runtime:
    """Return the runtime, once its database is there and fits."""
    from durable import migrate, runtime

    _log()
    now = runtime.current()
    migrate.check(now.engine, may_be_ahead=True)
    return now


def _keep(loop: Loop) -> None:
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: loop.tell_to_stop())
    logging.getLogger(f"durable.{loop.name}").info("the %s runs", loop.name)
    loop.run()


def _log() -> None:
    logging.basicConfig(level=logging.INFO, format=_FORMAT)
    logging.getLogger("alembic").setLevel(logging.WARNING)
