"""Exit with 0 if a worker process of this container has given a sign of life in the last seconds."""

from __future__ import annotations

import os
import socket
import sys

import psycopg

SEEN = "SELECT count(*) FROM durable.workers WHERE host = %s AND seen_at > now() - interval '10 seconds'"


def main() -> int:
    """Ask the database: a worker that cannot reach it is not well either."""
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
