"""A worker's hands: the messages that it has fetched and is not done with, and how many more it may take."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from threading import Condition, Lock

from dramatiq.common import q_name

QUICK = 0.1
"""Seconds: while messages are usually done with so soon, a worker takes more of them than it has threads for."""
_LONG = 1.0
"""Seconds after which it does not matter any more how long a message takes."""
_WEIGHT = 0.2
"""How much the latest message counts in what is usual."""


class Hands:
    """The messages in the hands of one process, by queue, each under its key in the broker.

    A message that waits here for a thread waits while other workers may have threads to spare. That is worth it only
    where the wait is no longer than the way to the broker: while steps are quick.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.fetching = Lock()
        """Held by who looks for room and fills it."""
        self._now = now
        self._changed = Condition()
        self._since: defaultdict[str, dict[str, float]] = defaultdict(dict)
        self._threads: int | None = None
        self._usual = _LONG

    def begin(self, threads: int) -> None:
        """Be empty: a worker begins that has so many threads."""
        with self._changed:
            self._since.clear()
            self._threads = threads
            self._usual = _LONG

    def take(self, queue: str, key: str) -> None:
        """Take a message."""
        with self._changed:
            self._since[queue][key] = self._now()

    def release(self, queue: str, key: str) -> None:
        """Be done with a message."""
        with self._changed:
            since = self._since[queue].pop(key, None)
            if since is not None:
                took = min(self._now() - since, _LONG)
                self._usual += _WEIGHT * (took - self._usual)
            self._changed.notify_all()

    def forget(self, queue: str) -> None:
        """Be done with all messages of a queue: nobody has them any more."""
        with self._changed:
            self._since[queue].clear()

    def held(self, queue: str) -> list[str]:
        """Return the keys of the messages of a queue."""
        with self._changed:
            return list(self._since[queue])

    def room(self, queue: str, *, prefetch: int) -> int:
        """Return how many messages of a queue may be taken now."""
        with self._changed:
            return self._room(queue, prefetch)

    def await_room(self, queue: str, *, prefetch: int, seconds: float) -> None:
        """Sleep until there is room: for one message, or where messages are quick for some at once."""
        with self._changed:
            self._changed.wait_for(lambda: self._room(queue, prefetch) >= self._worthwhile(prefetch), timeout=seconds)

    def _room(self, queue: str, prefetch: int) -> int:
        free = prefetch - len(self._since[queue])
        if self._threads is None or self._quick or is_delayed(queue):
            return free
        return min(free, self._threads - sum(len(held) for name, held in self._since.items() if not is_delayed(name)))

    def _worthwhile(self, prefetch: int) -> int:
        return max(1, prefetch // 2) if self._quick else 1

    @property
    def _quick(self) -> bool:
        return self._usual < QUICK


def is_delayed(queue: str) -> bool:
    """Tell whether a queue is one of messages that Dramatiq delays: they wait here for their time, not for a thread."""
    return bool(q_name(queue) != queue)
