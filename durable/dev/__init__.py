"""Embedded Postgres and Redis-compatible server for `durable dev`, the demo and tests."""

from durable.dev.errors import ServerUnavailable
from durable.dev.postgresql import postgres
from durable.dev.server import Server
from durable.dev.valkey import redis

__all__ = ["Server", "ServerUnavailable", "postgres", "redis"]
