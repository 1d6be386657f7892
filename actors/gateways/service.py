"""What all services outside the shop have in common: they fail, they take their time, and they know their keys."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable


class ServiceDown(Exception):
    """The service does not answer."""


class RateLimited(Exception):
    """The service wants to be left alone for a while."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"too many requests, try again in {retry_after:g} seconds")
        self.retry_after = retry_after


class Service:
    """A stand-in in this process for a service outside. A test tells it what goes wrong."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything, and work."""
        self._troubles: deque[Exception] = deque()
        self._answers: dict[str, str] = {}
        self._down = False
        self._seconds = 0.0

    def will_raise(self, *errors: Exception) -> None:
        """Answer the next calls with these errors, one each."""
        self._troubles.extend(errors)

    def go_down(self) -> None:
        """Answer no call from now on."""
        self._down = True

    def come_back(self) -> None:
        """Answer calls again."""
        self._down = False

    def slow_down(self, seconds: float) -> None:
        """Take so long for every call from now on."""
        self._seconds = seconds

    def _receive(self) -> None:
        """Begin every call: take as long as it takes, and go wrong in the way that was asked for."""
        time.sleep(self._seconds)
        if self._down:
            raise ServiceDown(f"{type(self).__name__} does not answer")
        if self._troubles:
            raise self._troubles.popleft()

    def _once(self, key: str, do: Callable[[], str]) -> str:
        """Do something, or return what was answered when this key came before."""
        if key not in self._answers:
            self._answers[key] = do()
        return self._answers[key]
