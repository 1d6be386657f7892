"""Redis, or Valkey: wakes its consumers instead of being asked by them, and takes no message twice.

The id of an execution is also its message's key in Redis, so a message that is still there cannot be put there twice,
however often it is sent.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import groupby
from threading import Event

import redis
from dramatiq.brokers.redis import RedisBroker
from dramatiq.common import dq_name
from redis.backoff import NoBackoff
from redis.retry import Retry

from durable.broker.consumer import BlockingConsumer
from durable.broker.hands import Hands
from durable.broker.patient import Patient, message_of
from durable.store.rows import Letter

log = logging.getLogger("durable.broker")

_LATE = 0.1

_DELIVER = """
local list = KEYS[1]
local messages = list .. ".msgs"
local empty = redis.call("llen", list) == 0
local pushed = 0
for i = 1, #ARGV, 3 do
    local id, urgency, data = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    local new = redis.call("hsetnx", messages, id, data) == 1
    local some_hang = urgency == "regardless" and redis.call("llen", list) < redis.call("hlen", messages)
    if new or some_hang or (urgency == "again" and empty) then
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

_RETURN = """
local acks, list = KEYS[1], KEYS[2]
local held, ids = {}, {}
for _, id in ipairs(ARGV) do
    held[id] = true
end
for _, id in ipairs(redis.call("smembers", acks)) do
    if not held[id] then
        table.insert(ids, id)
    end
end
table.sort(ids, function(a, b) return a > b end)
local returned = 0
for _, id in ipairs(ids) do
    redis.call("srem", acks, id)
    if redis.call("hexists", list .. ".msgs", id) == 1 then
        redis.call("lpush", list, id)
        returned = returned + 1
    end
end
return returned
"""
"""Ids sort by age: what was fetched goes back to the head, the oldest first."""


class BlockingRedisBroker(Patient, RedisBroker):
    """Dramatiq's Redis broker with a consumer that waits for messages in Redis instead of asking again and again."""

    def __init__(self, url: str, *, namespace: str) -> None:
        super().__init__(client=_connect(url), namespace=namespace)
        self.retired = False
        self.hands = Hands()
        self._deliver = self.client.register_script(_DELIVER)
        self._discard = self.client.register_script(_DISCARD)
        self._return = self.client.register_script(_RETURN)
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

    def begin(self, *, threads: int) -> None:
        """Fetch messages from now on."""
        self.retired = False
        self.hands.begin(threads)

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
                self._return_fetched(broker_id, name, but=())

    def return_lost(self, queue: str) -> None:
        """Put messages back that Redis believes to be in this process's hands, and that are not.

        The connection broke before Redis's answer came; Dramatiq leaves them where they are while the process lives.
        """
        returned = self._return_fetched(self.broker_id, queue, but=self.hands.held(queue))
        if returned:
            log.warning("%s messages that were fetched from queue %s never arrived: they are put back", returned, queue)

    def _return_fetched(self, broker_id: str, queue: str, *, but: Iterable[str]) -> int:
        return int(self._return(keys=[self._acks(broker_id, queue), f"{self.namespace}:{queue}"], args=list(but)))

    def _acks(self, broker_id: str, queue: str) -> str:
        return f"{self.namespace}:__acks__.{broker_id}.{queue}"


def _connect(url: str) -> redis.Redis:
    return redis.Redis.from_url(
        url, socket_connect_timeout=2, socket_timeout=5, socket_keepalive=True, retry=Retry(NoBackoff(), 1)
    )


def _queue(letter: Letter) -> str:
    return letter.queue


def _entry(letter: Letter) -> tuple[str, str, bytes]:
    urgency = "regardless" if letter.regardless else "again" if letter.sends > 1 else "once"
    return str(letter.execution_id), urgency, message_of(letter).encode()
