"""The demo proves what it claims, and says so when it does not hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import delete

from actors import shop as web_shop
from actors.demo import conclude
from actors.demo_proofs import Proof, prove_all, prove_order
from actors.models import Charge, Parcel, Product, StockMovement
from actors.order_fulfilment import OrderFulfilment
from durable.testing import perform_next_step, speedrun

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_demo_proves_that_a_killed_worker_loses_and_doubles_nothing():
    demo = subprocess.run(
        [sys.executable, "-m", "actors.demo"], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )

    assert (demo.returncode, demo.stderr) == (0, "")
    for line in (
        "order 1 is placed and costs 1500 cents",
        "its step reserve_stock is scheduled",
        "runs reserve_stock, which is in_progress.",
        "It is ended by SIGKILL.",
        "What it had written is undone: the order has 0 stock movements.",
        "Now the reaper recovers 1 step",
        "holds order 2: its workflow is finished",
        "holds order 2: 2 stock movements for its 2 lines",
        "holds order 2: 1 charge, 1500 cents",
        "holds reserve_stock: first recovered, then success",
        "every stock movement and every charge is there exactly once",
    ):
        assert line in demo.stdout
    assert "FAILS" not in demo.stdout


@pytest.fixture
def fulfilment(shop, user, shelf):
    placed = web_shop.place_order(shop, user, {"mug": 2, "pen": 1})
    shop.commit()
    return OrderFulfilment.get(placed.id)


def failures(proofs):
    return [proof.claim for proof in proofs if not proof.holds]


def test_an_order_that_ran_once_is_proven(shop, fulfilment):
    speedrun(fulfilment)

    assert failures(prove_order(shop, fulfilment)) == []


def test_an_order_that_stopped_half_way_is_not_proven(shop, fulfilment):
    perform_next_step(fulfilment)

    assert failures(prove_order(shop, fulfilment)) == [
        "order 1: its workflow is ready",
        "order 1: 0 charge, 0 cents",
        "order 1: 0 parcel",
    ]


@pytest.mark.parametrize(
    ("doubled", "claim"),
    [
        (lambda: StockMovement(order_id=1, sku="mug", quantity=-2), "order 1: 3 stock movements for its 2 lines"),
        (lambda: Parcel(order_id=1, tracking_number="p"), "order 1: 2 parcel"),
    ],
)
def test_what_was_done_twice_is_found(shop, fulfilment, doubled, claim):
    speedrun(fulfilment)
    shop.add(doubled())
    shop.commit()

    assert failures(prove_order(shop, fulfilment)) == [claim]


def test_a_charge_that_was_lost_is_found(shop, fulfilment):
    speedrun(fulfilment)
    shop.execute(delete(Charge))

    assert failures(prove_order(shop, fulfilment)) == ["order 1: 0 charge, 0 cents"]


def test_a_shelf_that_holds_too_much_and_a_step_that_was_not_recovered_are_found(shop, durable, fulfilment):
    speedrun(fulfilment)
    shop.get_one(Product, "pen").in_stock += 1
    shop.commit()

    proofs = prove_all(durable.engine, [fulfilment], killed=fulfilment, shelf={"mug": 10, "pen": 10})

    assert failures(proofs)[:2] == [
        "pen: 10 were on the shelf, 1 ordered, 10 are left",
        "reserve_stock: first success, then success",
    ]


def test_a_proof_that_fails_is_shown_and_fails_the_demo(capsys):
    assert conclude([Proof("this", True), Proof("that", False)]) == 1

    told = capsys.readouterr().out
    assert "holds this" in told
    assert "FAILS that" in told
    assert "exactly once" not in told
