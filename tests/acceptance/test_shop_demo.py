"""The demo proves what it claims, says so when it does not hold, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
import redis
from sqlalchemy import create_engine, delete, make_url, text

from actors import demo, demo_stage
from actors import shop as web_shop
from actors.demo_orders import basket, fill_shop, take_orders
from actors.demo_proofs import Proof, prove_all, prove_messages, prove_nothing_left, prove_recovery
from actors.demo_stage import DemoFailed
from actors.models import Charge, Order, OrderLine, Parcel, Product, StockMovement, User
from actors.order_fulfilment import OrderFulfilment
from actors.status_polling import StatusPolling
from durable import dev
from durable.reaper import recover_lost_claims
from durable.testing import perform_next_step, speedrun, travel
from tests.scenes import claim
from tests.waiting import PATIENCE, until

ROOT = Path(__file__).parents[2]


def start_demo(folder, **variables):
    """Start the demo as a command whose temporary files are in a folder."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("DURABLE_")}
    return subprocess.Popen(
        [sys.executable, "-m", "actors.demo"],
        cwd=ROOT,
        env=own | {"TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_of(folder):
    """Return the processes that were started with this folder for their temporary files."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={folder}\0".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found


def assert_nothing_is_left(folder):
    until(lambda: processes_of(folder) == [], "every process of it is gone")
    assert list(folder.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(2 * PATIENCE)
def test_the_demo_survives_a_killed_worker_and_a_flushed_redis(tmp_path):
    with start_demo(tmp_path) as running:
        told, errors = running.communicate(timeout=PATIENCE)

    assert (running.returncode, errors) == (0, ""), told
    assert max(map(len, told.splitlines())) <= 80
    words = " ".join(told.split())
    for sentence in (
        r"Worker \d \(process \d+\) is killed with SIGKILL, in the middle of: order step (\d+ \w+ )*\d+ reserve_stock",
        r"[1-4] of these steps had already taken goods off the shelf, not committed yet",
        r"of the orders that were being reserved it has 0 stock movements",
        r"Redis is emptied with FLUSHALL, while \d+ messages wait in it",
        r"order step after the kill by (\d+ \w+ \d+\.\d s worker \d \(process \d+\) )+",
        r"the last one \d+\.\d s after the loss",
        r"holds 48 orders: 44 are shipped, 4 ended as the bank declined the card",
        r"holds 104 stock movements: every line of every order left the shelf once, and came back once",
        r"holds 44 charges of [\d.]+ in all: one per shipped order",
        r"holds 44 parcels: one per shipped order",
        r"holds 800 pieces were on the shelf, \d+ are sold, \d+ are left",
        r"holds \d+ steps of workflows were completed, each of them once",
        r"holds 44 workflows sleep, one per parcel",
        r"holds [1-4] steps died with their worker: each ran again",
        r"holds \d+ messages were lost with Redis: the steps that they were about have all run",
        r"exactly once",
    ):
        assert re.search(sentence, words), sentence
    assert "FAILS" not in told
    assert_nothing_is_left(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(2 * PATIENCE)
def test_on_servers_of_others_the_demo_flushes_nothing_and_leaves_nothing_even_when_it_is_stopped(
    tmp_path, durable_server
):
    with dev.redis(durable=False) as server, redis.Redis.from_url(server.url) as client:
        client.set("somebody's", "value")
        before = databases(durable_server)
        given = {"DURABLE_DATABASE_URL": durable_server, "DURABLE_REDIS_URL": server.url}
        with start_demo(tmp_path, **given) as running:
            assert running.stdout is not None
            told = ""
            while "4. The recovery" not in told and (line := running.stdout.readline()):
                told += line
            assert databases(durable_server) - before  # it has one of its own
            until(lambda: len(client.keys()) > 1, "its worker is at work again")
            running.send_signal(signal.SIGINT)
            rest, errors = running.communicate(timeout=PATIENCE)

        assert (running.returncode, errors) == (130, ""), told + rest
        assert "not flushed: only the demo's keys are deleted" in " ".join(told.split())
        assert client.keys() == [b"somebody's"]
        assert databases(durable_server) == before
        assert_nothing_is_left(tmp_path)


def databases(url):
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"))
    with engine.connect() as conn:
        found = set(conn.scalars(text("SELECT datname FROM pg_database WHERE datname LIKE 'demo_%'")))
    engine.dispose()
    return found


def test_workers_that_cannot_work_end_the_demo_with_the_end_of_their_logs(durable, durable_server, monkeypatch):
    monkeypatch.setenv("DURABLE_DATABASE_URL", durable_server)
    monkeypatch.setattr(demo_stage, "MODULE", "actors.nothing")

    with demo_stage.a_stage() as stage, pytest.raises(DemoFailed, match="nobody had killed") as failed:
        with demo_stage.workers(stage):
            pytest.fail("they are said to be ready")

    assert "there is no module 'actors.nothing'" in "".join(failed.value.logs)
    assert os.environ["DURABLE_DATABASE_URL"] == durable_server


@pytest.mark.parametrize(
    ("variable", "url", "says"),
    [
        ("DURABLE_DATABASE_URL", "postgresql://somebody@127.0.0.1:1/nothing", "cannot make a database of its own"),
        ("DURABLE_REDIS_URL", "redis://127.0.0.1:1/0", "There is no Redis to use"),
        ("DURABLE_REDIS_URL", "nonsense://", "There is no Redis to use"),
    ],
)
def test_a_server_that_is_not_there_is_told_in_a_line(durable_server, monkeypatch, variable, url, says):
    monkeypatch.setenv("DURABLE_DATABASE_URL", durable_server)
    monkeypatch.setenv("DURABLE_REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv(variable, url)

    with pytest.raises(DemoFailed, match=says), demo_stage.a_stage():
        pytest.fail("it is said to be there")


@pytest.fixture
def fulfilment(shop, user, shelf):
    placed = web_shop.place_order(shop, user, {"mug": 2, "pen": 1})
    shop.commit()
    return OrderFulfilment.get(placed.id)


@pytest.fixture
def declined(shop, shelf):
    shop.add(poor := User(email="bob@example.org"))
    placed = web_shop.place_order(shop, poor, {"pen": 4})
    shop.commit()
    return OrderFulfilment.get(placed.id)


SHELF = {"mug": 10, "pen": 10}


def failures(session):
    return [proof.claim for proof in prove_all(session, shelf=SHELF) if not proof.holds]


def test_orders_that_ran_once_are_proven(shop, fulfilment, declined):
    speedrun(fulfilment)
    speedrun(declined)

    assert [proof.claim for proof in prove_all(shop, shelf=SHELF)] == [
        "2 orders: 1 are shipped, 1 ended as the bank declined the card",
        "4 stock movements: every line of every order left the shelf once, and came back once where the card was "
        "declined",
        "1 charges of 20.50 in all: one per shipped order, of what it costs",
        "1 parcels: one per shipped order",
        "20 pieces were on the shelf, 3 are sold, 17 are left",
        "6 steps of workflows were completed, each of them once",
        "1 workflows sleep, one per parcel: the carrier is asked in an hour",
    ]
    assert failures(shop) == []


def test_an_order_that_stopped_half_way_is_not_proven(shop, fulfilment):
    perform_next_step(fulfilment)

    assert failures(shop) == [
        "1 orders: 0 are shipped, 0 ended as the bank declined the card: not so for the orders 1",
        "0 charges of 0.00 in all: one per shipped order, of what it costs: not so for the orders 1",
        "0 parcels: one per shipped order: not so for the orders 1",
    ]


@pytest.mark.parametrize(
    ("doubled", "claim"),
    [
        (lambda: StockMovement(order_id=1, sku="mug", quantity=-2), "3 stock movements"),
        (lambda: Parcel(order_id=1, tracking_number="p"), "2 parcels"),
    ],
)
def test_what_was_done_twice_is_found(shop, fulfilment, doubled, claim):
    speedrun(fulfilment)
    shop.add(doubled())
    shop.commit()

    assert failures(shop)[0].startswith(claim)


def test_a_charge_that_was_lost_made_twice_or_wrong_is_found(shop, fulfilment):
    speedrun(fulfilment)
    [charge] = shop.query(Charge)

    charge.amount += 1
    assert [claim[:18] for claim in failures(shop)] == ["1 charges of 20.51"]
    shop.add(Charge(order_id=1, amount=2050, receipt="again", charged_at=charge.charged_at))
    assert [claim[:9] for claim in failures(shop)] == ["2 charges"]
    shop.execute(delete(Charge))
    assert [claim[:9] for claim in failures(shop)] == ["0 charges"]
    shop.rollback()


def test_goods_of_a_declined_order_that_did_not_come_back_are_found(shop, declined):
    speedrun(declined)
    shop.execute(delete(StockMovement).where(StockMovement.quantity > 0))
    shop.get_one(Product, "pen").in_stock = 6
    shop.commit()

    assert [claim[:17] for claim in failures(shop)] == ["1 stock movements", "20 pieces were on"]


def test_a_shelf_that_holds_too_much_is_found(shop, fulfilment):
    speedrun(fulfilment)
    shop.get_one(Product, "pen").in_stock += 1
    shop.commit()

    assert failures(shop) == [
        "20 pieces were on the shelf, 3 are sold, 18 are left: not so for the products pen",
    ]


def test_a_step_that_was_completed_twice_is_found(shop, fulfilment):
    speedrun(fulfilment)
    copied = "id, workflow_id, step, state, outcome, attempt, reattempts, crashes, idempotency_key, scheduled_for"
    shop.execute(
        text(
            f"INSERT INTO durable.executions ({copied}, started_at, finished_at) "
            f"SELECT gen_random_uuid(), {copied.partition(', ')[2]}, started_at, finished_at "
            "FROM durable.executions WHERE step = 'ship'"
        )
    )

    assert failures(shop) == ["4 steps of workflows were completed, each of them once: not so for the steps ship"]
    shop.rollback()


def test_a_parcel_that_nobody_watches_is_found(shop, fulfilment):
    speedrun(fulfilment)
    [watch] = StatusPolling.list()
    watch.cancel("lost")

    assert failures(shop) == [
        "0 workflows sleep, one per parcel: the carrier is asked in an hour: not so for the parcels 1"
    ]


def test_a_step_that_died_with_its_worker_is_proven_once_it_was_completed_again(shop, durable, fulfilment):
    lost = claim(durable, fulfilment).execution_id
    travel(minutes=1)
    assert not prove_recovery(shop, [lost]).holds

    recover_lost_claims(durable)
    assert not prove_recovery(shop, [lost]).holds

    perform_next_step(fulfilment)
    assert prove_recovery(shop, [lost]).holds
    assert not prove_recovery(shop, [lost, uuid4()]).holds
    assert not prove_recovery(shop, []).holds


def test_a_step_that_ran_again_under_another_key_is_found(shop, durable, fulfilment):
    lost = claim(durable, fulfilment).execution_id
    travel(minutes=1)
    recover_lost_claims(durable)
    perform_next_step(fulfilment)
    shop.execute(
        text("UPDATE durable.executions SET idempotency_key = gen_random_uuid() WHERE id = :lost"), {"lost": lost}
    )

    assert not prove_recovery(shop, [lost]).holds
    shop.rollback()


def test_a_message_that_was_lost_is_proven_harmless_once_its_step_has_run(shop, fulfilment):
    [scheduled] = fulfilment.history
    assert prove_messages(shop, [scheduled.id]).claim.endswith("not so for 1 of them")

    perform_next_step(fulfilment)

    assert prove_messages(shop, [scheduled.id]).holds
    assert not prove_messages(shop, []).holds


def test_what_a_dead_worker_left_behind_is_found():
    assert prove_nothing_left(0).holds
    assert not prove_nothing_left(2).holds


def test_a_proof_that_fails_is_shown_and_fails_the_demo(capsys, monkeypatch):
    with pytest.raises(DemoFailed):
        demo.conclude([Proof("this", True), Proof("that", False)])

    told = capsys.readouterr().out
    assert "holds this" in told
    assert "FAILS that" in told
    assert "exactly once" not in told


def test_a_failure_ends_in_one_clear_line_below_the_logs_and_exit_code_1(capsys, monkeypatch):
    def fail():
        failed = DemoFailed("Something was lost.")
        failed.logs = ["the last words"]
        raise failed

    monkeypatch.setattr(demo, "play", fail)

    assert demo.main() == 1
    assert capsys.readouterr().out.split("\n")[-4:] == ["the last words", "", "Something was lost.", ""]


def test_the_demo_takes_orders_of_all_kinds(shop, durable):
    fill_shop(durable.engine)
    take_orders(durable.engine, [8, 12, 13])

    placed = shop.query(Order).order_by(Order.id).all()
    assert [order.card for order in placed] == ["4242", None, "4242"]
    assert OrderFulfilment.count() == 2  # the first one is paid in advance
    assert [line.sku for line in shop.query(OrderLine).filter_by(order_id=placed[2].id)] == sorted(basket(13))
