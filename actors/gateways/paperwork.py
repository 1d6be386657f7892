"""Services that read, keep and take in papers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date

from actors.gateways.service import Service
from durable import NonRetryable


class UnreadableFile(NonRetryable):
    """No second look makes this file readable."""


class Reader(Service):
    """Turns scans into text."""

    def read(self, path: str) -> str:
        """Return the text of a scan."""
        self._receive()
        return f"This is what {path} says. It says it at length."


class Summarizer(Service):
    """Writes short what was long; it is asked asynchronously."""

    async def summarize(self, text: str) -> str:
        """Return the first sentence of a text."""
        self._receive()
        return text.split(".")[0] + "."


class Storage(Service):
    """Files by path; writing one again replaces it."""

    def reset(self) -> None:
        super().reset()
        self.files: dict[str, str] = {}

    def write(self, path: str, content: str) -> None:
        """Keep a file."""
        self._receive()
        self.files[path] = content


class Authority(Service):
    """Takes reports from whoever is signed in. Set `is_open` to close it for a while."""

    def reset(self) -> None:
        super().reset()
        self.filed: list[int] = []
        self.is_open = True
        self._signed_in = False

    @contextmanager
    def signed_in(self) -> Iterator[None]:
        """Sign in, and out again whatever happens."""
        self._signed_in = True
        try:
            yield
        finally:
            self._signed_in = False

    def submit(self, begins: date, ends: date, revenue: int | None, *, key: str) -> str:
        """File the revenue of some days and return the receipt's number."""
        self._receive()
        if not self._signed_in:
            raise PermissionError("sign in first")
        return self._once(key, lambda: self._file(revenue or 0))

    def _file(self, revenue: int) -> str:
        self.filed.append(revenue)
        return f"filing-{len(self.filed)}"
