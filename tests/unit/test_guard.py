"""The guard: an interrupt ends the body of a step, and never hits anything but a body."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from queue import SimpleQueue
from threading import Event, Thread
from uuid import uuid4

import pytest

from durable.guard import Cause, Guard, Interrupted, Watch

THREADS = 4
BODIES = 1500


@pytest.fixture
def _eager_threads() -> Iterator[None]:
    """Let threads take turns so often that an interrupt comes at every possible moment."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def body(turns: int) -> None:
    for _ in range(turns):
        pass


class Duel:
    """One body, and one interrupt that aims at its end: each goes on for a moment after the other is there."""

    def __init__(self) -> None:
        self.watch = Watch(uuid4())
        self.aimed = False
        self.sent = False

    def run(self) -> str:
        """Run the body and what follows it, which must never be interrupted, and tell how it ended."""
        try:
            ended = self.run_body()
            while not self.sent:
                pass
            body(300)
        except Interrupted:
            return "stray"
        return ended

    def run_body(self) -> str:
        try:
            self.watch.run(self.body)
        except Interrupted:
            return "interrupted"
        return "returned"

    def body(self) -> None:
        while not self.aimed:
            pass
        body(random.randrange(2500))

    def interrupt(self) -> None:
        self.aimed = True
        body(random.randrange(5000))
        self.watch.interrupt(Cause.CANCEL)
        self.sent = True


def work(duels: SimpleQueue[Duel | None], seen: Counter[str]) -> None:
    """Run bodies as a worker's thread does, and count what became of them."""
    for _ in range(BODIES):
        duel = Duel()
        duels.put(duel)
        seen[duel.run()] += 1
    duels.put(None)
    seen["survived"] += 1


def interrupt_all(duels: SimpleQueue[Duel | None]) -> None:
    while (duel := duels.get()) is not None:
        duel.interrupt()


@pytest.mark.usefixtures("_eager_threads")
def test_of_thousands_of_interrupts_none_lands_behind_the_body_and_every_thread_survives():
    counts = [Counter[str]() for _ in range(THREADS)]
    queues: list[SimpleQueue[Duel | None]] = [SimpleQueue() for _ in range(THREADS)]
    threads = [Thread(target=work, args=pair, daemon=True) for pair in zip(queues, counts, strict=True)]
    threads += [Thread(target=interrupt_all, args=(duels,), daemon=True) for duels in queues]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    total = sum(counts, Counter[str]())
    assert total["stray"] == 0
    assert total["survived"] == THREADS
    assert total["interrupted"] + total["returned"] == THREADS * BODIES
    # Both sides of the race were taken: interrupts that ended a body, and interrupts that came too late for it.
    assert min(total["interrupted"], total["returned"]) > 20


def test_an_interrupt_passes_except_exception_and_the_reason_is_kept():
    watch = Watch(uuid4())

    def stubborn() -> None:
        try:
            watch.interrupt(Cause.CANCEL, "no longer wanted")
            body(10_000)
        except Exception:
            pytest.fail("an interrupt is not an Exception")

    with pytest.raises(Interrupted):
        watch.run(stubborn)
    assert (watch.cause, watch.reason) == (Cause.CANCEL, "no longer wanted")


def test_of_several_causes_the_first_counts_and_one_interrupt_is_sent():
    watch = Watch(uuid4())
    caught: list[Cause | None] = []

    def catching() -> None:
        for cause in (Cause.TIMEOUT, Cause.SHUTDOWN):
            try:
                watch.interrupt(cause)
                body(10_000)
            except Interrupted:
                caught.append(watch.cause)

    watch.run(catching)

    assert caught == [Cause.TIMEOUT]
    assert watch.cause is Cause.TIMEOUT


def test_a_body_whose_interrupt_came_before_it_began_is_not_begun():
    watch = Watch(uuid4())
    watch.interrupt(Cause.SHUTDOWN)

    with pytest.raises(Interrupted):
        watch.run(lambda: pytest.fail("the body was begun"))


def test_an_interrupt_after_the_body_is_noted_and_raised_nowhere():
    watch = Watch(uuid4())
    assert watch.run(lambda: "done") == "done"

    watch.interrupt(Cause.TIMEOUT)
    body(10_000)

    assert watch.cause is Cause.TIMEOUT


def test_an_interrupt_that_comes_during_a_call_of_c_is_raised_when_the_call_returns():
    watch = Watch(uuid4())
    began = Event()

    def sleep() -> None:
        began.set()
        time.sleep(0.2)
        body(10_000)

    sender = Thread(target=lambda: began.wait(10) and watch.interrupt(Cause.SHUTDOWN))
    sender.start()
    with pytest.raises(Interrupted):
        watch.run(sleep)
    sender.join()


def test_what_the_body_raises_comes_out_and_a_second_run_can_be_interrupted_as_well():
    watch = Watch(uuid4())

    def fail() -> None:
        raise ValueError("no")

    def handle() -> None:
        watch.interrupt(Cause.CANCEL)
        body(10_000)

    with pytest.raises(ValueError, match="no"):
        watch.run(fail)
    with pytest.raises(Interrupted):
        watch.run(handle)


def test_the_guard_knows_a_claim_for_as_long_as_it_is_held():
    guard = Guard()
    token = uuid4()

    with guard.holding(token) as watch:
        assert guard.held == [watch]
    assert guard.held == []


def test_a_claim_that_ended_in_an_error_is_held_no_more():
    guard = Guard()

    with pytest.raises(ValueError), guard.holding(uuid4()):
        raise ValueError
    assert guard.held == []
