"""How many messages a worker takes: what it can begin now, and some more while they are quick."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from threading import Thread

import pytest

from durable.broker.hands import Hands

THREADS = 4
PREFETCH = 8
QUICKLY, SLOWLY = 0.01, 3.0


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hands(clock: Clock) -> Hands:
    """The hands of a worker that has just begun."""
    made = Hands(clock)
    made.begin(THREADS)
    return made


@pytest.fixture
def keys() -> Iterator[str]:
    return map(str, count())


def room(hands: Hands, queue: str = "default") -> int:
    return hands.room(queue, prefetch=PREFETCH)


def work(hands: Hands, clock: Clock, keys: Iterator[str], *, each: float, times: int = 20) -> None:
    """Take messages and be done with them, one after the other."""
    for _ in range(times):
        key = next(keys)
        hands.take("default", key)
        clock.time += each
        hands.release("default", key)


def test_a_worker_takes_no_more_messages_than_it_has_threads_for(hands, keys):
    assert room(hands) == THREADS

    hands.take("default", next(keys))
    hands.take("mail", next(keys))

    assert (room(hands), room(hands, "mail")) == (2, 2)
    hands.take("default", next(keys))
    hands.take("default", next(keys))
    assert (room(hands), room(hands, "mail")) == (0, 0)


def test_while_messages_are_quick_some_may_wait(hands, clock, keys):
    work(hands, clock, keys, each=QUICKLY)

    assert room(hands) == PREFETCH
    hands.take("default", next(keys))
    assert (room(hands), room(hands, "mail")) == (PREFETCH - 1, PREFETCH)


def test_one_slow_message_is_enough_to_let_none_wait_any_more(hands, clock, keys):
    work(hands, clock, keys, each=QUICKLY)

    work(hands, clock, keys, each=SLOWLY, times=1)

    assert room(hands) == THREADS


def test_a_step_of_hours_is_soon_forgotten(hands, clock, keys):
    work(hands, clock, keys, each=5 * 3600, times=1)
    assert room(hands) == THREADS

    work(hands, clock, keys, each=QUICKLY)

    assert room(hands) == PREFETCH


def test_messages_that_wait_for_their_time_take_no_thread(hands, keys):
    for _ in range(100):
        hands.take("default.DQ", next(keys))

    assert room(hands) == THREADS
    assert hands.room("default.DQ", prefetch=1000) == 900


def test_a_message_that_was_never_taken_changes_nothing_when_it_is_released(hands, clock, keys):
    work(hands, clock, keys, each=QUICKLY)
    clock.time += SLOWLY

    hands.release("default", next(keys))

    assert room(hands) == PREFETCH


@pytest.mark.parametrize(("each", "enough"), [(SLOWLY, 1), (QUICKLY, PREFETCH // 2)], ids=["slow", "quick"])
def test_who_waits_for_room_is_woken_when_fetching_is_worthwhile(hands, clock, keys, each, enough):
    work(hands, clock, keys, each=each)
    held = [next(keys) for _ in range(room(hands))]
    for key in held:
        hands.take("default", key)
    waiting = Thread(target=lambda: hands.await_room("default", prefetch=PREFETCH, seconds=60))
    waiting.start()

    for key in held[: enough - 1]:
        hands.release("default", key)
    assert waiting.is_alive()
    clock.time += each
    hands.release("default", held[enough - 1])

    waiting.join(30)
    assert not waiting.is_alive()


def test_a_worker_that_begins_has_nothing_in_its_hands(hands, keys):
    for _ in range(THREADS):
        hands.take("default", next(keys))

    hands.begin(2)

    assert hands.held("default") == []
    assert room(hands) == 2
