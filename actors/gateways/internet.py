"""Other people's servers."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from actors.gateways.service import Service


class Web(Service):
    """Delivers HTTP requests. `will_answer` sets the statuses of the next ones; after them it is 200."""

    def reset(self) -> None:
        super().reset()
        self.requests: list[str] = []
        self._statuses: deque[int] = deque()

    def will_answer(self, *statuses: int) -> None:
        """Answer the next requests with these statuses."""
        self._statuses.extend(statuses)

    def post(self, url: str, payload: Mapping[str, Any]) -> int:
        """Send a payload and return the status of the answer."""
        self._receive()
        self.requests.append(url)
        return self._statuses.popleft() if self._statuses else 200
