"""Exit with 0 if this container is well.

Without an argument that is a worker, which is well if it has given a sign of life in the last seconds; with `schema`
it is a relay or a reaper, which is well if it reaches a database that is not behind its code.
"""

from __future__ import annotations

import os
import socket
import sys

import psycopg

SEEN = "SELECT count(*) FROM durable.workers WHERE host = %s AND seen_at > now() - interval '10 seconds'"


def main() -> int:
    """Ask the database: whoever cannot reach it is not well either."""
    return _schema() if sys.argv[1:] == ["schema"] else _sign_of_life()


def _schema() -> int:
    from sqlalchemy.exc import OperationalError

    from durable import migrate, runtime
    from durable.errors import DurableError

    try:
        migrate.check(runtime.current().engine, may_be_ahead=True)
    except (DurableError, OperationalError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _sign_of_life() -> int:
    url = os.environ["DURABLE_DATABASE_URL"].replace("+psycopg", "")
    try:
        with psycopg.connect(url, connect_timeout=3) as conn:
            [seen] = conn.execute(SEEN, [socket.gethostname()]).fetchone() or [0]
    except psycopg.Error as error:
        sys.stderr.write(f"the database does not answer: {error}\n")
        return 1
    return 0 if seen else 1


if __name__ == "__main__":
    sys.exit(main())
