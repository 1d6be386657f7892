"""The demo's story: what happens in the shop, chapter by chapter, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy.orm import Session

from actors.demo_crash import Crash, catch_a_worker, kill_a_worker, repetitions
from actors.demo_flush import Flush, lose_messages, waiting_messages
from actors.demo_orders import FIRST, IN_ADVANCE, SECOND, SHELF, fill_shop, progress, take_orders
from actors.demo_proofs import Proof, prove_all, prove_messages, prove_nothing_left, prove_recovery
from actors.demo_screen import Board, a_board, begin_chapter, say, show_table
from actors.demo_stage import Stage

ENOUGH_ORDERS = 8
"""So many orders have their goods before a worker is killed."""
ENOUGH_MESSAGES = 5
"""So many messages at least wait in Redis when it loses them."""
_LAST_START = "SELECT extract(epoch FROM max(started_at) - :at)::float FROM durable.executions WHERE id = ANY(:lost)"


def tell(stage: Stage) -> list[Proof]:
    """Tell it, and return what it proves."""
    open_shop(stage)
    with a_board(lambda: progress(stage)) as board:
        story = Story(stage, board)
        crash = story.lose_a_worker()
        flush = story.lose_messages()
        story.see_the_recovery(crash)
        story.see_the_end(flush)
    begin_chapter("5. The proof, counted from the rows of the database")
    with Session(stage.engine) as session:
        return [
            *prove_all(session, shelf=SHELF),
            prove_nothing_left(crash.left_behind),
            prove_recovery(session, [one.execution_id for one in crash.lost]),
            prove_messages(session, flush.lost),
        ]


def open_shop(stage: Stage) -> None:
    """Say what there is, and take the first orders."""
    begin_chapter("1. The shop")
    one, other = stage.names.values()
    say(
        "Postgres has the shop's tables and, beside them, where each workflow stands. Redis carries messages that "
        f"tell workers what to do next. The steps are run by {one} and {other}.\n"
    )
    say(
        f"{len(FIRST)} orders come in, each with its workflow in the same transaction. The steps of an order are "
        f"reserve_stock, charge_card, ship and tell_customer. {len(IN_ADVANCE)} of the orders are paid in advance, "
        "so a fraud review and a payment, workflows too, come before.\n"
    )
    say(
        "Shortened: the hour in which an order can be called off and the hour that the bank takes last a second "
        "here. Made up: the warehouse, the bank and the carrier, which answer after 0.1 to 0.3 seconds."
    )
    fill_shop(stage.engine)
    take_orders(stage.engine, FIRST)


class Story:
    """What goes wrong, and what comes of it."""

    def __init__(self, stage: Stage, board: Board) -> None:
        self.stage = stage
        self.board = board

    def lose_a_worker(self) -> Crash:
        """Kill a worker in the middle of a step."""
        begin_chapter("2. A worker is killed in the middle of a step")
        self.until(lambda: progress(self.stage)["reserved"].done >= ENOUGH_ORDERS, "the first orders had their goods")
        victim = self.until(lambda: catch_a_worker(self.stage), "a worker was seen in the middle of reserve_stock")
        crash = kill_a_worker(self.stage, victim)
        say(f"{self.stage.name_of(crash.worker).capitalize()} is killed with SIGKILL, in the middle of:")
        show_table(("order", "step"), [(one.order_id, one.step) for one in crash.lost])
        say(
            f"{crash.wrote} of these steps had already taken goods off the shelf, not committed yet. Postgres has "
            f"undone that: of the orders that were being reserved it has {crash.left_behind} stock movements."
        )
        return crash

    def lose_messages(self) -> Flush:
        """Have Redis forget everything while messages wait in it."""
        begin_chapter("3. Redis loses all messages")
        take_orders(self.stage.engine, SECOND)
        self.until(lambda: waiting_messages(self.stage) >= ENOUGH_MESSAGES, "messages waited in Redis")
        flush = lose_messages(self.stage)
        say(f"{len(SECOND)} more orders come in. {_how(self.stage)}, while {len(flush.lost)} messages wait in it.")
        say(
            "That costs time, and nothing else: until a worker begins a step, its message also stands in a table of "
            "Postgres, and is sent again from there."
        )
        return flush

    def see_the_recovery(self, crash: Crash) -> None:
        """Wait until what the dead worker held runs again, and say when and where."""
        begin_chapter("4. The recovery")
        again = self.until(lambda: _all_again(self.stage, crash), "the steps of the dead worker ran again")
        say("The worker that is left has found its colleague dead, and has begun the same steps again:")
        show_table(("order", "step", "after the kill", "by"), again)

    def see_the_end(self, flush: Flush) -> None:
        """Wait until every order has come to its end."""
        self.until(lambda: _is_complete(self.stage), "every order had come to its end")
        seconds = self.stage.ask(_LAST_START, at=flush.at, lost=list(flush.lost))
        say(
            f"The steps whose messages were lost have begun too, the last one {seconds:.1f} s after the loss. "
            "All orders have come to their end."
        )

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait until something can be seen; the board shows how far the orders are meanwhile."""
        return self.stage.until(condition, what, self.board.tick)


def _how(stage: Stage) -> str:
    if stage.owns_redis:
        return "Redis is emptied with FLUSHALL"
    return "The Redis of DURABLE_REDIS_URL is not the demo's, so it is not flushed: only the demo's keys are deleted"


def _all_again(stage: Stage, crash: Crash) -> list[tuple[object, ...]]:
    again = repetitions(stage, crash)
    rows: list[tuple[object, ...]] = [
        (one.order_id, one.step, f"{seconds:.1f} s", where) for one, seconds, where in again
    ]
    return rows if len(rows) == len(crash.lost) else []


def _is_complete(stage: Stage) -> bool:
    done = progress(stage)["done"]
    return done.done == done.of
