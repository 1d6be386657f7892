"""Who runs beside whom: many together, a suspect alone, and nobody waits for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from threading import Event

import pytest

from durable.isolation import Isolation

SOON = 10.0


class Runner:
    """Somebody in a thread who has entered, or waits to."""

    def __init__(self, threads: ThreadPoolExecutor, way_in: Callable[[], AbstractContextManager[None]]) -> None:
        self.inside, self._leave = Event(), Event()
        self._done = threads.submit(self._run, way_in)

    def _run(self, way_in: Callable[[], AbstractContextManager[None]]) -> None:
        with way_in():
            self.inside.set()
            assert self._leave.wait(SOON)

    def leave(self) -> None:
        self._leave.set()
        self._done.result(SOON)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def test_others_run_beside_each_other(threads):
    isolation = Isolation()
    several = [Runner(threads, isolation.beside_others) for _ in range(3)]

    assert all(one.inside.wait(SOON) for one in several)

    for one in several:
        one.leave()


def test_a_suspect_waits_for_those_who_run_and_then_nobody_begins_beside_it(threads):
    isolation = Isolation()
    first = Runner(threads, isolation.beside_others)
    assert first.inside.wait(SOON)

    suspect = Runner(threads, isolation.alone)
    assert not suspect.inside.wait(0.1)
    late = Runner(threads, isolation.beside_others)
    assert not late.inside.wait(0.1), "it would keep the suspect waiting"
    first.leave()
    assert suspect.inside.wait(SOON)
    assert not late.inside.wait(0.1)

    suspect.leave()
    assert late.inside.wait(SOON)
    late.leave()


def test_of_several_suspects_each_is_alone(threads):
    isolation = Isolation()
    suspects = [Runner(threads, isolation.alone) for _ in range(3)]

    for _ in range(3):
        inside = [one for one in suspects if one.inside.wait(0.2)]
        assert len(inside) == 1
        inside[0].leave()
        suspects.remove(inside[0])

    after = Runner(threads, isolation.beside_others)
    assert after.inside.wait(SOON)
    after.leave()


def test_nobody_waits_longer_than_the_patience_lasts(threads):
    isolation = Isolation(patience=0.1)
    first = Runner(threads, isolation.beside_others)
    assert first.inside.wait(SOON)
    suspects = [Runner(threads, isolation.alone) for _ in range(2)]

    assert all(suspect.inside.wait(SOON) for suspect in suspects)
    late = Runner(threads, isolation.beside_others)
    assert late.inside.wait(SOON)

    for one in (*suspects, first, late):
        one.leave()
    next_suspect = Runner(threads, isolation.alone)
    assert next_suspect.inside.wait(SOON)
    next_suspect.leave()


def test_who_raises_has_left(threads):
    isolation = Isolation()
    for way_in in (isolation.beside_others, isolation.alone):
        with pytest.raises(ValueError), way_in():
            raise ValueError

    after = Runner(threads, isolation.alone)
    assert after.inside.wait(SOON)
    after.leave()


@pytest.mark.parametrize("way_in", [Isolation.beside_others, Isolation.alone])
def test_it_is_busy_as_long_as_somebody_is_inside(way_in):
    isolation = Isolation()
    assert not isolation.busy

    with way_in(isolation):
        assert isolation.busy

    assert not isolation.busy
