"""Redis, or Valkey: wakes its consumers instead of being asked by them, and takes no message twice.

The id of an execution is also its message's key in Redis, so a message that is still there cannot be put there twice,
however often it is sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from threading import Condition, Event
from typing import Any

import dramatiq
import redis
from dramatiq.broker import MessageProxy
from dramatiq.brokers.redis import RedisBroker, _RedisConsumer
from dramatiq.common import dq_name
from dramatiq.errors import ConnectionClosed
from redis.backoff import NoBackoff
from redis.retry import Retry

from durable.broker.patient import OURS, Patient, message_of
from durable.store.rows import Letter

log = logging.getLogger("durable.broker")

BLOCK = 1.0
"""Seconds for which an idle consumer waits for a message before it looks whether it should stop."""
_LATE = 0.1
_FETCH_AFTER = 10
"""Waits in vain after which it fetches all the same, which Dramatiq takes for a sign of life."""

_DELIVER = """
local list = KEYS[1]
local messages = list .. ".msgs"
local empty = redis.call("llen", list) == 0
local pushed = 0
for i = 1, #ARGV, 3 do
    local id, urgency, data = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    local new = redis.call("hsetnx", messages, id, data) == 1
    if new or urgency == "regardless" or (urgency == "again" and empty) then
        redis.call("rpush", list, id)
        pushed = pushed + 1
    end
end
return pushed
"""

_DISCARD = """
local acks, messages, data = KEYS[1], KEYS[2], ARGV[1]
for _, id in ipairs(redis.call("smembers", acks)) do
    if redis.call("hget", messages, id) == data then
        redis.call("srem", acks, id)
        redis.call("hdel", messages, id)
    end
end
"""

_REVIVE = """
local acks, list = KEYS[1], KEYS[2]
local ids = redis.call("smembers", acks)
table.sort(ids, function(a, b) return a > b end)
for _, id in ipairs(ids) do
    if redis.call("hexists", list .. ".msgs", id) == 1 then
        redis.call("lpush", list, id)
    end
end
redis.call("del", acks)
"""
"""Ids sort by age: what was fetched goes back to the head, the oldest first."""


class BlockingRedisBroker(Patient, RedisBroker):
    """Dramatiq's Redis broker with a consumer that waits for messages in Redis instead of asking again and again."""

    def __init__(self, url: str, *, namespace: str) -> None:
        super().__init__(client=_connect(url), namespace=namespace)
        self.retired = False
        self._deliver = self.client.register_script(_DELIVER)
        self._discard = self.client.register_script(_DISCARD)
        self._revive = self.client.register_script(_REVIVE)
        self._bell = f"{namespace}:durable.bell"
        self._mark = f"{namespace}:durable.mark"

    @property
    def consumer_class(self) -> type[BlockingConsumer]:
        """What takes messages out of a queue."""
        return BlockingConsumer

    def deliver(self, letters: Sequence[Letter]) -> int:
        """Put messages into their queues, unless they are still there, in one call per queue."""
        pushed = 0
        for queue, several in groupby(sorted(letters, key=_queue), key=_queue):
            values = [value for letter in several for value in _entry(letter)]
            pushed += int(self._deliver(keys=[f"{self.namespace}:{queue}"], args=values))
        return pushed

    def backlog(self, queue: str) -> int:
        """Return how many messages wait in a queue."""
        return int(self.client.llen(f"{self.namespace}:{queue}"))

    def ring(self) -> None:
        """Wake one relay."""
        with self.client.pipeline(transaction=False) as pipe:
            pipe.lpush(self._bell, "")
            pipe.ltrim(self._bell, 0, 0)
            pipe.execute()

    def await_ring(self, seconds: float) -> None:
        """Sleep, until somebody rings; the last moment is slept here, as Redis is a tenth of a second late."""
        if seconds > 2 * _LATE:
            self.client.blpop([self._bell], timeout=seconds - _LATE)
        else:
            Event().wait(seconds)

    def forgot_everything(self) -> bool:
        """Tell whether Redis was flushed, restarted or replaced since `remember`."""
        return not self.client.exists(self._mark)

    def remember(self) -> None:
        """Leave a mark that goes with the messages."""
        self.client.set(self._mark, "1")

    def begin(self) -> None:
        """Fetch messages from now on."""
        self.retired = False

    def retire(self) -> None:
        """Fetch nothing more."""
        self.retired = True

    def discard(self, queue: str, data: bytes) -> None:
        """Remove a message that was fetched, known by nothing but its content."""
        self._discard(keys=[self._acks(self.broker_id, queue), f"{self.namespace}:{queue}.msgs"], args=[data])

    def revive(self, broker_id: str | None, queues: Iterable[str]) -> None:
        """Put what a worker had fetched, and is not done with, back at the head of its queues.

        Dramatiq's own maintenance comes by chance, and never to a worker that gave a sign of life within a minute.
        """
        if broker_id is None:
            return
        for queue in queues:
            for name in (queue, dq_name(queue)):
                self._revive(keys=[self._acks(broker_id, name), f"{self.namespace}:{name}"])

    def _acks(self, broker_id: str, queue: str) -> str:
        return f"{self.namespace}:__acks__.{broker_id}.{queue}"


class BlockingConsumer(_RedisConsumer):
    """Takes messages out of one queue; sleeps in Redis while there are none, on its own acks while it has enough."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._room = Condition()
        self._quiet = 0
        self._list = f"{self.broker.namespace}:{self.queue_name}"

    def __next__(self) -> MessageProxy | None:
        try:
            while True:
                while self.message_cache:
                    message = self._read(self.message_cache.pop(0))
                    if message is not None:
                        return message
                if not self._refill():
                    return None
        except redis.RedisError as error:
            raise ConnectionClosed(error) from None

    def ack(self, message: MessageProxy) -> None:
        """Tell Redis that a message is done with; no step waits for a Redis that is down, or full."""
        self._conclude(super().ack, message)

    def nack(self, message: MessageProxy) -> None:
        """Tell Redis that a message is refused."""
        self._conclude(super().nack, message)

    def _conclude(self, tell: Callable[[MessageProxy], None], message: MessageProxy) -> None:
        try:
            tell(message)
        except (ConnectionClosed, redis.RedisError) as error:
            # Its execution's row, not Redis, says whether a message of ours still means anything.
            if OURS not in message.options:
                raise ConnectionClosed(error) from None
            log.debug("message %s stays unacknowledged: %s", message.message_id, error)
        finally:
            with self._room:
                self._room.notify()

    def _refill(self) -> bool:
        """Fetch messages; if there is no room or nothing to fetch, wait for either and tell so."""
        if self.broker.retired:
            self._outlast()
            return False
        room = self.prefetch - self.outstanding_message_count
        if room <= 0:
            self._await_room()
            return False
        if 0 < self._quiet < _FETCH_AFTER:  # nothing has come since the last look
            self._await_message()
            return False
        self.message_cache = self.broker.do_fetch(self.queue_name, room)
        self._quiet = 0
        if not self.message_cache:
            self._await_message()
        return bool(self.message_cache)

    def _outlast(self) -> None:
        """Fetch nothing, and let Dramatiq know that what was fetched is not forsaken."""
        with suppress(redis.RedisError):
            self.broker.do_fetch(self.queue_name, 0)
        Event().wait(_LATE)

    def _await_room(self) -> None:
        with self._room:
            self._room.wait_for(lambda: self.outstanding_message_count <= self.prefetch // 2, timeout=BLOCK)

    def _await_message(self) -> None:
        """Sleep until the queue has a message, which is moved from its head to its head: it stays where it is."""
        if self.queued_message_ids and self.queue_name.endswith(".DQ"):
            Event().wait(min(BLOCK, self.timeout / 1000))  # it holds delayed messages, whose time may come
            return
        came = self.broker.client.blmove(self._list, self._list, BLOCK, "LEFT", "LEFT")
        self._quiet = 0 if came else self._quiet + 1

    def _read(self, data: bytes | None) -> MessageProxy | None:
        if data is None:  # it was delivered twice, and the other one is done with
            return None
        message = _decode(data)
        if message is None or not _is_whole(message, self.queue_name):
            log.error("a message in queue %s cannot be read and is dropped: %.200r", self.queue_name, data)
            self.broker.discard(self.queue_name, data)
            return None
        self.queued_message_ids.add(message.message_id)
        return MessageProxy(message)


def _decode(data: bytes) -> dramatiq.Message[Any] | None:
    try:
        return dramatiq.Message.decode(data)
    except Exception as error:  # whatever a decoder makes of bytes that anybody may have written
        log.debug("not a message: %s", error)
        return None


def _is_whole(message: dramatiq.Message[Any], queue: str) -> bool:
    """Tell whether a message has everything that Dramatiq's threads rely on; one that has not would end them."""
    return (
        message.queue_name == queue
        and isinstance(message.message_id, str)
        and isinstance(message.actor_name, str)
        and isinstance(message.args, (list, tuple))
        and isinstance(message.kwargs, dict)
        and isinstance(message.message_timestamp, (int, float))
        and isinstance(message.options, dict)
        and isinstance(message.options.get("redis_message_id"), str)
    )


def _connect(url: str) -> redis.Redis:
    return redis.Redis.from_url(
        url, socket_connect_timeout=2, socket_timeout=5, socket_keepalive=True, retry=Retry(NoBackoff(), 1)
    )


def _queue(letter: Letter) -> str:
    return letter.queue


def _entry(letter: Letter) -> tuple[str, str, bytes]:
    urgency = "regardless" if letter.regardless else "again" if letter.sends > 1 else "once"
    return str(letter.execution_id), urgency, message_of(letter).encode()
