"""The consumer of Redis: sleeps in Redis while there is nothing to fetch, and here while its hands are full."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Event
from typing import Any

import dramatiq
import redis
from dramatiq.broker import MessageProxy
from dramatiq.brokers.redis import _RedisConsumer
from dramatiq.errors import ConnectionClosed

from durable.broker.hands import Hands, is_delayed
from durable.broker.patient import OURS

log = logging.getLogger("durable.broker")

BLOCK = 1.0
"""Seconds for which an idle consumer waits for a message before it looks whether it should stop."""
_FETCH_AFTER = 10
"""Waits in vain after which it fetches all the same, which Dramatiq takes for a sign of life."""
_LOOK_AFTER = 5.0
"""Seconds after which a consumer looks whether it holds everything that Redis believes it has fetched."""
_PAUSE = 0.1
"""Seconds between the signs of life of a consumer that fetches nothing more."""


class BlockingConsumer(_RedisConsumer):
    """Takes messages out of one queue; sleeps in Redis while there are none, and here while its hands are full."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._hands: Hands = self.broker.hands
        self._quiet = 0
        self._list = f"{self.broker.namespace}:{self.queue_name}"
        self._look_at = time.monotonic() + _LOOK_AFTER
        self._holds_delayed = is_delayed(self.queue_name)
        if self._holds_delayed:
            self._hands.forget(self.queue_name)  # Dramatiq does, when it makes another consumer

    def __next__(self) -> MessageProxy | None:
        try:
            while not self.message_cache:
                if not self._refill():
                    return None
        except redis.RedisError as error:
            raise ConnectionClosed(error) from None
        message: MessageProxy = self.message_cache.pop(0)
        return message

    def ack(self, message: MessageProxy) -> None:
        """Tell Redis that a message is done with; no step waits for a Redis that is down, or full."""
        self._conclude(super().ack, message)

    def nack(self, message: MessageProxy) -> None:
        """Tell Redis that a message is refused."""
        self._conclude(super().nack, message)

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        """Put messages back that were fetched and not begun."""
        given = list(messages)
        super().requeue(given)
        self._release(given)

    def close(self) -> None:
        """End; what was fetched and not passed on is in nobody's hands."""
        self._release(self.message_cache)
        super().close()

    def _conclude(self, tell: Callable[[MessageProxy], None], message: MessageProxy) -> None:
        try:
            tell(message)
        except (ConnectionClosed, redis.RedisError) as error:
            # Its execution's row, not Redis, says whether a message of ours still means anything.
            if OURS not in message.options:
                raise ConnectionClosed(error) from None
            log.debug("message %s stays unacknowledged: %s", message.message_id, error)
        finally:
            self._release([message])

    def _release(self, messages: Iterable[MessageProxy]) -> None:
        for message in messages:
            self._hands.release(self.queue_name, _key(message))

    def _refill(self) -> bool:
        """Fetch messages; if there is no room or nothing to fetch, wait for either and tell so."""
        if self.broker.retired:
            self._outlast()
            return False
        self._look_for_lost()
        if self._room <= 0:
            self._hands.await_room(self.queue_name, prefetch=self.prefetch, seconds=BLOCK)
            return False
        if 0 < self._quiet < _FETCH_AFTER:  # nothing has come since the last look
            self._await_message()
            return False
        fetched = self._fetch()
        self._quiet = 0
        if not fetched:
            self._await_message()
        return fetched

    @property
    def _room(self) -> int:
        return self._hands.room(self.queue_name, prefetch=self.prefetch)

    def _fetch(self) -> bool:
        """Fetch as many messages as there is room for, and tell whether there were any."""
        with self._hands.fetching:
            found = self.broker.do_fetch(self.queue_name, max(0, self._room))
            for data in found:
                message = self._read(data)
                if message is not None:
                    self.message_cache.append(message)
        return bool(found)

    def _look_for_lost(self) -> None:
        """See from time to time that nothing is missing; everything that was fetched has been read by now."""
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _LOOK_AFTER
            self.broker.return_lost(self.queue_name)

    def _outlast(self) -> None:
        """Fetch nothing, and let Dramatiq know that what was fetched is not forsaken."""
        with suppress(redis.RedisError):
            self.broker.do_fetch(self.queue_name, 0)
        Event().wait(_PAUSE)

    def _await_message(self) -> None:
        """Sleep until the queue has a message, which is moved from its head to its head: it stays where it is."""
        if self._holds_delayed and self._hands.held(self.queue_name):
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
        self._hands.take(self.queue_name, _key(message))
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


def _key(message: dramatiq.Message[Any] | MessageProxy) -> str:
    """Return under which key Redis has a message."""
    return str(message.options["redis_message_id"])
