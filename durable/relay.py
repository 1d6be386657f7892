"""The relay: sends messages that are due, and again those that the broker lost."""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial

from durable.broker import Patient, required_broker
from durable.courier import RING_WITHIN
from durable.failpoints import failpoint
from durable.loops import Loop
from durable.runtime import Runtime, driver_connection
from durable.store import outbox

log = logging.getLogger("durable.relay")

BATCH = 500
AGAIN = timedelta(seconds=30)
"""When a message that was sent and not taken is looked at again; then after twice that, and so on."""
LOOK = 1.0
"""Seconds after which the relay looks whether the broker still has its messages."""
HELD = 0.05
"""Seconds after which the relay looks again where what is due is held by somebody's open transaction."""


def send_due(runtime: Runtime, broker: Patient, *, limit: int = BATCH) -> int:
    """Send one batch of due messages and return its size.

    A crash between send and commit sends it twice, never not at all.
    """
    with runtime.engine.begin() as conn:
        stuck = runtime.settings.stuck_scheduled_after
        letters = outbox.take_due(driver_connection(conn), runtime.clock, limit=limit, again=AGAIN, stuck=stuck)
        if letters:
            broker.deliver(letters)
            failpoint("relay.before_commit")
    return len(letters)


def drain(runtime: Runtime) -> int:
    """Send everything that is due, and return how much it was."""
    broker = required_broker(runtime.broker)
    _look_after(runtime, broker)
    sent = total = send_due(runtime, broker)
    while sent == BATCH:
        sent = send_due(runtime, broker)
        total += sent
    return total


def look(runtime: Runtime, broker: Patient) -> float:
    """Send a batch of what is due, and return for how many seconds there is nothing to do."""
    _look_after(runtime, broker)
    sent = send_due(runtime, broker)
    if sent == BATCH:
        return 0.0
    with runtime.hot() as conn:
        due_in = outbox.next_due_in(conn, runtime.clock)
    seconds = (RING_WITHIN if due_in is None else due_in).total_seconds()
    return HELD if seconds <= 0 and not sent else min(LOOK, seconds)


def relay_loop(runtime: Runtime) -> Loop:
    """Return the loop that sends what is due: it sleeps until the next message is due, or somebody rings."""
    broker = required_broker(runtime.broker)
    return Loop("relay", partial(look, runtime, broker), rest=broker.await_ring)


def _look_after(runtime: Runtime, broker: Patient) -> None:
    """Have everything sent again if the broker has lost its memory."""
    if not broker.forgot_everything():
        return
    with runtime.engine.begin() as conn:
        again = outbox.rearm_sent(conn, runtime.clock)
    broker.remember()
    if again:
        log.warning("the broker has lost its messages: %s are sent again", again)
