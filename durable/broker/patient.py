"""What all brokers of ours can do: patience with classes they do not know, and the messages they carry."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from threading import Event
from typing import Any
from uuid import UUID

import dramatiq
from dramatiq.broker import Broker
from dramatiq.errors import ActorNotFound
from dramatiq.middleware import CurrentMessage

from durable.store.rows import Letter

log = logging.getLogger("durable.broker")

OURS = "durable"
"""The option by which a message of ours is known among those of the application's own actors."""


class Patient(Broker):
    """A broker that puts messages for classes it does not know back for later, as in the middle of a deploy."""

    put_back: Callable[[UUID], None] | None = None

    def get_actor(self, actor_name: str) -> Any:
        """Return the actor, or one that puts its messages back."""
        try:
            return super().get_actor(actor_name)
        except ActorNotFound:
            return _Stranger(actor_name, self)

    def deliver(self, letters: Sequence[Letter]) -> int:
        """Send messages and return how many were sent; those that were sent before only if nobody waits in line."""
        waiting = {queue: self.backlog(queue) for queue in {letter.queue for letter in letters if letter.sends}}
        wanted = [one for one in letters if not one.sends or one.regardless or not waiting[one.queue]]
        for letter in wanted:
            self.declare_queue(letter.queue)
            self.enqueue(message_of(letter))
        return len(wanted)

    def backlog(self, queue: str) -> int:
        """Return how many messages wait in a queue."""
        return 0

    def ring(self) -> None:
        """Wake a relay: something falls due before it would look again."""

    def await_ring(self, seconds: float) -> None:
        """Sleep, until somebody rings."""
        Event().wait(seconds)

    def forgot_everything(self) -> bool:
        """Tell whether the broker has lost its messages since `remember`."""
        return False

    def remember(self) -> None:
        """Leave a mark that is lost when the broker loses its messages."""

    def begin(self, *, threads: int) -> None:
        """Take messages: a worker begins that runs so many at a time, perhaps not the first one of this process."""

    def retire(self) -> None:
        """Take no more messages: the worker ends."""

    def revive(self, broker_id: str | None, queues: Iterable[str]) -> None:
        """Put messages that a dead worker had fetched back into their queues."""


class _Stranger:
    """Stands in for the actor of a class that this process does not have."""

    priority = 0

    def __init__(self, actor_name: str, broker: Patient) -> None:
        self.actor_name = actor_name
        self.options: dict[str, Any] = {"max_retries": 0, "time_limit": float("inf")}
        self._broker = broker

    def __call__(self, execution_id: object = None, *args: object, **kwargs: object) -> None:
        known = read_id(execution_id) if _is_ours(CurrentMessage.get_current_message()) else None
        if known is None or self._broker.put_back is None:
            raise ActorNotFound(self.actor_name)
        log.warning(
            "the workflow class %r is not loaded here: its execution %s is put back for a worker that has it",
            self.actor_name,
            known,
        )
        try:
            self._broker.put_back(known)
        except Exception as error:  # a dead letter, if Dramatiq saw it
            log.warning("execution %s could not be put back; its message will be sent again: %s", known, error)


def _is_ours(message: dramatiq.Message[Any] | None) -> bool:
    return message is not None and OURS in message.options


def read_id(value: object) -> UUID | None:
    """Return the execution's id that a message carries, None if it carries something else."""
    try:
        return UUID(value) if isinstance(value, str) else None
    except ValueError:
        return None


def message_of(letter: Letter) -> dramatiq.Message[Any]:
    """Return what is sent: an execution's id and nothing else, under that id."""
    key = str(letter.execution_id)
    return dramatiq.Message(
        queue_name=letter.queue,
        actor_name=letter.name,
        args=(key,),
        kwargs={},
        options={OURS: 1, "redis_message_id": key},
        message_id=key,
    )
