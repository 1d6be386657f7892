"""The demo: a shop loses a worker and all messages in Redis, and still everything is done once."""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

from actors.demo_flush import clean_redis
from actors.demo_proofs import Proof
from actors.demo_screen import begin_chapter, say, show_failure, show_log, show_verdict
from actors.demo_stage import DemoFailed, a_stage, workers
from actors.demo_story import tell
from durable.errors import DurableError


def main() -> int:
    """Run the demo and return its exit code: 0 if everything it claims holds."""
    logging.getLogger("durable").addHandler(logging.NullHandler())
    say(
        "durable runs workflows: work in steps that must not get lost, such as an order in a shop. This demo opens "
        "a small shop, breaks things on purpose, and counts at the end."
    )
    try:
        play()
    except (DemoFailed, DurableError) as error:
        for log in getattr(error, "logs", ()):
            show_log(log)
        show_failure(str(error))
        return 1
    except SystemExit:
        say("\nStopped before its end. Nothing of it is left.")
        raise
    return 0


def play() -> None:
    """Set everything up, tell the story, show the proofs, and take everything down."""
    arrived = time.monotonic()
    with a_stage() as stage, clean_redis(stage), workers(stage):
        ready = time.monotonic()
        conclude(tell(stage))
        told = time.monotonic()
    say(f"\nSetting up took {ready - arrived:.0f} s, the rest {told - ready:.0f} s. Nothing of it is left.")


def conclude(proofs: Sequence[Proof]) -> None:
    """Show the proofs and say what they mean."""
    for proof in proofs:
        show_verdict(proof.claim, holds=proof.holds)
    if not all(proof.holds for proof in proofs):
        raise DemoFailed("Something was lost or done twice: this is a bug in durable.")
    begin_chapter("What you have seen")
    say(
        "What a step writes, that it is done, and what comes next are one commit. So a step that dies leaves nothing "
        "and runs again, a step that is done never runs again, and every stock movement, charge and parcel is there "
        "exactly once. Only what leaves the database, such as a call to the bank, may happen twice; both calls have "
        "the same key, by which the bank knows.\n"
    )
    say("The workflow is in actors/order_fulfilment.py.")


def stop(number: int, frame: object) -> NoReturn:
    """End in good order: everything that was started is ended, and a second signal does not disturb it."""
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)
    sys.exit(128 + number)


if __name__ == "__main__":
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, stop)
    sys.exit(main())
