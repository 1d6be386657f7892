"""Loops: they go on whatever goes wrong in between, and end when they are told to."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from threading import Event, Thread
from typing import Any

import pytest

from durable.loops import Loop
from tests.waiting import until

PATIENCE = 20.0


class Ticks:
    """Counts the ticks of a loop, some of which go wrong."""

    def __init__(self, *errors: BaseException | None, rest: float = 0.001) -> None:
        self.errors = list(errors)
        self.rest = rest
        self.count = 0
        self.times: list[float] = []
        self.recovered = Event()

    def __call__(self) -> float:
        self.count += 1
        self.times.append(time.monotonic())
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        if not self.errors:
            self.recovered.set()
        return self.rest


@pytest.fixture
def make_loop() -> Iterator[Callable[..., Loop]]:
    """Make loops that end with the test."""
    made: list[Loop] = []

    def make(tick: Callable[[], float], **options: Any) -> Loop:
        made.append(Loop("test", tick, **options))
        return made[-1]

    yield make
    for loop in made:
        loop.stop()


def test_a_loop_whose_tick_raises_goes_on_and_says_so_in_one_line(make_loop, caplog):
    ticks = Ticks(ValueError("first line\nsecond line"), OSError("gone"))

    make_loop(ticks).start()

    assert ticks.recovered.wait(PATIENCE)
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == [
        "the test failed and goes on in 0.25 s: ValueError: first line",
        "the test failed and goes on in 0.5 s: OSError: gone",
    ]


def test_errors_in_a_row_are_waited_out_for_longer_and_longer_until_a_tick_goes_well(make_loop, caplog):
    ticks = Ticks(ValueError(), ValueError(), None, ValueError())

    make_loop(ticks).start()

    assert ticks.recovered.wait(PATIENCE)
    pauses = [record.message.split(" in ")[1].split(" s:")[0] for record in caplog.records]
    assert pauses == ["0.25", "0.5", "0.25"]
    waited = [later - earlier for earlier, later in zip(ticks.times, ticks.times[1:], strict=False)]
    assert waited[0] >= 0.25
    assert waited[1] >= 0.5


def test_no_pause_is_longer_than_a_loop_allows(make_loop, caplog):
    ticks = Ticks(ValueError(), ValueError(), ValueError())

    make_loop(ticks, longest_pause=0.3).start()

    assert ticks.recovered.wait(PATIENCE)
    assert [record.message.split(" in ")[1].split(" s:")[0] for record in caplog.records] == ["0.25", "0.3", "0.3"]


def test_a_loop_whose_rest_raises_goes_on(make_loop):
    ticks = Ticks(rest=1.0)
    rests: list[float] = []

    def rest(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) == 1:
            raise ConnectionError("nobody to wait on")
        Event().wait(0.001)

    make_loop(ticks, rest=rest).start()

    until(lambda: ticks.count >= 3, "it has ticked three times")
    assert rests[:2] == [1.0, 1.0]


def test_a_loop_that_was_told_to_stop_ends_out_of_its_sleep(make_loop):
    ticks = Ticks(rest=3600)
    loop = make_loop(ticks)
    runner = Thread(target=loop.run, daemon=True)
    runner.start()
    until(lambda: ticks.count, "it has ticked")

    loop.tell_to_stop()
    runner.join(PATIENCE)

    assert not runner.is_alive()
    assert ticks.count == 1


def test_a_signal_handler_tells_a_loop_to_stop_though_it_interrupted_that_loop_inside_of_its_event(make_loop):
    loop = make_loop(Ticks(rest=3600))
    handler = Thread(target=loop.tell_to_stop, daemon=True)

    with loop._woken._cond:  # as a thread has it that is about to wait, or about to go on
        handler.start()
        handler.join(1)
        assert not handler.is_alive(), "it would wait for what it has interrupted"


def test_a_loop_that_was_told_to_stop_ends_out_of_the_pause_after_an_error(make_loop):
    ticks = Ticks(*(ValueError() for _ in range(1000)))
    loop = make_loop(ticks)
    loop.start()
    until(lambda: ticks.count, "it has ticked")

    loop.stop(PATIENCE)
    seen = ticks.count
    loop.start()

    assert not loop._thread.is_alive()
    assert ticks.count == seen


def test_a_loop_that_runs_is_not_started_twice(make_loop):
    ticks = Ticks(rest=3600)
    loop = make_loop(ticks)
    loop.start()
    thread = loop._thread
    until(lambda: ticks.count, "it has ticked")

    loop.start()

    assert loop._thread is thread
    assert ticks.count == 1


@pytest.mark.parametrize("error", [SystemExit(), KeyboardInterrupt(), GeneratorExit()])
def test_a_loop_in_a_thread_comes_back_from_what_is_meant_to_end_a_program(make_loop, error):
    ticks = Ticks(error, ValueError())
    loop = make_loop(ticks)

    loop.start()
    thread = loop._thread

    assert ticks.recovered.wait(PATIENCE)
    assert loop._thread is thread
    assert thread.is_alive()


def test_a_loop_in_the_main_thread_ends_with_its_program(make_loop):
    with pytest.raises(KeyboardInterrupt):
        make_loop(Ticks(KeyboardInterrupt())).run()
