"""What an embedded server may raise."""

from __future__ import annotations

from durable.errors import DurableError


class ServerUnavailable(DurableError):
    """No server could be found, started or reached; the message says what to do."""
